/* SPDX-License-Identifier: MIT */
/* Finding the object that a call of the loader comes from. */
#define _GNU_SOURCE
#include "asker.h"

#include <dlfcn.h>
#include <stddef.h>

#include "library.h"

extern const char __ehdr_start; /* of this library; the linker's */

/*
 * The objects that the program started with are the first of the loader's list, in the order in which names
 * are looked up, and are never unloaded: so these can be gone through without the loader's lock.
 */
static struct link_map *next_at_start(const struct link_map *map, unsigned *index)
{
	return pd_was_at_start(++*index) ? map->l_next : NULL;
}

static void find_place(struct pd_asker *asker)
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
		passed_us |= map->l_addr == (uintptr_t)&__ehdr_start;
	}
}

void pd_asker_find(struct pd_asker *asker, const void *caller)
{
	Dl_info info;

	*asker = (struct pd_asker){0};
	if (!dladdr1(caller, &info, (void **)&asker->map, RTLD_DL_LINKMAP) || !asker->map) {
		asker->map = NULL;
		return;
	}
	asker->readable = pd_elf_read(&asker->elf, asker->map->l_addr, asker->map->l_ld);
	find_place(asker);
}

bool pd_asker_defines(const struct pd_asker *asker, const char *name)
{
	return asker->readable && pd_elf_defines(&asker->elf, name);
}

void *pd_asker_next(const struct pd_asker *asker, const char *name)
{
	bool passed = false;
	unsigned index = 0;

	if (!asker->map || pd_asker_defines(asker, name))
		return NULL;
	if (!asker->at_start)
		return asker->map;
	for (struct link_map *map = _r_debug.r_map; map; map = next_at_start(map, &index)) {
		struct pd_elf elf;

		if (passed && pd_elf_read(&elf, map->l_addr, map->l_ld) &&
		    pd_elf_defines(&elf, name))
			return map;
		passed |= map == asker->map;
	}
	return NULL;
}
