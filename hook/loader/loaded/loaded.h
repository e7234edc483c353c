/* SPDX-License-Identifier: MIT */
/*
 * The loaded libraries of the process: a walk over them, the program first, in the order of
 * loading, and what is asked of the loader about them.
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

#include "hook/loader/loaded/symtab.h"

#pragma GCC visibility push(hidden)

/* A library that a walk has come to. */
struct pdn_loaded {
	struct pdn_elf elf; /* its base always, the rest if `readable` */
	bool readable;
	bool is_ours, behind_us;
	bool at_start;		     /* it was there before main */
	const ElfW(Phdr) * segments; /* none where they can't be validated */
	unsigned count;
};

/*
 * The first loaded library for which is() returns true. Keeps errno. While is() runs nothing is
 * unloaded, and it may look for others itself.
 */
typedef bool pdn_is_wanted(const struct pdn_loaded *library, void *arg);
bool pdn_find_loaded(struct pdn_loaded *found, pdn_is_wanted *is, void *arg);

/* The same of an entry of the loader's list. */
struct pdn_loaded pdn_loaded_at(const struct link_map *map);

pdn_is_wanted pdn_has_address; /* the argument: is it in the library? */

struct pdn_extent {
	uintptr_t begin, end;
};
struct pdn_extent pdn_loaded_extent(const struct pdn_loaded *library);

/* The libraries that are loaded now are there before main, and stay. */
void pdn_loaded_at_start(void);

/* Was the library with this index, in the order of loading, there before main? */
bool pdn_was_at_start(unsigned index);

static inline ElfW(Addr) pdn_our_base(void)
{
	extern const char __ehdr_start; /* the linker's */

	return (uintptr_t)&__ehdr_start;
}

static inline bool pdn_is_this_library(ElfW(Addr) base)
{
	return base == pdn_our_base();
}

/*
 * The library at an address; NULL: none. A library of this file, if one is loaded: opened once
 * more, or its handle while somebody else has it open. These wait for the loader's lock, and with
 * it for another thread's dlopen(). They keep errno, and leave no error for dlerror().
 */
struct link_map *pdn_map_of(const void *address);
void *pdn_open_loaded(const char *file);
void *pdn_handle_of(const char *file);

/* Does the loader's lock work? Not in a child that may have been forked while it was taken. */
bool pdn_loader_lock_works(void);

#pragma GCC visibility pop

#endif
