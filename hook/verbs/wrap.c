/* SPDX-License-Identifier: MIT */
/*
 * The wrappers of the verbs. Programs linked with libibverbs call our exports, which call the next
 * definition behind us. A look-up in libibverbs is answered with another wrapper, which calls the
 * function that the look-up found.
 *
 * Most memory regions are of host memory, and for those a wrapper is a comparison and a jump.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "cache/base/config.h"
#include "hook/cuda/devicemap.h"
#include "cache/foreign_dmabufs.h"
#include "hook/hook.h"
#include "hook/loader/library.h"
#include "hook/loader/watched.h"
#include "hook/verbs/verbs.h"

static struct pd_library libibverbs = {.soname = "libibverbs.so.1"};

static const char *symbol_of(int verb)
{
	return pd_call_symbol[PD_CALLS + verb];
}

/* ---- real functions -------------------------------------------------------------------------- */

#define RARE __attribute__((noinline, cold))

enum road { LINKED, LOOKED_UP, ROADS };

static void *reals[ROADS][PD_VERBS]; /* loaded relaxed: hook/loader/watched.h */
static void *const looked_up[PD_VERBS];

bool pd_libibverbs(void)
{
	return pd_library_find(&libibverbs);
}

const struct pd_library *pd_libibverbs_library(void)
{
	pd_libibverbs();
	return &libibverbs;
}

void pd_hold_libibverbs(void)
{
	pd_library_hold(&libibverbs);
}

int pd_verb_by_symbol(const char *name)
{
	for (int verb = 0; verb < PD_VERBS; verb++)
		if (!strcmp(symbol_of(verb), name))
			return verb;
	return -1;
}

static void *next(const char *symbol)
{
	return pd_libibverbs() ? pd_library_next(&libibverbs, symbol) : NULL;
}

static struct pd_watched watched(enum pd_verb verb)
{
	return (struct pd_watched){
		.symbol = symbol_of(verb),
		.next = next,
		.linked = pd_verb_wrapper[verb],
		.looked_up = looked_up[verb],
		.linked_real = &reals[LINKED][verb],
		.looked_up_real = &reals[LOOKED_UP][verb],
	};
}

static __attribute__((noinline)) void *find_real(enum pd_verb verb)
{
	const struct pd_watched this = watched(verb);

	return pd_watched_real(&this);
}

void *pd_verb_real(enum pd_verb verb)
{
	void *real = __atomic_load_n(&reals[LINKED][verb], __ATOMIC_RELAXED);

	return PD_UNLIKELY(!real) ? find_real(verb) : real;
}

static inline void *real_on(enum road road, enum pd_verb verb)
{
	return road == LINKED ? pd_verb_real(verb)
			      : __atomic_load_n(&reals[LOOKED_UP][verb], __ATOMIC_RELAXED);
}

#define REAL(symbol) ((pd_##symbol##_function *)real_on(road, PD_VERB_##symbol))

/* ---- GPU memory or host memory? -------------------------------------------------------------- */

bool pd_verbs_on(void)
{
	static uint32_t known;
	enum { OFF = 1, ON };
	/* Relaxed: threads that ask at the same time get the same answer. */
	uint32_t on = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (PD_UNLIKELY(!on)) {
		on = pd_config()->enabled && pd_config()->verbs != PD_VERBS_OFF ? ON : OFF;
		__atomic_store_n(&known, on, __ATOMIC_RELAXED);
	}
	return on == ON;
}

static inline bool may_be_gpu_memory(const void *addr)
{
	return PD_UNLIKELY(pd_may_be_device((uintptr_t)addr)) && pd_verbs_on();
}

/* ---- the trace ------------------------------------------------------------------------------- */

static uint64_t begin_trace(void)
{
	return pd_tracing(PD_EV_CALL) ? pd_ticks() : 0;
}

static void __attribute__((noinline))
trace(enum pd_verb verb, uint64_t addr, uint64_t length, int error, uint64_t begun, uint64_t extra)
{
	int saved = errno;

	pd_trace_call(PD_CALLS + verb, addr, length, error, begun, pd_ticks(), extra);
	errno = saved;
}

/* `extra` is the lkey, and bit 32 says whether we made the ibv_mr. */
static void trace_made(enum pd_verb verb, const struct pd_registration *what,
		       const struct ibv_mr *mr, uint64_t begun)
{
	uint64_t extra = mr ? mr->lkey | (uint64_t)pd_mr_is_ours(mr) << 32 : 0;

	trace(verb, (uintptr_t)what->addr, what->length, mr ? 0 : errno, begun, extra);
}

/* ---- making regions -------------------------------------------------------------------------- */

/* The program's own call. */
static inline struct ibv_mr *make_real(enum road road, enum pd_verb verb,
				       const struct pd_registration *what)
{
	void *real = real_on(road, verb);

	if (PD_UNLIKELY(!real)) {
		errno = ENOSYS;
		return NULL;
	}
	switch (verb) {
	case PD_VERB_ibv_reg_mr:
		return ((pd_ibv_reg_mr_function *)real)(what->pd, what->addr, what->length,
							what->access);
	case PD_VERB_ibv_reg_mr_iova:
		return ((pd_ibv_reg_mr_iova_function *)real)(what->pd, what->addr, what->length,
							     what->iova, what->access);
	default:
		return ((pd_ibv_reg_mr_iova2_function *)real)(what->pd, what->addr, what->length,
							      what->iova, (unsigned)what->access);
	}
}

/*
 * GPU memory whose allocation we did not see looks like host memory, until the kernel refuses it
 * with EFAULT. Then the driver is asked.
 */
static struct ibv_mr *try_after_all(const struct pd_registration *what, int error_before)
{
	struct ibv_mr *mr = NULL;

	if (errno == EFAULT && pd_verbs_on() && pd_libcuda_begin())
		mr = pd_verbs_register(what);
	if (mr)
		errno = error_before;
	return mr;
}

/* The registrations that we cache may be the reason for the card having no room. */
static bool can_try_again(const struct pd_registration *what)
{
	int error = errno;
	bool can = error == ENOMEM && pd_verbs_make_room(what->pd->context);

	errno = error;
	return can;
}

static inline struct ibv_mr *make(enum road road, enum pd_verb verb,
				  const struct pd_registration *what)
{
	uint64_t begun = begin_trace();
	struct ibv_mr *mr = NULL;
	bool asked = may_be_gpu_memory(what->addr);
	int error = errno;

	if (asked)
		mr = pd_verbs_register(what);
	if (!mr)
		mr = make_real(road, verb, what);
	if (PD_UNLIKELY(!mr) && can_try_again(what)) {
		errno = error;
		mr = make_real(road, verb, what);
	}
	if (PD_UNLIKELY(!mr) && !asked)
		mr = try_after_all(what, error);
	if (PD_UNLIKELY(begun))
		trace_made(verb, what, mr, begun);
	return mr;
}

static inline struct ibv_mr *caught_ibv_reg_mr(enum road road, struct ibv_pd *pd, void *addr,
					       size_t length, int access)
{
	struct pd_registration what = {pd, addr, length, (uintptr_t)addr, access};

	return make(road, PD_VERB_ibv_reg_mr, &what);
}

static inline struct ibv_mr *caught_ibv_reg_mr_iova(enum road road, struct ibv_pd *pd, void *addr,
						    size_t length, uint64_t iova, int access)
{
	struct pd_registration what = {pd, addr, length, iova, access};

	return make(road, PD_VERB_ibv_reg_mr_iova, &what);
}

static inline struct ibv_mr *caught_ibv_reg_mr_iova2(enum road road, struct ibv_pd *pd, void *addr,
						     size_t length, uint64_t iova, unsigned access)
{
	struct pd_registration what = {pd, addr, length, iova, (int)access};

	return make(road, PD_VERB_ibv_reg_mr_iova2, &what);
}

/* A dma-buf that the program exported itself: noted for the trace and the report, nothing else. */
static RARE struct ibv_mr *caught_ibv_reg_dmabuf_mr(enum road road, struct ibv_pd *pd,
						    uint64_t offset, size_t length, uint64_t iova,
						    int fd, int access)
{
	pd_ibv_reg_dmabuf_mr_function *real = REAL(ibv_reg_dmabuf_mr);
	uint64_t begun = begin_trace();
	struct ibv_mr *mr = NULL;

	if (real)
		mr = real(pd, offset, length, iova, fd, access);
	else
		errno = ENOSYS;
	if (mr)
		pd_export_imported(fd, mr);
	if (PD_UNLIKELY(begun))
		trace(PD_VERB_ibv_reg_dmabuf_mr, iova, length, mr ? 0 : errno, begun,
		      mr ? mr->lkey : 0);
	return mr;
}

/* ---- changing and ending them ---------------------------------------------------------------- */

static RARE int caught_ibv_rereg_mr(enum road road, struct ibv_mr *mr, int flags, struct ibv_pd *pd,
				    void *addr, size_t length, int access)
{
	struct pd_change change = {flags, pd, addr, length, access, REAL(ibv_rereg_mr)};
	uint64_t begun = begin_trace();
	int result = pd_verbs_rereg(mr, &change);

	if (PD_UNLIKELY(begun))
		trace(PD_VERB_ibv_rereg_mr, (uintptr_t)addr, length, result ? errno : 0, begun,
		      (uint64_t)flags);
	return result;
}

static inline int caught_ibv_dereg_mr(enum road road, struct ibv_mr *mr)
{
	pd_ibv_dereg_mr_function *real;
	uint64_t begun = begin_trace(), addr = 0, length = 0, extra = 0;
	bool ours = pd_mr_is_ours(mr);
	int error;

	if (PD_UNLIKELY(begun) && mr) {
		addr = (uintptr_t)mr->addr;
		length = mr->length;
		extra = mr->lkey | (uint64_t)ours << 32;
	}
	if (ours) {
		error = pd_verbs_deregister((struct pd_mr *)mr);
	} else {
		real = REAL(ibv_dereg_mr);
		pd_export_let_go(mr);
		if (PD_UNLIKELY(!real))
			error = ENOSYS;
		else
			error = real(mr);
	}
	if (PD_UNLIKELY(begun))
		trace(PD_VERB_ibv_dereg_mr, addr, length, error, begun, extra);
	return error;
}

/* For regions made with ibv_import_mr, which libibverbs makes; one that we made is deregistered. */
static RARE void caught_ibv_unimport_mr(enum road road, struct ibv_mr *mr)
{
	pd_ibv_unimport_mr_function *real = REAL(ibv_unimport_mr);

	if (pd_mr_is_ours(mr))
		pd_verbs_deregister((struct pd_mr *)mr);
	else if (real)
		real(mr);
}

static RARE int caught_ibv_dealloc_pd(enum road road, struct ibv_pd *pd)
{
	pd_ibv_dealloc_pd_function *real = REAL(ibv_dealloc_pd);
	uint64_t begun = begin_trace();
	int error;

	pd_verbs_end_pd(pd);
	error = real ? real(pd) : ENOSYS;
	if (PD_UNLIKELY(begun))
		trace(PD_VERB_ibv_dealloc_pd, 0, 0, error, begun, (uintptr_t)pd);
	return error;
}

static RARE void caught_ibv_unimport_pd(enum road road, struct ibv_pd *pd)
{
	pd_ibv_unimport_pd_function *real = REAL(ibv_unimport_pd);

	pd_verbs_end_pd(pd);
	if (real)
		real(pd);
}

static RARE int caught_ibv_close_device(enum road road, struct ibv_context *context)
{
	pd_ibv_close_device_function *real = REAL(ibv_close_device);
	uint64_t begun = begin_trace();
	int result;

	pd_verbs_end_device(context);
	result = real ? real(context) : -1;
	if (result == 0)
		pd_verbs_device_ended(context);
	if (PD_UNLIKELY(begun))
		trace(PD_VERB_ibv_close_device, 0, 0, result, begun, (uintptr_t)context);
	return result;
}

/* ---- the two roads --------------------------------------------------------------------------- */

/* linked_*: the address of our export, whatever definition the loader binds its name to. */
#define X(symbol, version, result, params, args)                               \
	PD_EXPORT result symbol params                                         \
	{                                                                      \
		return caught_##symbol(LINKED, PD_LIST args);                  \
	}                                                                      \
	static typeof(symbol) linked_##symbol __attribute__((alias(#symbol))); \
                                                                               \
	static result looked_up_##symbol params                                \
	{                                                                      \
		return caught_##symbol(LOOKED_UP, PD_LIST args);               \
	}
#include "hook/verbs/verbs.def"
#undef X

void *const pd_verb_wrapper[PD_VERBS] = {
#define X(symbol, ...) linked_##symbol,
#include "hook/verbs/verbs.def"
#undef X
};

static void *const looked_up[PD_VERBS] = {
#define X(symbol, ...) looked_up_##symbol,
#include "hook/verbs/verbs.def"
#undef X
};

void *pd_verb_hand_out(enum pd_verb verb, void *found)
{
	const struct pd_watched this = watched(verb);
	void *wrapper;

	if (!pd_library_has(&libibverbs, found) ||
	    found != pd_elf_find(&libibverbs.elf, symbol_of(verb)))
		return found; /* a wrapper, of another version, or of another library */
	wrapper = pd_watched_wrapper(&this, found);
	return wrapper ? wrapper : found;
}
