/* SPDX-License-Identifier: MIT */
/*
 * The loader's own functions. We export dlsym, dlvsym, dlopen, dlmopen and dlclose, so a call by
 * name from here would come back to us. The C library's functions are therefore looked up in its
 * symbol table, and with its dlsym the next definitions behind us, which may be an interposer's.
 *
 * The first dlsym of a process may come from a sanitizer's runtime that is not ready yet and that
 * replaces much of the C library. So nothing here calls a function of the C library by name, and
 * this file, symtab.c and lookup.c are never instrumented (build.mk).
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "hook/loader/symtab.h"
#include "hook/hook.h"

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

static void fill(struct pdn_loader *loader, dlsym_function *look)
{
	void **slots[] = {(void **)&loader->dlsym,   (void **)&loader->dlvsym,
			  (void **)&loader->dlopen,  (void **)&loader->dlmopen,
			  (void **)&loader->dlclose, (void **)&loader->dlerror,
			  (void **)&loader->dladdr1, (void **)&loader->dl_iterate_phdr};
	static const char names[][16] = {"dlsym",   "dlvsym",  "dlopen",  "dlmopen",
					 "dlclose", "dlerror", "dladdr1", "dl_iterate_phdr"};

	for (unsigned i = 0; i < (look ? 5 : sizeof(names) / sizeof(names[0])); i++)
		__atomic_store_n(slots[i],
				 look ? next(look, names[i]) : pdn_libc_function(names[i]),
				 __ATOMIC_RELAXED);
}

static struct pdn_loader behind_us, of_libc;

/* Threads that come here at the same time find the same functions. */
static void find_both(void)
{
	static bool ready;

	/* Acquire pairs with the release below: both tables are filled. */
	if (__builtin_expect(__atomic_load_n(&ready, __ATOMIC_ACQUIRE), 1))
		return;
	fill(&of_libc, NULL);
	fill(&behind_us, of_libc.dlsym);
	__atomic_store_n(&ready, true, __ATOMIC_RELEASE);
}

const struct pdn_loader *pdn_loader(void)
{
	find_both();
	return &behind_us;
}

const struct pdn_loader *pdn_loader_of_libc(void)
{
	find_both();
	return &of_libc;
}
