/* SPDX-License-Identifier: MIT */
/*
 * Reading a library's file before it is loaded: which functions it calls, and which libraries it
 * needs.
 *
 * The program's thread may have a small stack, and a chain of libraries may be long: so needed
 * files are noted and read one after another, and large buffers are mapped.
 */
#define _GNU_SOURCE
#include "hook/loader/deepbind.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "hook/loader/loaded/scope.h"
#include "cache/base/memory/address_space.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/environment/environment.h"
#include "cache/base/process/system.h"
#include "hook/loader/loaded/loaded.h"

#define MAX_FILES   64u /* that one call reads */
#define MAX_PATH    512u
#define MAX_PART    (64u << 20) /* bytes of one table of a file */
#define MAX_CACHE   (16u << 20)
#define SYSTEM_DIRS "/lib64:/usr/lib64:/lib:/usr/lib"
#if defined(__x86_64__)
#define TRIPLET "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define TRIPLET "aarch64-linux-gnu"
#endif

/* The files that one question leads to, in the order in which they are read. */
struct walk {
	unsigned count;
	struct {
		dev_t device;
		ino_t inode;
		char path[MAX_PATH];
	} found[MAX_FILES];
	char path[MAX_PATH];	/* the one that is being put together */
	char program[MAX_PATH]; /* the program's file, for $ORIGIN */
};

/* As much of it as there is; a negative errno. */
static long read_at(int fd, void *to, size_t length, uint64_t offset)
{
	return pdn_sys(SYS_pread64, fd, to, length, offset);
}

/* A copy of a part of a file: reading a mapped file that is truncated meanwhile would be SIGBUS. */
struct part {
	char *at;
	size_t length;
};

static void drop(struct part part)
{
	if (part.at)
		pdn_unreserve(part.at, part.length);
}

static struct part read_part(int fd, uint64_t offset, uint64_t length)
{
	struct part part = {.length = length};

	if (length && length <= MAX_PART)
		part.at = pdn_map(length, PROT_READ | PROT_WRITE);
	for (size_t got = 0; part.at && got < length;) {
		long n = read_at(fd, part.at + got, length - got, offset + got);

		if (n > 0) {
			got += (size_t)n;
		} else if (n != -EINTR) {
			drop(part);
			part.at = NULL;
		}
	}
	return part.at ? part : (struct part){0};
}

/* ---- one file ------------------------------------------------------------------------------ */

struct file {
	int fd;
	const char *path;
	struct part segments, dynamic, strings, symbols;
};

static const ElfW(Phdr) * segment(const struct file *f, unsigned i)
{
	const ElfW(Phdr) *all = (const void *)f->segments.at;

	return i < f->segments.length / sizeof(*all) ? &all[i] : NULL;
}

static const ElfW(Dyn) * dynamic_entry(const struct file *f, size_t i)
{
	const ElfW(Dyn) *all = (const void *)f->dynamic.at;

	return i < f->dynamic.length / sizeof(*all) && all[i].d_tag != DT_NULL ? &all[i] : NULL;
}

static uint64_t dynamic_value(const struct file *f, int64_t tag)
{
	return pdn_elf_value((const void *)f->dynamic.at, f->dynamic.length / sizeof(ElfW(Dyn)),
			     tag);
}

static uint64_t offset_of(const struct file *f, uint64_t address)
{
	const ElfW(Phdr) * s;

	for (unsigned i = 0; (s = segment(f, i)); i++)
		if (s->p_type == PT_LOAD && address - s->p_vaddr < s->p_filesz)
			return address - s->p_vaddr + s->p_offset;
	return UINT64_MAX;
}

/* A string of the file; "" where there is none. */
static const char *string_at(const struct file *f, uint64_t offset)
{
	if (offset >= f->strings.length ||
	    !memchr(f->strings.at + offset, 0, f->strings.length - offset))
		return "";
	return f->strings.at + offset;
}

/*
 * How many symbols to read. A GNU hash table leaves out the first ones, and all undefined symbols
 * are among those.
 */
static uint32_t count_wanted(const struct file *f)
{
	uint64_t gnu = dynamic_value(f, DT_GNU_HASH), sysv = dynamic_value(f, DT_HASH);
	uint32_t words[2] = {0};
	uint64_t offset = offset_of(f, gnu ? gnu : sysv);

	if ((!gnu && !sysv) || read_at(f->fd, words, sizeof(words), offset) != sizeof(words))
		return 0;
	return words[1]; /* of either: the first symbol in the table, or the number of all */
}

static bool read_file(struct file *f)
{
	ElfW(Ehdr) header;
	const ElfW(Phdr) * s;

	if (read_at(f->fd, &header, sizeof(header), 0) != sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) ||
	    header.e_phentsize != sizeof(*s))
		return false;
	f->segments = read_part(f->fd, header.e_phoff, (uint64_t)header.e_phnum * sizeof(*s));
	for (unsigned i = 0; (s = segment(f, i)) && !f->dynamic.at; i++)
		if (s->p_type == PT_DYNAMIC)
			f->dynamic = read_part(f->fd, s->p_offset, s->p_filesz);
	f->strings = read_part(f->fd, offset_of(f, dynamic_value(f, DT_STRTAB)),
			       dynamic_value(f, DT_STRSZ));
	f->symbols = read_part(f->fd, offset_of(f, dynamic_value(f, DT_SYMTAB)),
			       (uint64_t)count_wanted(f) * sizeof(ElfW(Sym)));
	return f->strings.at && f->symbols.at;
}

static void close_file(struct file *f)
{
	drop(f->segments);
	drop(f->dynamic);
	drop(f->strings);
	drop(f->symbols);
	pdn_sys(SYS_close, f->fd);
}

static bool is_wrapped(const char *name)
{
	return pdn_elf_is_cuda_name(name) || pdn_elf_is_verb_name(name) || !strcmp(name, "dlsym") ||
	       !strcmp(name, "dlvsym") || !strcmp(name, "dlopen") || !strcmp(name, "dlmopen");
}

static bool calls_us(const struct file *f)
{
	const ElfW(Sym) *symbol = (const void *)f->symbols.at;

	for (size_t i = 0; i < f->symbols.length / sizeof(*symbol); i++)
		if (symbol[i].st_shndx == SHN_UNDEF && is_wrapped(string_at(f, symbol[i].st_name)))
			return true;
	return false;
}

/* ---- where a needed file is ---------------------------------------------------------------- */

/*
 * Several files of the name may exist, and the loader's order among them is not modelled: one that
 * matters is enough, so the greater answer is that of both.
 */
enum answer { NOT_THERE, TO_BE_SEEN, MATTERS };

static enum answer both(enum answer a, enum answer b)
{
	return a > b ? a : b;
}

/* A file that can't be examined, or one too many, matters: better without RTLD_DEEPBIND. */
static enum answer note(struct walk *walk, const char *path)
{
	struct stat status;
	long error = -pdn_sys(SYS_newfstatat, AT_FDCWD, path, &status, 0);

	if (error)
		return error == ENOENT || error == ENOTDIR ? NOT_THERE : MATTERS;
	for (unsigned i = 0; i < walk->count; i++)
		if (walk->found[i].device == status.st_dev && walk->found[i].inode == status.st_ino)
			return TO_BE_SEEN;
	if (walk->count == MAX_FILES || strlen(path) >= MAX_PATH)
		return MATTERS;
	walk->found[walk->count].device = status.st_dev;
	walk->found[walk->count].inode = status.st_ino;
	strcpy(walk->found[walk->count++].path, path);
	return TO_BE_SEEN;
}

/*
 * $ORIGIN, with which a folder may begin, is the folder of the file that has the list. false: the
 * folder has other words after $, or its name is too long.
 */
static bool file_in(char path[MAX_PATH], const char *dir, size_t length, const char *origin,
		    const char *name)
{
	const char *slash = strrchr(origin, '/');
	size_t word = !strncmp(dir, "$ORIGIN", 7) ? 7 : !strncmp(dir, "${ORIGIN}", 9) ? 9 : 0;

	if ((word && !slash) || memchr(dir + word, '$', length - word))
		return false;
	return (size_t)snprintf(path, MAX_PATH, "%.*s%.*s/%s", word ? (int)(slash - origin) : 0,
				origin, (int)(length - word), dir + word, name) < MAX_PATH;
}

static enum answer look_in_dirs(struct walk *walk, const char *dirs, const char *origin,
				const char *name)
{
	enum answer found = NOT_THERE;

	while (dirs && *dirs) {
		size_t length = strcspn(dirs, ":;");

		if (length && !file_in(walk->path, dirs, length, origin, name))
			return MATTERS;
		if (length)
			found = both(found, note(walk, walk->path));
		dirs += length + (dirs[length] != 0);
	}
	return found;
}

/*
 * /etc/ld.so.cache, whatever its format: a file's path stands there as a string. One that is not
 * found so is looked for elsewhere, and matters.
 */
static enum answer look_in_cache(struct walk *walk, const char *name)
{
	size_t length = (size_t)snprintf(walk->path, MAX_PATH, "/%s", name) + 1;
	int fd = length > MAX_PATH ? -1 : pdn_sys_open("/etc/ld.so.cache", O_RDONLY);
	enum answer found = NOT_THERE;
	struct part cache = {0};
	struct stat status;

	if (fd < 0)
		return NOT_THERE;
	if (pdn_sys_fstat(fd, &status) && status.st_size > 0 && status.st_size < MAX_CACHE)
		cache = read_part(fd, 0, (uint64_t)status.st_size);
	pdn_sys(SYS_close, fd);
	for (size_t i = 0, path = 0; i < cache.length; i++) {
		if (cache.at[i] == '/' && i + length <= cache.length &&
		    !memcmp(cache.at + i, walk->path, length))
			found = both(found, note(walk, cache.at + path));
		if (!cache.at[i])
			path = i + 1;
	}
	drop(cache);
	return found;
}

/* A library that is loaded already is bound already. */
static enum answer look_for(struct walk *walk, const char *name, const char *runpath,
			    const char *origin)
{
	enum answer found;

	if (pdn_handle_of(name))
		return TO_BE_SEEN;
	if (strchr(name, '/'))
		return note(walk, name);
	found = look_in_dirs(walk, runpath, origin, name);
	found = both(found, look_in_dirs(walk, pdn_variable("LD_LIBRARY_PATH"), origin, name));
	found = both(found, look_in_cache(walk, name));
	if (found == NOT_THERE)
		found = look_in_dirs(walk, "/lib/" TRIPLET ":/usr/lib/" TRIPLET ":" SYSTEM_DIRS,
				     origin, name);
	return found;
}

/* ---- a file and what it needs -------------------------------------------------------------- */

/* Where the list of folders is that a file was linked with; 0: it has none. */
static uint64_t path_list(const ElfW(Dyn) * dynamic, size_t count)
{
	uint64_t runpath = pdn_elf_value(dynamic, count, DT_RUNPATH);

	return runpath ? runpath : pdn_elf_value(dynamic, count, DT_RPATH);
}

static bool needs_us(struct walk *walk, const struct file *f)
{
	const ElfW(Dyn) *d = (const void *)f->dynamic.at;
	const char *runpath = string_at(f, path_list(d, f->dynamic.length / sizeof(*d)));

	for (size_t i = 0; (d = dynamic_entry(f, i)); i++)
		if (d->d_tag == DT_NEEDED &&
		    look_for(walk, string_at(f, d->d_un.d_val), runpath, f->path) != TO_BE_SEEN)
			return true;
	return false;
}

/* Does this file itself matter? The files that it needs are noted. */
static bool matters(struct walk *walk, const char *path)
{
	struct file f = {.path = path, .fd = pdn_sys_open(path, O_RDONLY | O_NONBLOCK)};
	bool answer;

	if (f.fd < 0)
		return true;
	answer = !read_file(&f) || calls_us(&f) || needs_us(walk, &f);
	close_file(&f);
	return answer;
}

static const char *runpath_of(const struct pdn_asker *asker)
{
	uint64_t list = asker->readable ? path_list(asker->elf.dynamic, SIZE_MAX) : 0;

	return list ? asker->elf.string + list : NULL;
}

/* As the loader does it. Without /proc neither it nor this knows: "". */
static const char *program(struct walk *walk)
{
	long length = pdn_sys_readlink("/proc/self/exe", walk->program, MAX_PATH);

	walk->program[length > 0 && length < (long)MAX_PATH ? length : 0] = 0;
	return walk->program;
}

static bool any_matters(struct walk *walk, const char *file, const void *caller)
{
	struct pdn_asker asker;
	enum answer found;

	pdn_asker_find(&asker, caller);
	found = look_for(walk, file, runpath_of(&asker),
			 asker.map && !asker.is_program ? asker.map->l_name : program(walk));
	for (unsigned i = 0; found == TO_BE_SEEN && i < walk->count; i++)
		if (matters(walk, walk->found[i].path))
			found = MATTERS;
	return found != TO_BE_SEEN;
}

bool pdn_deepbind_matters(const char *file, const void *caller)
{
	PDN_UNCANCELLED;
	int error = errno;
	struct walk *walk = pdn_map(sizeof(*walk), PROT_READ | PROT_WRITE);
	bool answer = !walk || any_matters(walk, file, caller);

	if (walk)
		pdn_unreserve(walk, sizeof(*walk));
	errno = error;
	return answer;
}
