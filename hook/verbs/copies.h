/* SPDX-License-Identifier: MIT */
/*
 * A process may have several copies of libibverbs, each with its libmlx5: the system's, those in
 * wheels, those linked into plug-ins. What one has made is changed and ended by its functions.
 *
 * A copy is noticed when a call or a look-up first leads to it. We make registrations with the
 * first PDN_COPIES of them; a call for a later one, or for a shim, goes there untouched.
 */
#ifndef PDN_COPIES_H
#define PDN_COPIES_H

#include "hook/hook.h"
#include "hook/loader/loaded/scope.h"
#include "hook/loader/library.h"
#include "hook/verbs/verbs.h"

#pragma GCC visibility push(hidden)

/* How a call has come to us: by our export, or by the answer to a look-up. */
enum pdn_road { PDN_LINKED, PDN_LOOKED_UP, PDN_ROADS };

extern struct pdn_copy {
	struct pdn_library library[2]; /* libibverbs and its libmlx5 */
	bool is_used;
	void *reals[PDN_ROADS][PDN_VERBS]; /* loaded relaxed: hook/cuda/find.c */
} pdn_copies[PDN_COPIES];

/* Which copy's function a call is meant for, and how it came to us. */
struct pdn_target {
	struct pdn_copy *copy;
	enum pdn_road road;
};

static inline unsigned pdn_copy_number(const struct pdn_copy *copy)
{
	return (unsigned)(copy - pdn_copies);
}

/*
 * The function that a call from this place is meant for; NULL: the first copy's, so that a process
 * with one copy compares nothing. Its library becomes a copy if there is room for one. Does not
 * take the loader's lock.
 */
void *pdn_copy_find(enum pdn_verb verb, const void *caller);

/* The same, from the answers that are kept. */
static inline void *pdn_copy_beside(enum pdn_verb verb, const void *caller)
{
	void *function;

	if (__builtin_expect(pdn_answer_known(caller, PDN_CALLS + verb, &function), 1))
		return function;
	return pdn_copy_find(verb, caller);
}

/* The copy that such a function belongs to; NULL: it is none's. */
struct pdn_copy *pdn_copy_with(enum pdn_verb verb, const void *function);

/* The copy whose own function a look-up has found, if that is the one to answer. Else NULL. */
struct pdn_copy *pdn_copy_looked_up(enum pdn_verb verb, void *found);

/* The copy's function, or that of an interposer which came with it. NULL: there is none. */
void *pdn_copy_function(struct pdn_copy *copy, enum pdn_verb verb);

static inline void *pdn_copy_linked(struct pdn_copy *copy, enum pdn_verb verb)
{
	void *real = __atomic_load_n(&copy->reals[PDN_LINKED][verb], __ATOMIC_RELAXED);

	return PDN_UNLIKELY(!real) ? pdn_copy_function(copy, verb) : real;
}

static inline void *pdn_copy_real(struct pdn_target to, enum pdn_verb verb)
{
	return to.road == PDN_LINKED
		       ? pdn_copy_linked(to.copy, verb)
		       : __atomic_load_n(&to.copy->reals[to.road][verb], __ATOMIC_RELAXED);
}

#pragma GCC visibility pop

#endif
