/* SPDX-License-Identifier: MIT */
/*
 * A process may have several libraries that define a name which we export: copies of libibverbs in
 * wheels and plug-ins, shims that forward the calls. Our export stands in for one of them: for the
 * one that its caller would have been bound to without us.
 *
 * The loader looks a name up among the libraries that the program started with, and then in the
 * library that makes the call, in those that it needs, and so on; or in those of the library that
 * was opened, if the caller was loaded because that one needs it. Where several libraries that were
 * opened define the name, that order is followed by what each library says that it needs. (A
 * library that was opened with RTLD_GLOBAL is not told apart from others.)
 */
#ifndef PDN_DEFINITION_H
#define PDN_DEFINITION_H

#include <stdbool.h>

#include "hook/loader/library.h"

#pragma GCC visibility push(hidden)

/*
 * The function that the code at `caller`, which has come to our export of this name, would have
 * come to without us; NULL: there is none. Without the loader's lock; keeps errno.
 *
 * *behind: where that one belongs to an interposer that the program started with, the function of
 * the library that defines `mark`, too, among those that follow. Else NULL.
 */
void *pdn_definition_for(const void *caller, const char *name, const char *mark, void **behind);

/*
 * Answers for places in the code that call, until the program unloads a library; any address may be
 * one, also NULL. `number`: of what is asked about.
 */
bool pdn_answer_known(const void *caller, unsigned number, void **answer);
void pdn_answer_keep(const void *caller, unsigned number, void *answer);
void pdn_answers_forget(void);

/* The same, also where that is a variable of the library's. */
void *pdn_definition_of_any_kind(const void *caller, const char *name);

/* The function of this name, if one library other than ours defines it, and no other one. */
void *pdn_only_definition(const char *name);

/* Does a loaded library name this one among those that it needs? */
bool pdn_is_needed(const char *soname);

/* Does a library other than ours define it, in any version? */
bool pdn_is_defined_elsewhere(const char *name);

#pragma GCC visibility pop

#endif
