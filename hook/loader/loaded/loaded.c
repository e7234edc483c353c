/* SPDX-License-Identifier: MIT */
/*
 * The loader's own functions, and the libraries that it has loaded: loaded.h.
 *
 * We export dlsym, dlvsym, dlopen, dlmopen and dlclose, so a call by name from here would come back
 * to us. The C library's functions are therefore looked up in its symbol table, and with its dlsym
 * the next definitions behind us, which may be an interposer's.
 *
 * The first dlsym of a process may come from a sanitizer's runtime that is not ready yet and that
 * replaces much of the C library. So nothing here calls a function of the C library by name, and
 * this file is never instrumented (build.mk lists the files that are not).
 */
#define _GNU_SOURCE
#include "hook/loader/loaded/loaded.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>

#include "cache/base/memory/safe_read.h"
#include "cache/base/process/process.h"
#include "cache/base/visible.h"
#include "hook/hook.h"
#include "hook/loader/loaded/symtab.h"

enum {
	PAGE = 4096,	      /* or a part of a page, where pages are larger */
	MAX_LIBRARIES = 16384 /* a list with more is a circle */
};

/* ---- the loader's functions ------------------------------------------------------------------ */

/* Before glibc 2.34 the loader's functions were in a library of their own. */
static bool is_libc(const char *soname)
{
	return pdn_elf_same(soname, "libc.so.6") || pdn_elf_same(soname, "libdl.so.2");
}

/*
 * The loader's list is read without its lock: both libraries were loaded with the program, or with
 * us, and are never unloaded, and libraries that are loaded later are appended behind them.
 */
void *pdn_libc_function(const char *name)
{
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		struct pdn_elf elf;
		void *found;

		if (!pdn_elf_read(&elf, map->l_addr, map->l_ld) || !is_libc(elf.soname))
			continue;
		found = pdn_elf_find(&elf, name);
		if (found)
			return found;
	}
	return NULL;
}

typedef void *dlsym_function(void *, const char *);

/*
 * The next definition after us, the C library's or an interposer's. Looked up with dlsym, without a
 * version: an interposer's definition has none, and dlvsym skips such a definition in a library
 * that gives versions to other symbols.
 */
static void *next(dlsym_function *look, const char *name)
{
	void *found = look ? look(RTLD_NEXT, name) : NULL;

	return found ? found : pdn_libc_function(name);
}

static const struct pdn_loader *filled(struct pdn_loader *loader, bool *ready, dlsym_function *look)
{
	/* As the members are ordered; of those behind us only the functions that we export. */
	static const char names[][16] = {"dlsym",   "dlvsym",  "dlopen",  "dlmopen",
					 "dlclose", "dlerror", "dladdr1", "dl_iterate_phdr"};
	void **functions = (void **)loader;

	_Static_assert(sizeof(*loader) == sizeof(names) / sizeof(*names) * sizeof(void *), "each");
	/* Acquire pairs with the release below. Threads find the same functions. */
	if (__builtin_expect(__atomic_load_n(ready, __ATOMIC_ACQUIRE), 1))
		return loader;
	for (unsigned i = 0; i < (look ? PDN_STUBS : sizeof(names) / sizeof(*names)); i++)
		__atomic_store_n(&functions[i], next(look, names[i]), __ATOMIC_RELAXED);
	__atomic_store_n(ready, true, __ATOMIC_RELEASE);
	return loader;
}

const struct pdn_loader *pdn_loader(void)
{
	static struct pdn_loader behind_us;
	static bool ready;

	return filled(&behind_us, &ready, pdn_loader_of_libc()->dlsym);
}

const struct pdn_loader *pdn_loader_of_libc(void)
{
	static struct pdn_loader of_libc;
	static bool ready;

	return filled(&of_libc, &ready, NULL);
}

/* ---- asked of the loader --------------------------------------------------------------------- */

struct link_map *pdn_map_of(const void *address)
{
	struct link_map *map = NULL;
	Dl_info info;

	return pdn_loader_of_libc()->dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map
											     : NULL;
}

void *pdn_open_loaded(const char *file)
{
	int error = errno;
	void *handle = pdn_loader_of_libc()->dlopen(file, RTLD_LAZY | RTLD_NOLOAD);

	if (!handle)
		pdn_loader_of_libc()->dlerror();
	errno = error;
	return handle;
}

void *pdn_handle_of(const char *file)
{
	void *handle = pdn_open_loaded(file);

	if (handle)
		pdn_loader_of_libc()->dlclose(handle);
	return handle;
}

/* ---- at the start ---------------------------------------------------------------------------- */

static PDN_AT_LOAD unsigned at_start; /* how many; 0: not yet known */

PDN_STARTS void pdn_loaded_at_start(void)
{
	unsigned count = 0;

	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next)
		count++;
	at_start = count;
}

bool pdn_was_at_start(unsigned index)
{
	return !at_start || index < at_start;
}

/* ---- one library ----------------------------------------------------------------------------- */

static const ElfW(Dyn) * dynamic_section(const struct dl_phdr_info *info)
{
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	return NULL;
}

struct pdn_extent pdn_loaded_extent(const struct pdn_loaded *library)
{
	struct pdn_extent extent = {UINTPTR_MAX, 0};

	for (unsigned i = 0; i < library->count; i++) {
		const ElfW(Phdr) *segment = &library->segments[i];
		uintptr_t at = library->elf.base + segment->p_vaddr;

		if (segment->p_type != PT_LOAD)
			continue;
		if (at < extent.begin)
			extent.begin = at;
		if (at + segment->p_memsz > extent.end)
			extent.end = at + segment->p_memsz;
	}
	return extent;
}

bool pdn_has_address(const struct pdn_loaded *library, void *address)
{
	const struct pdn_extent extent = pdn_loaded_extent(library);

	return (uintptr_t)address - extent.begin < extent.end - extent.begin;
}

static void read_library(struct pdn_loaded *library, const struct dl_phdr_info *info)
{
	library->segments = info->dlpi_phdr;
	library->count = info->dlpi_phnum;
	library->is_ours = pdn_is_this_library(info->dlpi_addr);
	library->readable = pdn_elf_read(&library->elf, info->dlpi_addr, dynamic_section(info));
}

/* ---- the loader's list ----------------------------------------------------------------------- */

static bool has_header(const struct link_map *map)
{
	const unsigned char *at = (const unsigned char *)map->l_addr;

	return map->l_addr % PAGE == 0 && pdn_is_readable(map->l_addr) && at[0] == ELFMAG0 &&
	       at[1] == ELFMAG1 && at[2] == ELFMAG2 && at[3] == ELFMAG3;
}

/*
 * Does the memory still hold the library that the list has here? A library's memory is unmapped as
 * a whole, and another mapping in its place has no dynamic section at that address.
 */
static bool is_whole(const struct link_map *map, const struct dl_phdr_info *info)
{
	return dynamic_section(info) == map->l_ld && pdn_is_readable((uintptr_t)map->l_ld);
}

static struct dl_phdr_info headers_of(const struct link_map *map)
{
	const ElfW(Ehdr) *header = (const void *)map->l_addr;
	struct dl_phdr_info info = {.dlpi_addr = map->l_addr};

	if (!has_header(map) || header->e_phoff + header->e_phnum * sizeof(*info.dlpi_phdr) > PAGE)
		return info;
	info.dlpi_phdr = (const void *)(map->l_addr + header->e_phoff);
	info.dlpi_phnum = header->e_phnum;
	if (!is_whole(map, &info))
		info.dlpi_phnum = 0;
	return info;
}

struct pdn_loaded pdn_loaded_at(const struct link_map *map)
{
	const struct dl_phdr_info info = headers_of(map);
	struct pdn_loaded library = {0};

	read_library(&library, &info);
	return library;
}

/* NULL behind the last one. */
static const struct link_map *map_at(const struct link_map *map)
{
	return pdn_is_readable((uintptr_t)map) ? map : NULL;
}

static int walk_list(int (*look)(struct dl_phdr_info *, size_t, void *), void *arg)
{
	const struct link_map *map = map_at(_r_debug.r_map);
	int found = 0;

	for (unsigned i = 0; map && i < MAX_LIBRARIES && !found; i++) {
		struct dl_phdr_info info = headers_of(map);

		found = look(&info, sizeof(info), arg);
		map = map_at(map->l_next);
	}
	return found;
}

static const struct link_map *last_library(void)
{
	const struct link_map *last = NULL, *map = map_at(_r_debug.r_map);

	for (unsigned i = 0; map && i < MAX_LIBRARIES; i++) {
		last = map;
		map = map_at(map->l_next);
	}
	return last;
}

/*
 * In a child the lock works once the list has changed: whoever changed it took the lock. Relaxed:
 * the lock itself orders the list; a thread that sees an older state walks the list without the
 * lock once more.
 */
bool pdn_loader_lock_works(void)
{
	const void *last, *before;

	if (__builtin_expect(__atomic_load_n(&pdn_this_process.loader_lock_works, __ATOMIC_RELAXED),
			     1))
		return true;
	if (pdn_process_prepare())
		return true;
	last = last_library();
	before = __atomic_exchange_n(&pdn_this_process.last_library, last, __ATOMIC_RELAXED);
	if (!before || before == last)
		return false;
	__atomic_store_n(&pdn_this_process.loader_lock_works, 1, __ATOMIC_RELAXED);
	return true;
}

/* ---- all libraries --------------------------------------------------------------------------- */

struct walk {
	pdn_is_wanted *is;
	void *arg;
	struct pdn_loaded *library;
	unsigned index;
};

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct walk *walk = arg;
	struct pdn_loaded *library = walk->library;

	(void)size;
	library->behind_us |= library->is_ours;
	library->at_start = pdn_was_at_start(walk->index++);
	read_library(library, info);
	return walk->is(library, walk->arg);
}

bool pdn_find_loaded(struct pdn_loaded *found, pdn_is_wanted *is, void *arg)
{
	struct walk walk = {.is = is, .arg = arg, .library = found};
	int error = errno;
	bool is_there;

	*found = (struct pdn_loaded){0};
	is_there = pdn_loader_lock_works() ? pdn_loader_of_libc()->dl_iterate_phdr(look_at, &walk)
					   : walk_list(look_at, &walk);
	errno = error;
	return is_there;
}
