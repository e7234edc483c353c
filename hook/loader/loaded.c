/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "hook/loader/loaded.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/base/safe_read.h"
#include "cache/base/process.h"

enum { PAGE = 4096 /* or a part of one */, MOST = 16384 /* objects; more are a circle */ };

static bool has_header(const struct link_map *map)
{
	const unsigned char *at = (const unsigned char *)map->l_addr;

	return map->l_addr % PAGE == 0 && pd_is_readable(map->l_addr) && at[0] == ELFMAG0 &&
	       at[1] == ELFMAG1 && at[2] == ELFMAG2 && at[3] == ELFMAG3;
}

/*
 * Is the object in memory that the loader's list has at this place? An object's memory goes as a
 * whole. Something else that is there by now has no dynamic section at the same place.
 */
static bool is_whole(const struct link_map *map, const struct dl_phdr_info *info)
{
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return map->l_addr + info->dlpi_phdr[i].p_vaddr == (uintptr_t)map->l_ld &&
			       pd_is_readable((uintptr_t)map->l_ld);
	return false;
}

static struct dl_phdr_info describe(const struct link_map *map)
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

/* NULL behind the last one. */
static const struct link_map *object_at(const struct link_map *map)
{
	return pd_is_readable((uintptr_t)map) ? map : NULL;
}

static int go_through_list(pd_look_at_object *look, void *arg)
{
	const struct link_map *map = object_at(_r_debug.r_map);
	int found = 0;

	for (unsigned i = 0; map && i < MOST && !found; i++) {
		struct dl_phdr_info info = describe(map);

		found = look(&info, sizeof(info), arg);
		map = object_at(map->l_next);
	}
	return found;
}

static const struct link_map *last_object(void)
{
	const struct link_map *last = NULL, *map = object_at(_r_debug.r_map);

	for (unsigned i = 0; map && i < MOST; i++) {
		last = map;
		map = object_at(map->l_next);
	}
	return last;
}

/*
 * Relaxed: the lock itself orders what it is for; and whoever sees an older state goes without the
 * lock once more.
 */
static bool lock_works(void)
{
	const void *last, *before;

	if (__builtin_expect(__atomic_load_n(&pd_here.loader_lock_works, __ATOMIC_RELAXED), 1))
		return true;
	last = last_object();
	before = __atomic_exchange_n(&pd_here.last_object, last, __ATOMIC_RELAXED);
	if (!before || before == last)
		return false;
	__atomic_store_n(&pd_here.loader_lock_works, 1, __ATOMIC_RELAXED);
	return true;
}

int pd_each_object(pd_look_at_object *look, void *arg)
{
	int error = errno;
	int found = lock_works() ? dl_iterate_phdr(look, arg) : go_through_list(look, arg);

	errno = error;
	return found;
}
