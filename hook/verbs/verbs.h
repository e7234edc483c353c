/* SPDX-License-Identifier: MIT */
/*
 * The verbs wrappers' own parts.
 *
 *	verbs.def	the calls
 *	wrap.c	the wrappers, the look-ups, the real functions
 *	mr.c	the ibv_mr that a program is given for GPU memory
 *	cache.c	the regions of the network card behind them, kept in the cache
 *	rereg.c	ibv_rereg_mr
 *	limits.c	what network cards can't do
 *
 * A program that registers GPU memory gets an ibv_mr of ours: its own address and length, and the keys
 * of a registration of the whole region, which it shares with all others of the same protection domain
 * and access. What it registers of the host's memory is none of our business.
 */
#ifndef PD_VERBS_H
#define PD_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/pindown.h"
#include "hook/verbs/abi.h"

#pragma GCC visibility push(hidden)

enum pd_verb {
#define X(symbol, ...) PD_VERB_##symbol,
#include "hook/verbs/verbs.def"
#undef X
	PD_VERBS
};

#define X(symbol, version, result, params, ...) typedef result pd_##symbol##_function params;
#include "hook/verbs/verbs.def"
#undef X

/* The verb of this name, or -1. */
int pd_verb_by_symbol(const char *name);

/* Is libibverbs loaded? */
bool pd_libibverbs(void);
struct pd_library;
const struct pd_library *pd_libibverbs_library(void);
void pd_hold_libibverbs(void);

extern void *const pd_verb_wrapper[PD_VERBS]; /* exported */

/* Is GPU memory our business? */
bool pd_verbs_on(void);

/* The wrapper to hand out for what a look-up found, or `found` itself. */
void *pd_verb_hand_out(enum pd_verb verb, void *found);

/* The function that a program calls that is linked with libibverbs; NULL: there is none. */
void *pd_verb_real(enum pd_verb verb);
#define PD_VERB_REAL(symbol) ((pd_##symbol##_function *)pd_verb_real(PD_VERB_##symbol))

/* ---- one registration (wrap.c) -------------------------------------------------------------- */

struct pd_registration {
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint64_t iova;
	int access;
};

/* ---- regions of ours (mr.c) ------------------------------------------------------------ */

enum pd_mr_state {
	PD_MR_FREE,
	PD_MR_GIVEN,  /* the program has it */
	PD_MR_CACHED, /* stands for a registration that is kept */
};

/*
 * Never unmapped: a program may come back with one that it has given up. What providers have behind
 * theirs is zero.
 */
struct pd_mr {
	/* Must be first: &verbs.mr is what the program gets. */
	struct pd_verbs_mr verbs;
	uint64_t providers[4];
	uint64_t iova; /* GIVEN: where RDMA finds addr */
	/* GIVEN: a real region of its own, or NULL. CACHED: the region. */
	struct ibv_mr *real;
	pindown_object *object; /* GIVEN: what it is a use of, or NULL */
	uint32_t state;		/* enum pd_mr_state */
	uint32_t next;		/* in a list of free ones */
	uint32_t gone;		/* its device was closed: `real` is no more */
	uint32_t number;
} __attribute__((aligned(64)));

/* NULL: no memory, and errno says so. */
struct pd_mr *pd_mr_new(enum pd_mr_state state);
void pd_mr_free(struct pd_mr *mr);

extern uintptr_t pd_mr_begin, pd_mr_size;

/* Is this one that we gave out? */
static inline bool pd_mr_is_ours(const struct ibv_mr *mr)
{
	/* The size first: acquire pairs with the release in reserve(); where there is one, there is a begin. */
	uintptr_t size = __atomic_load_n(&pd_mr_size, __ATOMIC_ACQUIRE);

	return (uintptr_t)mr - __atomic_load_n(&pd_mr_begin, __ATOMIC_RELAXED) < size;
}

/* Its registration by libibverbs, last: release pairs with the acquire in is_of(). */
static inline void pd_mr_set_real(struct pd_mr *mr, struct ibv_mr *real)
{
	__atomic_store_n(&mr->real, real, __ATOMIC_RELEASE);
}

/* Was its device closed? Acquire pairs with the release in pd_verbs_device_ended(). */
static inline bool pd_mr_is_gone(const struct pd_mr *mr)
{
	return __atomic_load_n(&mr->gone, __ATOMIC_ACQUIRE);
}

/* All that were ever used, for walking: NULL behind the last. */
struct pd_mr *pd_mr_at(uint32_t number);

/* ---- what cards can't do (limits.c) ------------------------------------------------------ */

extern uint32_t pd_verbs_limits_used;

/* Is there any card with a limit? One load. */
static inline bool pd_verbs_any_limit(void)
{
	/* Relaxed: who comes too early finds the limit by itself, as the first one did. */
	return __atomic_load_n(&pd_verbs_limits_used, __ATOMIC_RELAXED) != 0;
}

/* How long a dma-buf's region of this context may be: UINT64_MAX: no limit is known; 0: there are none. */
uint64_t pd_verbs_longest(const struct ibv_context *context);
void pd_verbs_note_limit(struct ibv_context *context, uint64_t longest);
void pd_verbs_forget_limits(const struct ibv_context *context);

/* ---- what is kept (cache.c) ------------------------------------------------------------- */

/*
 * The registration of GPU memory, from the cache or new, as an ibv_mr for the program; NULL: it is not
 * ours to make, and nothing has changed. Keeps errno.
 */
struct ibv_mr *pd_verbs_register(const struct pd_registration *what);

/* The program gives one of ours back; what the verb answers. */
int pd_verbs_deregister(struct pd_mr *mr);

/* libibverbs' own call, of one that it has made. */
int pd_verbs_deregister_real(struct ibv_mr *mr);

/* What is not in use, and belongs to a protection domain or a device, is deregistered. */
void pd_verbs_end_pd(struct ibv_pd *pd);
void pd_verbs_end_device(struct ibv_context *context);
/* The same, because the card has no room: true when there is more than before. */
bool pd_verbs_make_room(struct ibv_context *context);
/* ... and the device has been closed: what was in use ended with it. */
void pd_verbs_device_ended(struct ibv_context *context);

/* ---- ibv_rereg_mr (rereg.c) ------------------------------------------------------------- */

struct pd_change {
	int flags; /* IBV_REREG_MR_* */
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	int access;
	pd_ibv_rereg_mr_function *real; /* NULL: there is none */
};

/* The answer of ibv_rereg_mr, for any memory region. Keeps errno when that is 0. */
int pd_verbs_rereg(struct ibv_mr *mr, const struct pd_change *change);

#pragma GCC visibility pop

#endif
