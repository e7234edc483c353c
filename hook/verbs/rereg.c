/* SPDX-License-Identifier: MIT */
/*
 * ibv_rereg_mr. The program keeps its ibv_mr, so the library that made it answers:
 *
 *	one that we made	another registration takes the old one's place: a dma-buf's for GPU
 *				memory, one of libibverbs' for host memory. One by ibv_reg_dmabuf_mr
 *				is refused, as libibverbs does
 *	one of libibverbs'	the original call; the kernel refuses GPU memory (EFAULT) unless
 *				nvidia-peermem serves it
 */
#define _GNU_SOURCE
#include <errno.h>

#include "hook/verbs/verbs.h"

static bool moves(const struct pdn_request *change)
{
	return change->flags & IBV_REREG_MR_CHANGE_TRANSLATION;
}

/* Does libibverbs refuse this before it asks the kernel? */
static bool is_nonsense(const struct pdn_request *change)
{
	const int all = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
			IBV_REREG_MR_CHANGE_ACCESS;

	return (int)change->flags & ~all || (moves(change) && (!change->length || !change->addr)) ||
	       (change->access && !(change->flags & IBV_REREG_MR_CHANGE_ACCESS));
}

/* Does the kernel refuse it? It looks for the domain among those of the region's context. */
static bool is_refused(const struct ibv_mr *mr, const struct pdn_request *change)
{
	return !change->flags || (change->flags & IBV_REREG_MR_CHANGE_PD &&
				  (!change->pd || change->pd->context != mr->context));
}

/* ---- an ibv_mr that we made ------------------------------------------------------------------ */

/* A change of the address makes address and iova the same, as it does in the kernel. */
static struct pdn_request changed(const struct pdn_mr *given, const struct pdn_request *change)
{
	const struct ibv_mr *mr = &given->verbs.mr;
	struct pdn_request what = {.pd = mr->pd,
				   .addr = (uintptr_t)mr->addr,
				   .length = mr->length,
				   .iova = given->iova,
				   .access = given->verbs.access,
				   .caller = change->caller,
				   .copy = given->copy};

	if (change->flags & IBV_REREG_MR_CHANGE_PD)
		what.pd = change->pd;
	if (change->flags & IBV_REREG_MR_CHANGE_ACCESS)
		what.access = change->access;
	if (moves(change)) {
		what.addr = what.iova = change->addr;
		what.length = change->length;
	}
	return what;
}

/* By libibverbs' linked functions: the program asked for a change, and looked up none of these. */
static struct ibv_mr *register_real(struct pdn_request *what)
{
	void *real = pdn_verb_real(what->copy, PDN_VERB_ibv_reg_mr);

	what->verb = PDN_VERB_ibv_reg_mr;
	if (!real || what->iova != what->addr) {
		what->verb = PDN_VERB_ibv_reg_mr_iova2;
		real = pdn_verb_real(what->copy, what->verb);
	}
	return pdn_verbs_call(real, what);
}

/* An ibv_mr that we make, for a cached registration or for one of libibverbs'. */
static struct pdn_mr *register_any(struct pdn_request *what)
{
	struct ibv_mr *mr = pdn_verbs_on() ? pdn_verbs_register(what) : NULL;
	struct pdn_mr *made;
	int error;

	if (mr)
		return (struct pdn_mr *)mr;
	mr = register_real(what);
	if (!mr)
		return NULL;
	made = pdn_mr_new(PDN_MR_GIVEN);
	if (!made) {
		error = errno;
		pdn_verbs_deregister_made(what->copy, PDN_MR_BY_ADDRESS, mr);
		errno = error;
		return NULL;
	}
	pdn_mr_fill(made, mr);
	made->copy = (uint16_t)what->copy;
	pdn_verbs_use(what->copy);
	made->verbs.type = PDN_MR_TYPE_MR;
	made->verbs.access = what->access;
	made->iova = what->iova;
	pdn_mr_set_real(made, mr);
	return made;
}

/* The program keeps its pointer, which then points to the contents of `with`. Frees `with`. */
static int replace(struct pdn_mr *given, struct pdn_mr *with, const void *caller)
{
	pindown_object *object = given->object;
	int error = given->real
			    ? pdn_verbs_deregister_made(given->copy, PDN_MR_BY_ADDRESS, given->real)
			    : 0;

	if (error) {
		pdn_verbs_deregister(with, PDN_MR_BY_ADDRESS);
		errno = error;
		return IBV_REREG_MR_ERR_CMD;
	}
	pdn_mr_unset_by(given);
	pdn_mr_set_real(given, NULL);
	pdn_mr_fill(given, &with->verbs.mr);
	given->verbs.type = with->verbs.type;
	given->verbs.access = with->verbs.access;
	given->iova = with->iova;
	pdn_mr_set_object(given, with->object);
	pdn_mr_set_by(given, (uintptr_t)caller);
	pdn_mr_set_real(given, with->real);
	pdn_mr_free(with);
	pindown_detach(object);
	return 0;
}

static int rereg_given(struct pdn_mr *given, const struct pdn_request *change)
{
	struct pdn_request what = changed(given, change);
	struct pdn_mr *with;

	if (given->by_dmabuf || is_nonsense(change)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (is_refused(&given->verbs.mr, change)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_CMD;
	}
	with = register_any(&what);
	return with ? replace(given, with, change->caller) : IBV_REREG_MR_ERR_CMD;
}

/* ---- an ibv_mr of libibverbs' ---------------------------------------------------------------- */

static int call_real(struct ibv_mr *mr, const struct pdn_request *change,
		     pdn_ibv_rereg_mr_function *real)
{
	return real(mr, (int)change->flags, change->pd, (void *)(uintptr_t)change->addr,
		    change->length, change->access);
}

/* Our idle registrations are given up if the card has no room for the change. */
static int rereg_real(struct ibv_mr *mr, const struct pdn_request *change,
		      pdn_ibv_rereg_mr_function *real)
{
	int result, saved = errno;

	if (!real) {
		errno = ENOSYS;
		return IBV_REREG_MR_ERR_INPUT;
	}
	result = call_real(mr, change, real);
	if (result && errno == ENOMEM && pdn_verbs_evict_idle(mr->context)) {
		errno = saved;
		result = call_real(mr, change, real);
	}
	return result;
}

int pdn_verbs_rereg(struct ibv_mr *mr, const struct pdn_request *change,
		    pdn_ibv_rereg_mr_function *real)
{
	return pdn_mr_is_ours(mr) ? rereg_given((struct pdn_mr *)mr, change)
				  : rereg_real(mr, change, real);
}
