/* SPDX-License-Identifier: MIT */
/* Finding the library that a call of the loader comes from, and its place in the search order. */
#define _GNU_SOURCE
#include "hook/loader/asker.h"

#include <dlfcn.h>
#include <stddef.h>

#include "cache/base/visible.h"
#include "hook/hook.h"
#include "hook/loader/definition.h"
#include "hook/loader/loaded.h"
#include "hook/loader/yield.h"

static PDN_AT_LOAD unsigned
	at_start; /* how many libraries were loaded before main, the program included */

PDN_STARTS void pdn_libraries_at_start(void)
{
	unsigned count = 0;

	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next)
		count++;
	at_start = count;
	pdn_yield_at_load();
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

PDN_STARTS bool pdn_is_first_definition(const char *name)
{
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		struct pdn_elf elf; /* complete or not */

		if (pdn_is_this_library(map->l_addr))
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

		if (pdn_is_this_library(map->l_addr))
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
		passed_us |= pdn_is_this_library(map->l_addr);
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
		passed_us |= pdn_is_this_library(map->l_addr);
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

/*
 * Was it opened itself, or loaded because another library needs it? Only an opened one has a search
 * list of its own.
 */
static bool may_be_brought_along(const struct pdn_asker *asker)
{
	return asker->readable && *asker->elf.soname && pdn_is_needed(asker->elf.soname);
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
