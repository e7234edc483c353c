/* SPDX-License-Identifier: MIT */
/*
 * Which definition of a name a call or a look-up leads to.
 *
 * A process may have several libraries that define a name which we export: copies of libibverbs in
 * wheels and plug-ins, shims that forward the calls. Our export stands in for one of them: for the
 * one that its caller would have been bound to without us.
 *
 * The loader looks a name up among the libraries that the program started with, and then in the
 * library that makes the call, in those that it needs, and so on; or in those of the library that
 * was opened, if the caller was loaded because that one needs it. Where several libraries that were
 * opened define the name, that order is followed by what each library says that it needs. A known
 * limit: a library that was opened with RTLD_GLOBAL is treated as any other.
 *
 * Nothing here calls a function that a sanitizer replaces, since its runtime may not be ready yet:
 * see loaded.c.
 */
#ifndef PDN_SCOPE_H
#define PDN_SCOPE_H

#include <link.h>
#include <stdbool.h>

#include "hook/loader/loaded/symtab.h"

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

/*
 * The asker: the library that a call of the loader comes from, or the program itself, and its place
 * in the order in which names are looked up. The meaning of RTLD_NEXT depends on that place, and so
 * does whether one of our wrappers may be the answer.
 */
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

/*
 * The function that the code at `caller`, which has come to our export of this name, would have
 * come to without us; NULL: there is none. Without the loader's lock; keeps errno.
 *
 * *behind: of the libraries behind us that the program started with, the function of the first that
 * defines `mark`, too. It is the result itself if no interposer comes before that one. NULL: none.
 */
void *pdn_definition_for(const void *caller, const char *name, const char *mark, void **behind);

/* The same, also where that is a variable of the library's. */
void *pdn_definition_of_any_kind(const void *caller, const char *name);

/*
 * Answers for places in the code that call, until the program unloads a library; any address may be
 * one, also NULL. `number` is that of the function: enum pdn_call, or PDN_CALLS + enum pdn_verb.
 */
bool pdn_answer_known(const void *caller, unsigned number, void **answer);
void pdn_answer_keep(const void *caller, unsigned number, void *answer);
void pdn_answers_forget(void);

/* The function of this name, if one library other than ours defines it, and no other one. */
void *pdn_only_definition(const char *name);

#pragma GCC visibility pop

#endif
