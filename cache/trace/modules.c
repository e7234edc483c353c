// SPDX-License-Identifier: MIT
/* The modules of the process, from /proc/self/maps: finding an address's, and writing it down. */
#define _GNU_SOURCE
#include "cache/trace/modules.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#include "cache/base/lock.h"
#include "cache/base/safe_read.h"
#include "cache/base/system.h"
#include "cache/trace/format.h"
#include "cache/trace/stack.h"

enum { MAX_MODULES = 1024, MAX_PATH = 1400, MAX_ID = 64, TRIES = 200 };

/* Filled one after the other under `owner`; only the generation changes later. */
static struct pdn_module modules[MAX_MODULES];
static uint32_t count;
static uint16_t numbers;
static int32_t owner; /* tid of the thread that reads the maps; 0: none */

/* Under `owner`. Not on the stack, which may be too small for them. */
static char text[8192 + 1];
static char path[MAX_PATH + 1];
static uint64_t words[PDN_RECORD_MAX_WORDS];

/* ---- lines of /proc/self/maps --------------------------------------------------------------- */

struct line {
	uint64_t begin, end, offset, device, node;
	bool code;
	const char *path; /* "": none */
};

static uint64_t parse_number(const char **at, unsigned base)
{
	uint64_t value = 0;

	for (;; (*at)++) {
		unsigned digit = (unsigned char)**at;

		if (digit >= '0' && digit <= '9')
			digit -= '0';
		else if (digit >= 'a' && digit <= 'f')
			digit -= 'a' - 10;
		else
			return value;
		if (digit >= base)
			return value;
		value = value * base + digit;
	}
}

/* "begin-end perm offset major:minor inode     path" */
static struct line parse_line(const char *at)
{
	struct line line = {0};

	line.begin = parse_number(&at, 16);
	at += *at == '-';
	line.end = parse_number(&at, 16);
	at += *at == ' ';
	for (; *at && *at != ' '; at++)
		line.code = line.code || *at == 'x';
	at += *at == ' ';
	line.offset = parse_number(&at, 16);
	at += *at == ' ';
	line.device = parse_number(&at, 16) << 32;
	at += *at == ':';
	line.device |= parse_number(&at, 16);
	at += *at == ' ';
	line.node = parse_number(&at, 10);
	at += strspn(at, " ");
	line.path = at;
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
		if (got > 0)
			maps->used += (size_t)got;
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

struct identity {
	unsigned char id[MAX_ID];
	unsigned length;
};

/* The build id is in a note of the linker, with the name "GNU". */
static void read_note(struct identity *identity, uint64_t at, uint64_t bytes)
{
	Elf64_Nhdr note;
	char name[4];

	for (unsigned i = 0; i < 16 && bytes >= sizeof(note); i++) {
		uint64_t length;

		if (!pdn_safe_read(&note, at, sizeof(note)))
			return;
		length = sizeof(note) + ((note.n_namesz + 3ull) & ~3ull) +
			 ((note.n_descsz + 3ull) & ~3ull);
		if (length > bytes)
			return;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
		    pdn_safe_read(name, at + sizeof(note), 4) && memcmp(name, "GNU", 4) == 0 &&
		    note.n_descsz <= MAX_ID &&
		    pdn_safe_read(identity->id, at + sizeof(note) + 4, note.n_descsz)) {
			identity->length = note.n_descsz;
			return;
		}
		at += length;
		bytes -= length;
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
	pdn_trace_words(PDN_RECORD_MODULE, module->number, words, used);
}

static bool is_libpindown(void)
{
	const char *slash = strrchr(path, '/');

	return strncmp(slash ? slash + 1 : path, "libpindown.so", 13) == 0;
}

static const struct pdn_module *add_module(const struct pdn_module *found)
{
	struct identity identity = {0};
	struct pdn_module *module;

	if (count == MAX_MODULES || numbers == UINT16_MAX)
		return NULL;
	module = &modules[count];
	*module = *found;
	module->number = ++numbers;
	module->in_libpindown = is_libpindown();
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
static const struct pdn_module *find_known(uint64_t pc, uint32_t generation)
{
	uint32_t n = __atomic_load_n(&count, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < n; i++) {
		struct pdn_module *module = &modules[i];

		if (pc - module->begin < module->end - module->begin &&
		    __atomic_load_n(&module->generation, __ATOMIC_RELAXED) == generation)
			return module;
	}
	return NULL;
}

/* A known module that is still at its place belongs to this generation too. */
static void confirm(const struct pdn_module *seen, uint32_t generation)
{
	for (uint32_t i = 0; i < count; i++) {
		struct pdn_module *module = &modules[i];

		if (module->begin == seen->begin && module->end == seen->end &&
		    module->device == seen->device && module->node == seen->node)
			__atomic_store_n(&module->generation, generation, __ATOMIC_RELAXED);
	}
}

/* A file's mappings are adjacent lines; the first one maps the file from offset 0. */
static bool continues(const struct pdn_module *module, const struct line *line)
{
	return module->end && line->offset && line->device == module->device &&
	       line->node == module->node;
}

static void finish_module(const struct pdn_module *seen, struct pdn_module *found, uint64_t pc,
			  uint32_t generation)
{
	if (!seen->end)
		return;
	confirm(seen, generation);
	if (pc - seen->begin < seen->end - seen->begin)
		*found = *seen;
}

static const struct pdn_module *search_maps(uint64_t pc, uint32_t generation)
{
	struct pdn_module seen = {0}, found = {0};
	struct maps maps = {0};
	struct line line;

	maps.fd = pdn_sys_open("/proc/self/maps", O_RDONLY);
	if (maps.fd < 0)
		return NULL;
	while (next_line(&maps, &line)) {
		if (!line.path[0])
			continue;
		if (continues(&seen, &line)) {
			seen.end = line.end;
		} else {
			finish_module(&seen, &found, pc, generation);
			seen = (struct pdn_module){.begin = line.begin,
						   .end = line.end,
						   .device = line.device,
						   .node = line.node,
						   .generation = generation};
		}
		if (line.code && pc - line.begin < line.end - line.begin) {
			strncpy(path, line.path, MAX_PATH);
			path[MAX_PATH] = '\0';
		}
	}
	finish_module(&seen, &found, pc, generation);
	pdn_sys(SYS_close, maps.fd);
	if (find_known(pc, generation))
		return find_known(pc, generation);
	return found.end && path[0] ? add_module(&found) : NULL;
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

const struct pdn_module *pdn_module_find(uint64_t pc, uint32_t generation)
{
	const struct pdn_module *module = find_known(pc, generation);

	if (module || !become_owner((int32_t)pdn_sys(SYS_gettid)))
		return module;
	path[0] = '\0';
	module = find_known(pc, generation);
	if (!module)
		module = search_maps(pc, generation);
	__atomic_store_n(&owner, 0, __ATOMIC_RELEASE);
	return module;
}

/* Under `owner`: sets `path` to the path of the mapping that contains pc; "": there is none. */
static void find_path(uint64_t pc)
{
	struct maps maps = {0};
	struct line line;

	path[0] = '\0';
	maps.fd = pdn_sys_open("/proc/self/maps", O_RDONLY);
	if (maps.fd < 0)
		return;
	while (!path[0] && next_line(&maps, &line))
		if (pc - line.begin < line.end - line.begin)
			strncpy(path, line.path, MAX_PATH);
	pdn_sys(SYS_close, maps.fd);
}

bool pdn_module_name(uint64_t pc, char *name, size_t capacity, uint64_t *offset)
{
	const struct pdn_module *module = pdn_module_find(pc, pdn_stacks_generation());
	const char *slash;

	if (!module || !become_owner((int32_t)pdn_sys(SYS_gettid)))
		return false;
	find_path(pc);
	slash = strrchr(path, '/');
	strncpy(name, slash ? slash + 1 : path, capacity - 1);
	name[capacity - 1] = '\0';
	__atomic_store_n(&owner, 0, __ATOMIC_RELEASE);
	*offset = pc - module->bias;
	return name[0] != '\0';
}

/* ---- functions ------------------------------------------------------------------------------- */

/* The dynamic symbols of a module, in memory. */
struct symbols {
	uint64_t at, end, strings;
};

/* The loader has made addresses of most values here, but not in every file: not in the vDSO. */
static uint64_t address_of(const struct pdn_module *module, uint64_t value)
{
	return value >= module->begin && value < module->end ? value : value + module->bias;
}

static void read_dynamic(const struct pdn_module *module, uint64_t at, struct symbols *symbols)
{
	Elf64_Dyn entry;

	for (; pdn_safe_read(&entry, at, sizeof(entry)) && entry.d_tag != DT_NULL;
	     at += sizeof(entry))
		if (entry.d_tag == DT_SYMTAB)
			symbols->at = address_of(module, entry.d_un.d_ptr);
		else if (entry.d_tag == DT_STRTAB)
			symbols->strings = address_of(module, entry.d_un.d_ptr);
	/* No header has their number: linkers put the strings behind them. */
	symbols->end = symbols->strings;
}

static void find_symbols(const struct pdn_module *module, struct symbols *symbols)
{
	Elf64_Ehdr header;
	Elf64_Phdr part;

	if (!pdn_safe_read(&header, module->begin, sizeof(header)))
		return;
	for (unsigned i = 0; i < header.e_phnum && i < 64; i++)
		if (pdn_safe_read(&part, module->begin + header.e_phoff + i * sizeof(part),
				  sizeof(part)) &&
		    part.p_type == PT_DYNAMIC)
			read_dynamic(module, module->bias + part.p_vaddr, symbols);
}

/* The exported function that contains an address in the file. */
static bool find_function(const struct symbols *symbols, uint64_t address, Elf64_Sym *found)
{
	Elf64_Sym some[32];
	uint64_t left = symbols->at && symbols->at < symbols->end
				? (symbols->end - symbols->at) / sizeof(*some)
				: 0;

	for (uint64_t at = symbols->at, n; left; left -= n, at += n * sizeof(*some)) {
		n = left < 32 ? left : 32;
		if (!pdn_safe_read(some, at, n * sizeof(*some)))
			return false;
		for (uint64_t i = 0; i < n; i++)
			if (ELF64_ST_TYPE(some[i].st_info) == STT_FUNC && some[i].st_shndx &&
			    address - some[i].st_value < some[i].st_size) {
				*found = some[i];
				return true;
			}
	}
	return false;
}

bool pdn_module_text(uint64_t pc, char *text, size_t capacity)
{
	const struct pdn_module *module;
	struct symbols symbols = {0};
	char file[64], function[65] = "";
	Elf64_Sym symbol;
	uint64_t offset;

	text[0] = '\0';
	if (!pc || !pdn_module_name(pc, file, sizeof(file), &offset))
		return false;
	module = pdn_module_find(pc, pdn_stacks_generation());
	if (module)
		find_symbols(module, &symbols);
	if (find_function(&symbols, offset - 1, &symbol) &&
	    pdn_safe_read(function, symbols.strings + symbol.st_name, sizeof(function) - 1) &&
	    strlen(function) < sizeof(function) - 1)
		snprintf(text, capacity, "%s: %s+0x%llx", file, function,
			 (unsigned long long)(offset - symbol.st_value));
	else
		snprintf(text, capacity, "%s+0x%llx", file, (unsigned long long)offset);
	return true;
}

void pdn_modules_fork_child(void)
{
	count = 0;
	numbers = 0;
	owner = 0;
}
