/* SPDX-License-Identifier: MIT */
/*
 * Who asks the loader: which object of the process a call comes from, and where it stands in the
 * order in which names are looked up. What RTLD_NEXT means depends on that, and whether the answer
 * may be ours.
 *
 * Nothing here goes through what a sanitizer replaces before it is ready: see loader.c.
 */
#ifndef PD_ASKER_H
#define PD_ASKER_H

#include <link.h>
#include <stdbool.h>

#include "hook/loader/symtab.h"

#pragma GCC visibility push(hidden)

/* Before main: what is loaded now is there for good, in the order in which names are looked up. */
void pd_objects_at_start(void);

/* Was the object with this index, in the order in which they were loaded, there before main? */
bool pd_was_at_start(unsigned index);

struct pd_asker {
	struct link_map *map; /* NULL: the caller lies in no object */
	struct pd_elf elf;
	bool readable;	 /* elf is valid */
	bool is_program; /* the main program */
	bool at_start;	 /* it came with the program, or was preloaded */
	bool before_us;	 /* and stands before us in that order */
};

/* Takes the loader's lock for a moment, as the look-up that it is asked for does. */
void pd_asker_find(struct pd_asker *asker, const void *caller);

/* Does the asking object define a function of this name itself? Then it is an interposer of it. */
bool pd_asker_defines(const struct pd_asker *asker, const char *name);

/*
 * The object in which a look-up finds what the asker means by RTLD_NEXT; NULL where that is
 * nothing, and where only the loader can tell.
 *
 * Behind an object that came with the program these are the objects that follow it. One that was
 * opened later has a list of its own, which begins with it; one that was brought along by such a
 * one has that one's, which nobody but the loader knows.
 */
struct link_map *pd_asker_next(const struct pd_asker *asker, const char *name);

#pragma GCC visibility pop

#endif
