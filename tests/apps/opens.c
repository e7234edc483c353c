/* SPDX-License-Identifier: MIT */
/* A dlopen() that finds the C library's in its table of symbols, as a sanitizer's runtime does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "hook/loader/loaded/symtab.h"

static void *of_libc(const char *name)
{
	void *found = NULL;

	for (const struct link_map *map = _r_debug.r_map; map && !found; map = map->l_next) {
		struct pdn_elf elf;

		if (pdn_elf_read(&elf, map->l_addr, map->l_ld) &&
		    (!strcmp(elf.soname, "libc.so.6") || !strcmp(elf.soname, "libdl.so.2")))
			found = pdn_elf_find(&elf, name);
	}
	return found;
}

void *dlopen(const char *file, int flags)
{
	void *(*real)(const char *, int) = of_libc("dlopen");
	const char *slash = file ? strrchr(file, '/') : NULL;

	if (slash)
		printf("opened past all others: %s\n", slash + 1);
	return real(file, flags);
}
