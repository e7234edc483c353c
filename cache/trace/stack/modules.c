// SPDX-License-Identifier: MIT
/* The modules of the process, from /proc/self/maps: finding an address's, and writing it down. */
#define _GNU_SOURCE
#include "cache/trace/stack/modules.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#include "cache/base/thread/lock.h"
#include "cache/base/memory/safe_read.h"
#include "cache/base/process/system.h"
#include "cache/trace/format.h"

PDN_WEAK_EVENT(stack_words, (enum pdn_record, unsigned, const uint64_t *, unsigned));

enum { MAX_MODULES = 1024, MAX_PATH = 1400, MAX_ID = 64, TRIES = 200 };

/* Filled one after the other under `owner`; only the generation changes later. */
static struct pdn_module modules[MAX_MODULES];
static uint32_t count;
static uint16_t numbers;
static int32_t owner; /* tid of the thread that reads the maps; 0: none */
/* Release where it rises, acquire where it is read: what is then looked up is as of after that. */
static uint32_t generation;

/* Under `owner`. Not on the stack, which may be too small for them. */
static char text[8192 + 1];
static char path[MAX_PATH + 1]; /* of the code that is searched for; the last byte stays 0 */
static uint64_t words[PDN_RECORD_MAX_WORDS];

/* ---- lines of /proc/self/maps --------------------------------------------------------------- */

struct line {
	struct pdn_module module; /* as far as a line says it */
	uint64_t offset;
	bool code;
	const char *path; /* "": none */
};

/* Moves behind the number. */
static uint64_t parse_number(const char **at, unsigned base)
{
	uint64_t value = 0;

	for (;; (*at)++) {
		unsigned letter = (unsigned char)**at;
		unsigned digit = letter >= 'a' ? letter - 'a' + 10 : letter - '0';

		if (digit >= base || letter == ':')
			return value;
		value = value * base + digit;
	}
}

/* "begin-end perm offset major:minor inode     path" */
static struct line parse_line(const char *at)
{
	struct line line = {0};
	uint64_t minor = 0, *const numbers[] = {
				    &line.module.begin,	 &line.module.end, &line.offset,
				    &line.module.device, &minor,	   &line.module.node};

	for (unsigned i = 0; i < 6; i++, at += *at != '\0') {
		*numbers[i] = parse_number(&at, i < 5 ? 16 : 10);
		if (i == 1) {
			line.code = at[3] == 'x';
			at += sizeof("r-xp ") - 1;
		}
	}
	line.module.device = line.module.device << 32 | minor;
	line.path = at + strspn(at, " ");
	return line;
}

struct maps {
	int fd;
	size_t used, at; /* of text */
};

/* The next line; valid until the next call. */
static bool next_line(struct maps *maps, struct line *line)
{
	char *end = memchr(text + maps->at, '\n', maps->used - maps->at);

	if (!end) {
		long got;

		memmove(text, text + maps->at, maps->used - maps->at);
		maps->used -= maps->at;
		maps->at = 0;
		got = pdn_sys(SYS_read, maps->fd, text + maps->used, sizeof(text) - 1 - maps->used);
		maps->used += got > 0 ? (size_t)got : 0;
		end = memchr(text, '\n', maps->used);
		if (!end)
			return false;
	}
	*end = '\0';
	*line = parse_line(text + maps->at);
	maps->at = (size_t)(end + 1 - text);
	return true;
}

/* ---- a file's headers ------------------------------------------------------------------------ */

static bool contains(const struct pdn_module *module, uint64_t pc)
{
	return pc - module->begin < module->end - module->begin;
}

struct identity {
	unsigned char id[MAX_ID];
	unsigned length;
};

/* The build id is in a note of the linker, with the name "GNU". */
static void read_note(struct identity *identity, uint64_t at, uint64_t bytes)
{
	static const uint32_t gnu = 'G' | 'N' << 8 | 'U' << 16;
	uint32_t all[128];
	size_t left = bytes < sizeof(all) ? bytes : sizeof(all);

	if (!pdn_safe_read(all, at, left))
		return;
	/* Lengths of name and content, the type, then name and content, each in whole words. */
	for (uint32_t *note = all; left >= 16;) {
		size_t whole = 12 + ((note[0] + 3ull) & ~3ull) + ((note[1] + 3ull) & ~3ull);

		if (whole > left)
			return;
		if (note[0] == 4 && note[2] == NT_GNU_BUILD_ID && note[3] == gnu &&
		    note[1] <= MAX_ID) {
			identity->length = note[1];
			memcpy(identity->id, note + 4, note[1]);
			return;
		}
		note += whole / 4;
		left -= whole;
	}
}

/* The loader has made addresses of most values here, but not in every file: not in the vDSO. */
static void read_dynamic(struct pdn_module *module, uint64_t at)
{
	Elf64_Dyn entry;

	for (; pdn_safe_read(&entry, at, sizeof(entry)) && entry.d_tag; at += sizeof(entry)) {
		uint64_t value = entry.d_un.d_ptr;

		value += contains(module, value) ? 0 : module->bias;
		if (entry.d_tag == DT_SYMTAB)
			module->symbols = value;
		else if (entry.d_tag == DT_STRTAB)
			module->names = value;
	}
}

/* Reads the program headers, from memory at the module's begin. */
static void read_headers(struct pdn_module *module, struct identity *identity)
{
	Elf64_Ehdr header;
	bool loaded = false;

	module->bias = module->begin;
	if (!pdn_safe_read(&header, module->begin, sizeof(header)) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr))
		return;
	for (unsigned i = 0; i < header.e_phnum && i < 64; i++) {
		Elf64_Phdr part;

		if (!pdn_safe_read(&part, module->begin + header.e_phoff + i * sizeof(part),
				   sizeof(part)))
			return;
		if (part.p_type == PT_LOAD && !loaded) {
			module->bias = module->begin - (part.p_vaddr & ~4095ull);
			loaded = true;
		} else if (part.p_type == PT_GNU_EH_FRAME) {
			module->index = module->bias + part.p_vaddr;
			module->index_bytes = (uint32_t)part.p_memsz;
		} else if (part.p_type == PT_DYNAMIC) {
			read_dynamic(module, module->bias + part.p_vaddr);
		} else if (part.p_type == PT_NOTE && !identity->length) {
			read_note(identity, module->bias + part.p_vaddr, part.p_memsz);
		}
	}
}

/* ---- new modules ----------------------------------------------------------------------------- */

static void write_module(const struct pdn_module *module, const struct identity *identity)
{
	unsigned id_words = (identity->length + 7) / 8, length = (unsigned)strlen(path);
	unsigned used = 4 + id_words + (length + 7) / 8;

	memset(words, 0, sizeof(words));
	words[0] = module->begin;
	words[1] = module->end;
	words[2] = module->bias;
	words[3] = identity->length | (uint64_t)length << 16;
	memcpy(words + 4, identity->id, identity->length);
	memcpy(words + 4 + id_words, path, length);
	PDN_NOTIFY(stack_words, PDN_RECORD_MODULE, module->number, words, used);
}

/* Under `owner`, with its path in `path`. */
static const struct pdn_module *add_module(const struct pdn_module *found)
{
	struct pdn_module *module = &modules[count];
	struct identity identity = {0};
	const char *slash = strrchr(path, '/');

	if (count == MAX_MODULES || numbers == UINT16_MAX)
		return NULL;
	*module = *found;
	module->number = ++numbers;
	snprintf(module->name, sizeof(module->name), "%.63s", slash ? slash + 1 : path);
	read_headers(module, &identity);
	write_module(module, &identity);
	/* Release: pairs with find_known(). */
	__atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
	return module;
}

/* ---- finding --------------------------------------------------------------------------------- */

/*
 * Acquire: pairs with add_module(), which fills a module in before counting it. The generation is
 * relaxed: it pairs with confirm(); a thread that sees the old one reads the maps, as if the module
 * were unknown.
 */
static const struct pdn_module *find_known(uint64_t pc, uint32_t now)
{
	uint32_t n = __atomic_load_n(&count, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < n; i++)
		if (contains(&modules[i], pc) &&
		    __atomic_load_n(&modules[i].generation, __ATOMIC_RELAXED) == now)
			return &modules[i];
	return NULL;
}

/* A known module that is still at its place belongs to this generation too. */
static void confirm(const struct pdn_module *seen)
{
	for (uint32_t i = 0; i < count; i++)
		if (modules[i].begin == seen->begin && modules[i].end == seen->end &&
		    modules[i].device == seen->device && modules[i].node == seen->node)
			__atomic_store_n(&modules[i].generation, seen->generation,
					 __ATOMIC_RELAXED);
}

/* A file's mappings are adjacent lines; the first one maps the file from offset 0. */
static bool continues(const struct pdn_module *module, const struct line *line)
{
	return module->end && line->offset && line->module.device == module->device &&
	       line->module.node == module->node;
}

static const struct pdn_module *search_maps(uint64_t pc, uint32_t now)
{
	struct pdn_module seen = {0}, found = {0};
	struct maps maps = {.fd = pdn_sys_open("/proc/self/maps", O_RDONLY)};
	struct line line = {.path = ""};
	const struct pdn_module *known;

	path[0] = '\0';
	for (bool more = maps.fd >= 0; more;) {
		more = next_line(&maps, &line);
		if (more && !line.path[0])
			continue;
		if (more && contains(&line.module, pc) && line.code)
			strncpy(path, line.path, MAX_PATH);
		if (more && continues(&seen, &line)) {
			seen.end = line.module.end;
			continue;
		}
		confirm(&seen);
		if (contains(&seen, pc))
			found = seen;
		seen = line.module;
		seen.generation = now;
	}
	pdn_sys(SYS_close, maps.fd);
	known = find_known(pc, now);
	return known || !path[0] || !found.end ? known : add_module(&found);
}

/*
 * Becomes the owner. False if this thread is it already, as in a signal handler, or if the owner
 * stays it for long. Acquire: pairs with the owner's release at its end.
 */
static bool become_owner(int32_t tid)
{
	struct pdn_backoff rest = {0};

	for (unsigned i = 0; i < TRIES; i++) {
		int32_t none = 0;

		if (__atomic_compare_exchange_n(&owner, &none, tid, false, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			return true;
		if (none == tid)
			return false;
		pdn_backoff(&rest);
	}
	return false;
}

const struct pdn_module *pdn_module_find(uint64_t pc)
{
	uint32_t now = pdn_modules_generation();
	const struct pdn_module *module = find_known(pc, now);

	if (module || !become_owner((int32_t)pdn_sys(SYS_gettid)))
		return module;
	module = find_known(pc, now);
	if (!module)
		module = search_maps(pc, now);
	__atomic_store_n(&owner, 0, __ATOMIC_RELEASE);
	return module;
}

uint32_t pdn_modules_generation(void)
{
	return __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
}

void pdn_modules_change(void)
{
	__atomic_fetch_add(&generation, 1, __ATOMIC_RELEASE);
}

/* ---- for messages ---------------------------------------------------------------------------- */

bool pdn_module_name(uint64_t pc, char *name, size_t capacity, uint64_t *offset)
{
	const struct pdn_module *module = pdn_module_find(pc);

	if (!module)
		return false;
	snprintf(name, capacity, "%s", module->name);
	*offset = pc - module->bias;
	return true;
}

/*
 * The name of the exported function that contains an address in the file, and its begin. No header
 * has the number of symbols: linkers put the names behind them.
 */
static bool find_function(const struct pdn_module *module, uint64_t address, char *name,
			  size_t capacity, uint64_t *begin)
{
	uint64_t at = module->symbols, n;
	Elf64_Sym some[32];

	for (; at && at + sizeof(*some) <= module->names; at += n * sizeof(*some)) {
		n = (module->names - at) / sizeof(*some);
		n = n < 32 ? n : 32;
		if (!pdn_safe_read(some, at, n * sizeof(*some)))
			return false;
		for (uint64_t i = 0; i < n; i++) {
			*begin = some[i].st_value;
			if (ELF64_ST_TYPE(some[i].st_info) == STT_FUNC && some[i].st_shndx &&
			    address - *begin < some[i].st_size)
				return pdn_safe_read(name, module->names + some[i].st_name,
						     capacity) &&
				       strnlen(name, capacity) < capacity;
		}
	}
	return false;
}

bool pdn_module_text(uint64_t pc, char *text, size_t capacity)
{
	const struct pdn_module *module = pc ? pdn_module_find(pc) : NULL;
	uint64_t offset, begin;
	char function[64];

	text[0] = '\0';
	if (!module)
		return false;
	offset = pc - module->bias;
	if (find_function(module, offset - 1, function, sizeof(function), &begin))
		snprintf(text, capacity, "%s: %s+0x%llx", module->name, function,
			 (unsigned long long)(offset - begin));
	else
		snprintf(text, capacity, "%s+0x%llx", module->name, (unsigned long long)offset);
	return true;
}

void pdn_modules_fork_child(void)
{
	count = 0;
	numbers = 0;
	owner = 0;
}
