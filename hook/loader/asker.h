/* SPDX-License-Identifier: MIT */
/*
 * The asker: the library that a call of the loader comes from, or the program itself, and its place
 * in the order in which names are looked up. The meaning of RTLD_NEXT depends on that place, and so
 * does whether one of our wrappers may be the answer.
 *
 * Nothing here calls a function that a sanitizer replaces, since its runtime may not be ready yet:
 * see loader.c.
 */
#ifndef PDN_ASKER_H
#define PDN_ASKER_H

#include <link.h>
#include <stdbool.h>

#include "hook/loader/symtab.h"

#pragma GCC visibility push(hidden)

/* Before main: the libraries loaded now stay, in the order in which names are looked up. */
void pdn_libraries_at_start(void);

/*
 * Is our definition of this name the first one, which the program's calls are bound to? It is so if
 * pindown is preloaded, or linked before the library whose calls it wraps; in a process that loaded
 * it later it is not. To be asked at load.
 */
bool pdn_is_first_definition(const char *name);

/*
 * Of a library that the loader has put before us, in our name space, and that defines both names:
 * its file. NULL: there is none. To be asked at load.
 */
const char *pdn_library_before_us(const char *name, const char *other_name);

/*
 * The next definition behind us among those libraries; NULL: none. In signal handlers, too: nothing
 * is locked or allocated.
 */
void *pdn_next_definition(const char *name);

/* Was the library with this index, in the order of loading, there before main? */
bool pdn_was_at_start(unsigned index);

struct pdn_asker {
	struct link_map *map; /* NULL: the caller lies in no library */
	struct pdn_elf elf;
	bool readable;	 /* elf is valid */
	bool is_program; /* the main program */
	bool at_start;	 /* it came with the program, or was preloaded */
	bool before_us;	 /* and comes before us in that order */
};

/* Takes the loader's lock for a moment, as the look-up that it is called for does. */
void pdn_asker_find(struct pdn_asker *asker, const void *caller);

/* Does the asking library define a function of this name itself? Then it is an interposer of it. */
bool pdn_asker_defines(const struct pdn_asker *asker, const char *name);

/*
 * The library in which the asker's look-up by RTLD_NEXT finds this name. NULL: in none, or only the
 * loader can tell.
 *
 * For a library that came with the program, RTLD_NEXT searches the libraries that follow it. A
 * library that was opened later has a search list of its own, which begins with itself. One that
 * was loaded because such a library needs it is searched from in that library's list, which only
 * the loader knows.
 */
struct link_map *pdn_asker_next(const struct pdn_asker *asker, const char *name);

#pragma GCC visibility pop

#endif
