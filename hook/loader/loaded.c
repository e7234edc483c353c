/* SPDX-License-Identifier: MIT */
/* Walking the loaded libraries, also in a child in which the loader's lock is stuck: loaded.h. */
#define _GNU_SOURCE
#include "hook/loader/loaded.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/base/safe_read.h"
#include "cache/base/process.h"
#include "hook/hook.h"
#include "hook/loader/symtab.h"

enum {
	PAGE = 4096,	      /* or a part of a page, where pages are larger */
	MAX_LIBRARIES = 16384 /* a list with more is a circle */
};

static bool has_header(const struct link_map *map)
{
	const unsigned char *at = (const unsigned char *)map->l_addr;

	return map->l_addr % PAGE == 0 && pdn_is_readable(map->l_addr) && at[0] == ELFMAG0 &&
	       at[1] == ELFMAG1 && at[2] == ELFMAG2 && at[3] == ELFMAG3;
}

/*
 * Does the memory still hold the library that the loader's list has here? A library's memory is
 * unmapped as a whole, and another mapping in its place has no dynamic section at that address.
 */
static bool is_whole(const struct link_map *map, const struct dl_phdr_info *info)
{
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return map->l_addr + info->dlpi_phdr[i].p_vaddr == (uintptr_t)map->l_ld &&
			       pdn_is_readable((uintptr_t)map->l_ld);
	return false;
}

struct dl_phdr_info pdn_library_headers(const struct link_map *map)
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
static const struct link_map *map_at(const struct link_map *map)
{
	return pdn_is_readable((uintptr_t)map) ? map : NULL;
}

static int walk_list(pdn_look_at_library *look, void *arg)
{
	const struct link_map *map = map_at(_r_debug.r_map);
	int found = 0;

	for (unsigned i = 0; map && i < MAX_LIBRARIES && !found; i++) {
		struct dl_phdr_info info = pdn_library_headers(map);

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
 * In a child: once its list has changed, since a change takes the lock. Relaxed: the lock itself
 * orders the list; a thread that sees an older state walks the list without the lock once more.
 */
bool pdn_loader_lock_works(void)
{
	const void *last, *before;

	if (__builtin_expect(__atomic_load_n(&pdn_here.loader_lock_works, __ATOMIC_RELAXED), 1))
		return true;
	if (pdn_process_prepare())
		return true;
	last = last_library();
	before = __atomic_exchange_n(&pdn_here.last_library, last, __ATOMIC_RELAXED);
	if (!before || before == last)
		return false;
	__atomic_store_n(&pdn_here.loader_lock_works, 1, __ATOMIC_RELAXED);
	return true;
}

int pdn_each_library(pdn_look_at_library *look, void *arg)
{
	int error = errno;
	int found = pdn_loader_lock_works() ? pdn_loader_of_libc()->dl_iterate_phdr(look, arg)
					    : walk_list(look, arg);

	errno = error;
	return found;
}

/* ---- a library that the walk has come to ----------------------------------------------------- */

const ElfW(Dyn) * pdn_dynamic_section(const struct dl_phdr_info *info)
{
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	return NULL;
}

bool pdn_library_read(const struct dl_phdr_info *info, struct pdn_elf *elf)
{
	const ElfW(Dyn) *dynamic = pdn_dynamic_section(info);

	return dynamic && pdn_elf_read(elf, info->dlpi_addr, dynamic);
}

void pdn_library_extent(const struct dl_phdr_info *info, uintptr_t *begin, uintptr_t *end)
{
	*begin = UINTPTR_MAX;
	*end = 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type != PT_LOAD)
			continue;
		if (at < *begin)
			*begin = at;
		if (at + segment->p_memsz > *end)
			*end = at + segment->p_memsz;
	}
}

bool pdn_is_in_library(const struct dl_phdr_info *info, const void *address)
{
	uintptr_t begin, end;

	pdn_library_extent(info, &begin, &end);
	return (uintptr_t)address - begin < end - begin;
}
