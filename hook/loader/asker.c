/* SPDX-License-Identifier: MIT */
/* Finding the library that a call of the loader comes from, and its place in the search order. */
#define _GNU_SOURCE
#include "hook/loader/asker.h"

#include <dlfcn.h>
#include <stddef.h>

#include "cache/base/visible.h"
#include "hook/hook.h"
#include "hook/loader/loaded.h"

extern const char __ehdr_start; /* of this library; the linker's */

static PDN_AT_LOAD unsigned
	at_start; /* how many libraries were loaded before main, the program included */

PDN_STARTS void pdn_libraries_at_start(void)
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

/*
 * The libraries that the program started with come first in the loader's list, in the order in
 * which names are looked up, and are never unloaded: they can be walked without the loader's lock.
 */
static struct link_map *next_at_start(const struct link_map *map, unsigned *index)
{
	return pdn_was_at_start(++*index) ? map->l_next : NULL;
}

static bool is_us(const struct link_map *map)
{
	return map->l_addr == (uintptr_t)&__ehdr_start;
}

PDN_STARTS bool pdn_is_first_definition(const char *name)
{
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		struct pdn_elf elf; /* complete or not */

		if (is_us(map))
			return true;
		pdn_elf_read(&elf, map->l_addr, map->l_ld);
		if (pdn_elf_defines(&elf, name))
			return false;
	}
	return false;
}

const char *pdn_library_before_us(const char *name, const char *other_name)
{
	const char *found = NULL;

	for (const struct link_map *map = _r_debug.r_map->l_next; map; map = map->l_next) {
		struct pdn_elf elf; /* complete or not */

		if (is_us(map))
			return found;
		pdn_elf_read(&elf, map->l_addr, map->l_ld);
		if (!found && pdn_elf_defines(&elf, name) && pdn_elf_defines(&elf, other_name))
			found = map->l_name;
	}
	return NULL; /* our list is another one */
}

void *pdn_next_definition(const char *name)
{
	bool passed_us = false;
	unsigned index = 0;
	void *found = NULL;

	for (const struct link_map *map = _r_debug.r_map; map && !found;
	     map = next_at_start(map, &index)) {
		struct pdn_elf elf;

		pdn_elf_read(&elf, map->l_addr, map->l_ld);
		if (passed_us)
			found = pdn_elf_find(&elf, name);
		passed_us |= is_us(map);
	}
	return found;
}

static void find_place(struct pdn_asker *asker)
{
	bool passed_us = false;
	unsigned index = 0;

	asker->is_program = asker->map == _r_debug.r_map;
	for (const struct link_map *map = _r_debug.r_map; map; map = next_at_start(map, &index)) {
		if (map == asker->map) {
			asker->at_start = true;
			asker->before_us = !passed_us;
			return;
		}
		passed_us |= is_us(map);
	}
}

void pdn_asker_find(struct pdn_asker *asker, const void *caller)
{
	Dl_info info;

	*asker = (struct pdn_asker){0};
	if (!pdn_loader_of_libc()->dladdr1(caller, &info, (void **)&asker->map, RTLD_DL_LINKMAP) ||
	    !asker->map) {
		asker->map = NULL;
		return;
	}
	asker->readable = pdn_elf_read(&asker->elf, asker->map->l_addr, asker->map->l_ld);
	find_place(asker);
}

bool pdn_asker_defines(const struct pdn_asker *asker, const char *name)
{
	return asker->readable && pdn_elf_defines(&asker->elf, name);
}

struct search {
	const char *name;
	bool found;
};

/* Does this library name the one that is searched for among those that it needs? */
static int needs(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *search = arg;
	const ElfW(Dyn) *dynamic = NULL;
	struct pdn_elf elf;

	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	if (!pdn_elf_read(&elf, info->dlpi_addr, dynamic))
		return 0;
	for (; dynamic->d_tag != DT_NULL; dynamic++)
		search->found |= dynamic->d_tag == DT_NEEDED &&
				 pdn_elf_same(elf.string + dynamic->d_un.d_val, search->name);
	return search->found;
}

/*
 * Was it opened itself, or loaded because another library needs it? Only an opened one has a search
 * list of its own.
 */
static bool may_be_brought_along(const struct pdn_asker *asker)
{
	struct search search = {.name = asker->readable ? asker->elf.soname : ""};

	if (*search.name)
		pdn_each_library(needs, &search);
	return search.found;
}

static struct link_map *next_of_program(const struct pdn_asker *asker, const char *name)
{
	bool passed = false;
	unsigned index = 0;

	for (struct link_map *map = _r_debug.r_map; map; map = next_at_start(map, &index)) {
		struct pdn_elf elf;

		if (passed && pdn_elf_read(&elf, map->l_addr, map->l_ld) &&
		    pdn_elf_defines(&elf, name))
			return map;
		passed |= map == asker->map;
	}
	return NULL;
}

struct link_map *pdn_asker_next(const struct pdn_asker *asker, const char *name)
{
	if (!asker->map || pdn_asker_defines(asker, name))
		return NULL;
	if (asker->at_start)
		return next_of_program(asker, name);
	return may_be_brought_along(asker) ? NULL : asker->map;
}
