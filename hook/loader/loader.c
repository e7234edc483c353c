/* SPDX-License-Identifier: MIT */
/*
 * The loader's own functions. We export dlsym, dlvsym, dlopen, dlmopen and dlclose, so that a call
 * of ours by name would come back to us; the C library's are therefore looked up by hand, and with
 * its dlsym those that come next after us, which may be another interposer's.
 *
 * The first dlsym of a process may come from a sanitizer's runtime that is not ready yet, and that
 * stands before much of the C library. So nothing here calls a function of the C library by name,
 * and this file, symtab.c and lookup.c are never instrumented (build.mk).
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "hook/loader/symtab.h"
#include "hook/hook.h"

/* Before glibc 2.34 the loader's functions were in a library of their own. */
static bool is_libc(const char *soname)
{
	return pd_elf_same(soname, "libc.so.6") || pd_elf_same(soname, "libdl.so.2");
}

/*
 * A function of the C library, past every interposer; NULL when it has none of that name. The
 * loader's list is read without its lock. Both libraries came with the program, or with us, and are
 * never unloaded; what is loaded later is appended behind them.
 */
static void *libc_function(const char *name)
{
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		struct pd_elf object;
		void *found;

		if (!pd_elf_read(&object, map->l_addr, map->l_ld) || !is_libc(object.soname))
			continue;
		found = pd_elf_find(&object, name);
		if (found)
			return found;
	}
	return NULL;
}

typedef void *dlsym_function(void *, const char *);

/*
 * The next definition after us, whoever it is. Asked by the C library's dlsym and not by a version:
 * an interposer's definition has none, and dlvsym passes over that in an object that has versions
 * of others.
 */
static void *next(dlsym_function *look, const char *name)
{
	void *found = look ? look(RTLD_NEXT, name) : NULL;

	return found ? found : libc_function(name);
}

static void fill(struct pd_loader *loader, dlsym_function *look)
{
	void **slots[] = {(void **)&loader->dlsym, (void **)&loader->dlvsym,
			  (void **)&loader->dlopen, (void **)&loader->dlmopen,
			  (void **)&loader->dlclose};
	static const char *const names[] = {"dlsym", "dlvsym", "dlopen", "dlmopen", "dlclose"};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		__atomic_store_n(slots[i], look ? next(look, names[i]) : libc_function(names[i]),
				 __ATOMIC_RELAXED);
}

static struct pd_loader behind_us, of_libc;

/* Threads that come here at once find the same. */
static void find_both(void)
{
	static bool ready;

	/* Acquire pairs with the release below: with it both tables are there. */
	if (__builtin_expect(__atomic_load_n(&ready, __ATOMIC_ACQUIRE), 1))
		return;
	fill(&of_libc, NULL);
	fill(&behind_us, of_libc.dlsym);
	__atomic_store_n(&ready, true, __ATOMIC_RELEASE);
}

const struct pd_loader *pd_loader(void)
{
	find_both();
	return &behind_us;
}

const struct pd_loader *pd_loader_of_libc(void)
{
	find_both();
	return &of_libc;
}
