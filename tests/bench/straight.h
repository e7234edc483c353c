/* SPDX-License-Identifier: MIT */
/* Finds a function in the symbol table of its library, past every wrapper. */
#ifndef BENCH_STRAIGHT_H
#define BENCH_STRAIGHT_H

#include <link.h>

#include "hook/loader/loaded/symtab.h"
#include "bench.h"

struct straight_search {
	const char *soname;
	struct pdn_elf elf;
};

static inline int is_the_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct straight_search *search = arg;

	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC &&
		    pdn_elf_read(&search->elf, info->dlpi_addr,
				 (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr)) &&
		    pdn_elf_same(search->elf.soname, search->soname))
			return 1;
	return 0;
}

static inline void *in_library(const char *soname, const char *name)
{
	struct straight_search search = {.soname = soname};
	void *found =
		dl_iterate_phdr(is_the_library, &search) ? pdn_elf_find(&search.elf, name) : NULL;

	if (!found)
		stop("a library has not all functions that are measured", 0);
	return found;
}

#endif
