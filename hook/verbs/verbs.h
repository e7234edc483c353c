/* SPDX-License-Identifier: MIT */
/*
 * The calls of libibverbs (verbs) and of libmlx5.
 *
 *	verbs.def	the table of the calls
 *	wrap.c		the wrappers, the look-ups
 *	copies.c	the real functions, where a process has several libibverbs
 *	mr.c		the ibv_mr that a program is given for GPU memory
 *	registrations.c	the network card's registrations behind them, kept in the cache
 *	dmabuf.c	how these are made, from dma-bufs
 *	umem.c		umems, libmlx5's registrations of memory for DEVX, that the card still needs
 *	rereg.c		ibv_rereg_mr
 *	limits.c	the limits of network cards
 *
 * A program that registers GPU memory gets an ibv_mr that we made: with the address and length that
 * it asked for, and the keys of a registration of the whole region. All ibv_mr of the same
 * protection domain and access share that registration. By a dma-buf that the program has exported,
 * it gets an ibv_mr of exactly the bytes that it named, and shares it with all calls that name the
 * same. Umems are made in the same way. Registrations of host memory are left to libibverbs and
 * libmlx5.
 */
#ifndef PDN_VERBS_H
#define PDN_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/dmabuf/foreign_dmabufs.h"
#include "cache/pindown.h"
#include "hook/verbs/abi.h"

#pragma GCC visibility push(hidden)

enum pdn_verb {
#define X(symbol, ...) PDN_VERB_##symbol,
#include "hook/verbs/verbs.def"
#undef X
	PDN_VERBS
};

#define X(symbol, version, result, params, ...) typedef result pdn_##symbol##_function params;
#include "hook/verbs/verbs.def"
#undef X

/* The verb of this name, or -1. */
int pdn_verb_by_symbol(const char *name);

static inline bool pdn_verb_is_of_mlx5(enum pdn_verb verb)
{
	return verb >= PDN_VERB_mlx5dv_reg_dmabuf_mr;
}

/* In a call of dlclose() by the program: a copy with which we have made registrations is held. */
void pdn_verbs_unloading(void);
/* Behind it, in a walk over the loaded libraries: what has gone is known no more. */
void pdn_verbs_unloaded(void);

extern void *const pdn_verb_wrapper[PDN_VERBS]; /* exported */

/* Is pindown to register GPU memory? (PINDOWN_VERBS) */
bool pdn_verbs_on(void);

/* The wrapper to hand out for the function that a look-up found, or `found` itself. */
void *pdn_verb_hand_out(enum pdn_verb verb, void *found);

#define PDN_COPIES 3 /* of libibverbs, with which we make registrations: copies.h */

/* The function that a program linked with this copy would call; NULL: there is none. */
void *pdn_verb_real(unsigned copy, enum pdn_verb verb);
/* We have made a registration with it, so it is not unloaded any more. */
void pdn_verbs_use(unsigned copy);

/* ---- one request (wrap.c) -------------------------------------------------------------------- */

/* What is registered, and from what the card's registration is made. */
enum pdn_maker {
	PDN_MR_BY_ADDRESS, /* part of a region: all ibv_mr of it share the card's registration */
	PDN_MR_BY_DMABUF,
	PDN_MR_BY_MLX5DV,
	PDN_UMEM_BY_DMABUF,
	PDN_UMEM_BY_ADDRESS,
};

static inline bool pdn_maker_makes_umems(enum pdn_maker maker)
{
	return maker >= PDN_UMEM_BY_DMABUF;
}

/* What a call asks for that registers memory, whichever call it is. */
struct pdn_request {
	enum pdn_verb verb;
	enum pdn_maker maker;
	struct ibv_context *context; /* of an ibv_mr; pdn_verbs_register() sets it */
	struct ibv_pd *pd;	     /* NULL: a umem */
	uint64_t addr;		     /* by a dma-buf: the offset in it */
	size_t length;
	uint64_t iova; /* of a umem: 0 */
	int fd, access;
	uint64_t flags;		  /* of mlx5dv_reg_dmabuf_mr(); of a umem: its page sizes */
	void *argument;		  /* the program's structure with all of that, or NULL */
	bool is_left;		  /* it asks for more than we know: it is left to the library */
	unsigned copy;		  /* whose context it is */
	const void *caller;	  /* of the verb, for the trace; NULL: unknown */
	struct pdn_exported part; /* for the cache: the memory */
};

static inline bool pdn_request_is_by_dmabuf(const struct pdn_request *what)
{
	return what->maker != PDN_MR_BY_ADDRESS && what->maker != PDN_UMEM_BY_ADDRESS;
}

/* Calls this function of a library, which is of what->verb; NULL: there is none (ENOSYS). */
void *pdn_verbs_call(void *function, const struct pdn_request *what);
/* The same of ibv_dereg_mr() or mlx5dv_devx_umem_dereg(); the answer of the call. */
int pdn_verbs_call_end(void *function, enum pdn_maker maker, void *made);

/* ---- the ibv_mr that we make (mr.c) --------------------------------------------------------- */

enum pdn_mr_state {
	PDN_MR_FREE,
	PDN_MR_GIVEN,  /* the program has it */
	PDN_MR_CACHED, /* it stands for a registration that the cache keeps */
	PDN_MR_STUCK,  /* for a umem that the card still needs: deregistered later */
};

/*
 * An ibv_mr or a umem. Never unmapped: a program may use one again that it has deregistered. The
 * members in which a provider keeps its own data (`providers`) are zero in an ibv_mr that is GIVEN.
 */
struct pdn_mr {
	/* Must be first: &verbs.mr is what the program gets. */
	struct pdn_verbs_mr verbs;
	union {
		struct {
			uint64_t maker; /* CACHED: enum pdn_maker; GIVEN: 0, as providers read it */
			uint64_t flags; /* CACHED: of struct pdn_request; GIVEN: 0 */
			uint64_t providers[2];
			uint64_t iova; /* where RDMA finds addr */
		};
		uint64_t words[5];	   /* of all that is in this union; zero in a new one */
		struct pdn_mlx5_umem umem; /* GIVEN: &umem.umem is what the program gets */
	};
	/*
	 * GIVEN: libibverbs' region of its own, or NULL. CACHED, STUCK: libibverbs' region, or
	 * libmlx5's umem.
	 */
	void *real;
	pindown_object *object; /* GIVEN: the cached registration that it holds, or NULL */
	/* FREE: the next one in a list. GIVEN: the code that registered (PDN_MR_BY), or 0. */
	uint64_t next_or_by;
	uint16_t state;	   /* enum pdn_mr_state */
	uint16_t copy;	   /* whose `real` is, or whose would be */
	uint8_t gone;	   /* its device was closed: `real` no longer exists */
	uint8_t was_named; /* GIVEN: memory of it has ended, and it was named */
	bool by_dmabuf;	   /* GIVEN: by ibv_reg_dmabuf_mr, which libibverbs' ibv_rereg_mr refuses */
} __attribute__((aligned(64)));

/* NULL: no memory, and errno says so. */
struct pdn_mr *pdn_mr_new(enum pdn_mr_state state);
void pdn_mr_free(struct pdn_mr *mr);
/* Of several threads that try at the same time, one takes the record, and frees it. */
bool pdn_mr_take(struct pdn_mr *mr, uint16_t state);

/*
 * Where they lie. In one cache line, so that a child which is forked in the middle of a change sees
 * the first stores of it and none of the others.
 */
extern struct pdn_mr_place {
	uintptr_t begin, size;		  /* size: stored last; 0: nothing is reserved yet */
	uint32_t capacity, usable, fresh; /* under PDN_LOCK_MRS; numbers begin with 1 */
} __attribute__((aligned(64))) pdn_mr_place;

/* Did we make this one? */
static inline bool pdn_mr_is_ours(const struct ibv_mr *mr)
{
	/* Acquire pairs with the release in reserve(): with the size, the begin is there. */
	uintptr_t size = __atomic_load_n(&pdn_mr_place.size, __ATOMIC_ACQUIRE);

	return (uintptr_t)mr - __atomic_load_n(&pdn_mr_place.begin, __ATOMIC_RELAXED) < size;
}

/* Stored after the other members: release pairs with the acquire in is_of(). */
static inline void pdn_mr_set_real(struct pdn_mr *mr, void *real)
{
	__atomic_store_n(&mr->real, real, __ATOMIC_RELEASE);
}

/* Was its device closed? Acquire pairs with the release in pdn_verbs_device_ended(). */
static inline bool pdn_mr_is_gone(const struct pdn_mr *mr)
{
	return __atomic_load_n(&mr->gone, __ATOMIC_ACQUIRE);
}

/*
 * The code that registered: a return address, or the number of a stack (pdn_trace_origin()). Stored
 * after `object`: release pairs with the acquire in name_holder(), which any thread may run. It
 * reads both, and the range, and compares this afterwards: the record may be used again meanwhile.
 */
#define PDN_MR_BY (1ull << 63)
static inline void pdn_mr_set_by(struct pdn_mr *mr, uint64_t by)
{
	__atomic_store_n(&mr->was_named, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&mr->next_or_by, PDN_MR_BY | by, __ATOMIC_RELEASE);
}

/*
 * Before the members of a GIVEN one change to another registration: nothing names it meanwhile. The
 * fence pairs with the acquires in name_holder(): a thread that loads one of the new members finds
 * this, or the new code.
 */
static inline void pdn_mr_unset_by(struct pdn_mr *mr)
{
	__atomic_store_n(&mr->next_or_by, 0, __ATOMIC_RELAXED);
#if !defined(__SANITIZE_THREAD__) /* ThreadSanitizer does not know fences */
	__atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

/* Relaxed: see pdn_mr_set_by(). */
static inline void pdn_mr_set_object(struct pdn_mr *mr, pindown_object *object)
{
	__atomic_store_n(&mr->object, object, __ATOMIC_RELAXED);
}

/*
 * Relaxed: as pdn_mr_set_by() says, other threads may read the range of any record, and in fill() a
 * thread reads the keys of a CACHED one that is revoked, and used again, meanwhile. It looks
 * afterwards whether that has happened.
 */
static inline __attribute__((always_inline)) void pdn_mr_fill(struct pdn_mr *mr,
							      const struct ibv_mr *from)
{
	mr->verbs.mr.context = from->context;
	mr->verbs.mr.pd = from->pd;
	__atomic_store_n(&mr->verbs.mr.addr, from->addr, __ATOMIC_RELAXED);
	__atomic_store_n(&mr->verbs.mr.length, from->length, __ATOMIC_RELAXED);
	__atomic_store_n(&mr->verbs.mr.handle, from->handle, __ATOMIC_RELAXED);
	__atomic_store_n(&mr->verbs.mr.lkey, from->lkey, __ATOMIC_RELAXED);
	__atomic_store_n(&mr->verbs.mr.rkey, from->rkey, __ATOMIC_RELAXED);
}

/* For walking all that were ever used; NULL: there is none with this number. */
struct pdn_mr *pdn_mr_at(uint32_t number);
#define PDN_EACH_MR(mr)                 \
	uint32_t n_ = 1;                \
	((mr) = pdn_mr_at(n_)) != NULL; \
	n_++

/* Did we make this umem? Then this is its record; else NULL. */
static inline struct pdn_mr *pdn_umem_record(const struct mlx5dv_devx_umem *umem)
{
	uintptr_t record = (uintptr_t)umem - offsetof(struct pdn_mr, umem);

	return pdn_mr_is_ours((const struct ibv_mr *)record) ? (struct pdn_mr *)record : NULL;
}

/* ---- the limits of network cards (limits.c) -------------------------------------------------- */

/* Is any card known to have one? */
bool pdn_verbs_any_limit(void);
/* How long a region of a dma-buf may be. UINT64_MAX: no limit is known; 0: none can be made. */
uint64_t pdn_verbs_longest(const struct ibv_context *context);
void pdn_verbs_note_limit(const struct ibv_context *context, uint64_t longest);
/*
 * The card has refused the dma-buf of this memory for good. If it has refused other memory before,
 * and taken none since, it takes no dma-bufs at all.
 */
void pdn_verbs_note_refused(const struct ibv_context *context, uint64_t buffer_id);
void pdn_verbs_note_taken(const struct ibv_context *context);
void pdn_verbs_forget_limits(const struct ibv_context *context);

/* ---- cached registrations (registrations.c) ------------------------------------------------- */

/*
 * A registration of GPU memory, from the cache or new, as an ibv_mr or a umem for the program. By a
 * dma-buf that the program has exported, and of a umem, it covers exactly the bytes that the
 * program named. NULL: the library must register this, and nothing has changed. Keeps errno.
 */
void *pdn_verbs_register(struct pdn_request *what);

/* Deregisters one that we made; the answer of the verb. */
int pdn_verbs_deregister(struct pdn_mr *mr, enum pdn_maker maker);

/* The same with the copy's function, of one that the library made. */
int pdn_verbs_deregister_made(unsigned copy, enum pdn_maker maker, void *made);

/* ---- making them (dmabuf.c) ----------------------------------------------------------------- */

#define PDN_NO_DESCRIPTOR ENODATA /* the error when the region has none */

/*
 * The card's registration of what->part, in the region: libibverbs' region or libmlx5's umem. NULL:
 * why not is in *error.
 */
void *pdn_verbs_make(pindown_region *region, const struct pdn_request *what, int *error);

/* ---- umems that the card still needs (umem.c) ------------------------------------------------ */

/*
 * The card has refused to end this cached umem, which it still needs: try again, or end it later.
 * 0: it has ended, and its record is free. May change errno.
 */
int pdn_umem_stick(struct pdn_mr *kept);
/* Deregisters the umems on the device that the card needed until now. */
void pdn_umem_unstick(struct ibv_context *context);

/*
 * The idle registrations of a protection domain or of a device are deregistered, and those in use
 * are not handed out again.
 */
void pdn_verbs_end_pd(struct ibv_pd *pd);
void pdn_verbs_end_device(struct ibv_context *context);
/* The card has no room: idle registrations are deregistered. True: it has more room than before. */
bool pdn_verbs_evict_idle(struct ibv_context *context);
/* The device has been closed: the registrations that were in use ended with it. */
void pdn_verbs_device_ended(struct ibv_context *context);

/* ---- ibv_rereg_mr (rereg.c) ----------------------------------------------------------------- */

/*
 * The answer of ibv_rereg_mr, for any memory region, whose caller has registered from now on.
 * `change` has IBV_REREG_MR_* in `flags`; real: NULL if there is none. Keeps errno when that is 0.
 */
int pdn_verbs_rereg(struct ibv_mr *mr, const struct pdn_request *change,
		    pdn_ibv_rereg_mr_function *real);

#pragma GCC visibility pop

#endif
