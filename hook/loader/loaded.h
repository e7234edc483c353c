/* SPDX-License-Identifier: MIT */
/*
 * Walking the loaded libraries of the process, the program first, in the order of loading.
 *
 * The C library's dl_iterate_phdr() takes a lock. Another thread may hold that lock while this one
 * forks, and in the child it then stays held for ever: fork() resets other locks of the loader, but
 * this one only since glibc 2.37, and _Fork() and clone() reset none. The program's own calls in
 * the child get along without that lock, so ours must, too.
 *
 * A child therefore walks the loader's list without the lock. Another thread of the parent may have
 * been changing the list at the fork: a library is appended when it is complete, but an unloaded
 * one stays in the list for a moment after its memory is unmapped. So each library is validated
 * before its headers are used. Once the list has changed in the child, its lock works, and is taken
 * from then on.
 */
#ifndef PDN_LOADED_H
#define PDN_LOADED_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

typedef int pdn_look_at_library(struct dl_phdr_info *info, size_t size, void *arg);

/*
 * As dl_iterate_phdr(), until look() returns something other than 0. Of `info` only the address and
 * the program headers are valid; a library that can't be validated has no headers. Keeps errno.
 */
int pdn_each_library(pdn_look_at_library *look, void *arg);

static inline ElfW(Addr) pdn_our_base(void)
{
	extern const char __ehdr_start; /* the linker's */

	return (uintptr_t)&__ehdr_start;
}

static inline bool pdn_is_this_library(ElfW(Addr) base)
{
	return base == pdn_our_base();
}

/* Of a library that such a walk has come to. */
struct pdn_elf;
const ElfW(Dyn) * pdn_dynamic_section(const struct dl_phdr_info *info); /* NULL: it has none */
bool pdn_library_read(const struct dl_phdr_info *info, struct pdn_elf *elf);
bool pdn_is_in_library(const struct dl_phdr_info *info, const void *address);
void pdn_library_extent(const struct dl_phdr_info *info, uintptr_t *begin, uintptr_t *end);

/* The same of an entry of the loader's list; without headers if they can't be validated. */
struct dl_phdr_info pdn_library_headers(const struct link_map *map);

/* Does the loader's lock work? Not in a child that may have been forked while it was taken. */
bool pdn_loader_lock_works(void);

#pragma GCC visibility pop

#endif
