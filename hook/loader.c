/* SPDX-License-Identifier: MIT */
/*
 * The loader's own functions. We export dlsym, dlvsym, dlopen and dlclose, so that a call of ours by name
 * would come back to us; the C library's dlvsym is therefore looked up by hand, and the others with it:
 * the next definition after us, which may be another interposer's.
 *
 * The first dlsym of a process may come from a sanitizer's runtime that is not ready yet, and that
 * stands before much of the C library. So nothing here calls a function of the C library by name, and
 * this file, symtab.c and lookup.c are never instrumented (build.mk).
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "symtab.h"
#include "hook.h"

/* Before glibc 2.34 the loader's functions were in a library of their own. */
static bool is_libc(const char *soname)
{
	return pd_elf_same(soname, "libc.so.6") || pd_elf_same(soname, "libdl.so.2");
}

/*
 * A function of the C library, past every interposer; NULL when it has none of that name.
 * The loader's list is read without its lock. Both libraries came with the program, or with us, and are
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

/* The versions that the loader's functions have had: glibc 2.34 and newer, then older. */
#if defined(__x86_64__)
#define OLD_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLD_VERSION "GLIBC_2.17"
#else
#error "pindown knows the loader of x86-64 and aarch64 only"
#endif

typedef void *dlvsym_function(void *, const char *, const char *);

static void *next(dlvsym_function *look, const char *name)
{
	void *found = look ? look(RTLD_NEXT, name, "GLIBC_2.34") : NULL;

	if (!found && look)
		found = look(RTLD_NEXT, name, OLD_VERSION);
	return found ? found : libc_function(name);
}

/* Threads that come here at once find the same. */
const struct pd_loader *pd_loader(void)
{
	static struct pd_loader loader;
	static bool ready;
	dlvsym_function *look;

	/* Acquire pairs with the release below: with it the four are there. */
	if (__builtin_expect(__atomic_load_n(&ready, __ATOMIC_ACQUIRE), 1))
		return &loader;
	look = (dlvsym_function *)libc_function("dlvsym");
	__atomic_store_n((void **)&loader.dlsym, next(look, "dlsym"), __ATOMIC_RELAXED);
	__atomic_store_n((void **)&loader.dlvsym, next(look, "dlvsym"), __ATOMIC_RELAXED);
	__atomic_store_n((void **)&loader.dlopen, next(look, "dlopen"), __ATOMIC_RELAXED);
	__atomic_store_n((void **)&loader.dlclose, next(look, "dlclose"), __ATOMIC_RELAXED);
	__atomic_store_n(&ready, true, __ATOMIC_RELEASE);
	return &loader;
}
