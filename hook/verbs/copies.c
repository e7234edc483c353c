/* SPDX-License-Identifier: MIT */
/* The copies of libibverbs and libmlx5, and which of them a call is meant for: see copies.h. */
#define _GNU_SOURCE
#include "hook/verbs/copies.h"

#include <string.h>

/* libibverbs' own providers call its mark, and each of rdma-core's releases has both. */
#define MARK_VERBS "ibv_cmd_reg_mr"
#define MARK_MLX5  "mlx5dv_is_supported"

struct pdn_copy pdn_copies[PDN_COPIES];

#define EACH(copy)                        \
	(copy) = pdn_copies;              \
	(copy) < &pdn_copies[PDN_COPIES]; \
	(copy)++

static struct pdn_library *library_of(struct pdn_copy *copy, enum pdn_verb verb)
{
	return &copy->library[pdn_verb_is_of_mlx5(verb)];
}

static const char *mark_of(enum pdn_verb verb)
{
	return pdn_verb_is_of_mlx5(verb) ? MARK_MLX5 : MARK_VERBS;
}

static const char *symbol_of(unsigned verb)
{
	return pdn_call_symbol(PDN_CALLS + verb);
}

int pdn_verb_by_symbol(const char *name)
{
	for (int verb = 0; verb < PDN_VERBS; verb++)
		if (!strcmp(symbol_of(verb), name))
			return verb;
	return -1;
}

/* ---- held and gone --------------------------------------------------------------------------- */

void pdn_verbs_use(unsigned copy)
{
	/* Relaxed: seen by the program's dlclose(), which comes after the registration. */
	__atomic_store_n(&pdn_copies[copy].is_used, true, __ATOMIC_RELAXED);
}

/* Registrations that are kept have to end there. */
void pdn_verbs_unloading(void)
{
	struct pdn_copy *copy;

	for (EACH(copy)) {
		if (!__atomic_load_n(&copy->is_used, __ATOMIC_RELAXED))
			continue;
		pdn_library_hold(&copy->library[0]);
		pdn_library_hold(&copy->library[1]);
	}
}

static void forget_if_gone(struct pdn_copy *copy, struct pdn_library *library)
{
	if (!pdn_library_has_gone(library))
		return;
	for (unsigned verb = 0; verb < PDN_VERBS; verb++)
		for (unsigned road = 0; road < PDN_ROADS; road++)
			if (library_of(copy, verb) == library)
				__atomic_store_n(&copy->reals[road][verb], NULL, __ATOMIC_RELAXED);
	pdn_library_forget(library);
}

void pdn_verbs_unloaded(void)
{
	struct pdn_copy *copy;

	for (EACH(copy)) {
		forget_if_gone(copy, &copy->library[0]);
		forget_if_gone(copy, &copy->library[1]);
	}
}

/* ---- which of them --------------------------------------------------------------------------- */

struct pdn_copy *pdn_copy_with(enum pdn_verb verb, const void *function)
{
	struct pdn_copy *copy;

	for (EACH(copy))
		if (pdn_library_has(library_of(copy, verb), function))
			return copy;
	return NULL;
}

/* It becomes one if its library defines the mark, and there are not too many yet. */
static struct pdn_copy *copy_with_verbs(const void *function)
{
	struct pdn_copy *copy;

	for (EACH(copy))
		if (!pdn_library_known(&copy->library[0]) &&
		    pdn_library_is(&copy->library[0], MARK_VERBS, function))
			return copy;
	return NULL;
}

static struct pdn_copy *copy_to_serve(enum pdn_verb verb, const void *function)
{
	struct pdn_copy *copy = pdn_copy_with(verb, function);
	void *behind, *dereg;

	if (copy)
		return copy;
	if (!pdn_verb_is_of_mlx5(verb))
		return copy_with_verbs(function);
	/* libmlx5's regions end by the ibv_dereg_mr of the libibverbs that it belongs to. */
	dereg = pdn_definition_for(function, "ibv_dereg_mr", MARK_VERBS, &behind);
	copy = dereg ? copy_to_serve(PDN_VERB_ibv_dereg_mr, behind ? behind : dereg) : NULL;
	return copy && pdn_library_is(library_of(copy, verb), MARK_MLX5, function) ? copy : NULL;
}

/* Where an interposer is before the copy's, pdn_copy_function() finds it again. */
void *pdn_copy_find(enum pdn_verb verb, const void *caller)
{
	void *behind,
		*function = pdn_definition_for(caller, symbol_of(verb), mark_of(verb), &behind);
	void *last = behind ? behind : function;
	struct pdn_copy *copy = function ? copy_to_serve(verb, last) : pdn_copies;

	if (copy)
		function = copy == pdn_copies ? NULL : last;
	pdn_answer_keep(caller, PDN_CALLS + verb, function);
	return function;
}

struct pdn_copy *pdn_copy_looked_up(enum pdn_verb verb, void *found)
{
	struct pdn_copy *copy = copy_to_serve(verb, found);
	void *known = NULL;

	if (!copy || found != pdn_elf_find(&library_of(copy, verb)->elf, symbol_of(verb)))
		return NULL; /* of another version, or of another library */
	if (!__atomic_compare_exchange_n(&copy->reals[PDN_LOOKED_UP][verb], &known, found, false,
					 __ATOMIC_RELAXED, __ATOMIC_RELAXED) &&
	    known != found)
		return NULL;
	return copy;
}

/* ---- real functions -------------------------------------------------------------------------- */

/*
 * An interposer that came with the library keeps its place: one that the program finds first, and
 * from which it gets to this copy.
 */
static void *interposer_of(const struct pdn_library *library, enum pdn_verb verb)
{
	void *first, *marked;

	if (!PDN_OF_LIBRARY(library, at_start))
		return NULL;
	first = pdn_definition_for(NULL, symbol_of(verb), mark_of(verb), &marked);
	return first != marked && pdn_library_has(library, marked) ? first : NULL;
}

void *pdn_copy_function(struct pdn_copy *copy, enum pdn_verb verb)
{
	struct pdn_library *library = library_of(copy, verb);
	void *real;

	if (!pdn_library_known(library))
		return NULL;
	real = interposer_of(library, verb);
	if (!real)
		real = pdn_elf_find(&library->elf, symbol_of(verb));
	__atomic_store_n(&copy->reals[PDN_LINKED][verb], real, __ATOMIC_RELAXED);
	return real;
}

void *pdn_verb_real(unsigned copy, enum pdn_verb verb)
{
	return pdn_copy_linked(&pdn_copies[copy], verb);
}
