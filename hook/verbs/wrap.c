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

static struct pdn_library libibverbs = {.soname = "libibverbs.so.1"};

static const char *symbol_of(int verb)
{
	return pdn_call_symbol[PDN_CALLS + verb];
}

/* ---- real functions -------------------------------------------------------------------------- */

#define RARE __attribute__((noinline, cold))

enum road { LINKED, LOOKED_UP, ROADS };

static void *reals[ROADS][PDN_VERBS]; /* loaded relaxed: hook/loader/watched.h */
static void *const looked_up[PDN_VERBS];

bool pdn_libibverbs(void)
{
	return pdn_library_find(&libibverbs);
}

const struct pdn_library *pdn_libibverbs_library(void)
{
	pdn_libibverbs();
	return &libibverbs;
}

void pdn_hold_libibverbs(void)
{
	pdn_library_hold(&libibverbs);
}

int pdn_verb_by_symbol(const char *name)
{
	for (int verb = 0; verb < PDN_VERBS; verb++)
		if (!strcmp(symbol_of(verb), name))
			return verb;
	return -1;
}

static void *next(const char *symbol)
{
	return pdn_libibverbs() ? pdn_library_next(&libibverbs, symbol) : NULL;
}

static struct pdn_watched watched(enum pdn_verb verb)
{
	return (struct pdn_watched){
		.symbol = symbol_of(verb),
		.next = next,
		.linked = pdn_verb_wrapper[verb],
		.looked_up = looked_up[verb],
		.linked_real = &reals[LINKED][verb],
		.looked_up_real = &reals[LOOKED_UP][verb],
	};
}

static __attribute__((noinline)) void *find_real(enum pdn_verb verb)
{
	const struct pdn_watched this = watched(verb);

	return pdn_watched_real(&this);
}

void *pdn_verb_real(enum pdn_verb verb)
{
	void *real = __atomic_load_n(&reals[LINKED][verb], __ATOMIC_RELAXED);

	return PDN_UNLIKELY(!real) ? find_real(verb) : real;
}

static inline void *real_on(enum road road, enum pdn_verb verb)
{
	return road == LINKED ? pdn_verb_real(verb)
			      : __atomic_load_n(&reals[LOOKED_UP][verb], __ATOMIC_RELAXED);
}

#define REAL(symbol) ((pdn_##symbol##_function *)real_on(road, PDN_VERB_##symbol))

/* ---- GPU memory or host memory? -------------------------------------------------------------- */

bool pdn_verbs_on(void)
{
	static uint32_t known;
	enum { OFF = 1, ON };
	/* Relaxed: threads that ask at the same time get the same answer. */
	uint32_t on = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (PDN_UNLIKELY(!on)) {
		on = pdn_config()->enabled && pdn_config()->verbs != PDN_VERBS_OFF ? ON : OFF;
		__atomic_store_n(&known, on, __ATOMIC_RELAXED);
	}
	return on == ON;
}

static inline bool may_be_gpu_memory(const void *addr)
{
	return PDN_UNLIKELY(pdn_may_be_device((uintptr_t)addr)) && pdn_verbs_on();
}

/* ---- the trace ------------------------------------------------------------------------------- */

static uint64_t begin_trace(void)
{
	return pdn_tracing(PDN_EV_CALL) ? pdn_ticks() : 0;
}

static void __attribute__((noinline))
trace(enum pdn_verb verb, uint64_t addr, uint64_t length, int error, uint64_t begun, uint64_t extra)
{
	int saved = errno;

	pdn_trace_call(PDN_CALLS + verb, addr, length, error, begun, pdn_ticks(), extra);
	errno = saved;
}

/* Where stacks are wanted, the whole stack says who has registered, not only the caller. */
static void note_stack(struct ibv_mr *mr)
{
	uint32_t stack = mr && pdn_mr_is_ours(mr) ? pdn_trace_stack(false) : 0;

	if (stack)
		pdn_mr_set_by((struct pdn_mr *)mr, stack);
}

/* `extra` is the lkey, and bit 32 says whether we made the ibv_mr. */
static void trace_made(enum pdn_verb verb, const struct pdn_registration *what, struct ibv_mr *mr,
		       uint64_t begun)
{
	uint64_t extra = mr ? mr->lkey | (uint64_t)pdn_mr_is_ours(mr) << 32 : 0;

	note_stack(mr);
	trace(verb, (uintptr_t)what->addr, what->length, mr ? 0 : errno, begun, extra);
}

/* ---- making regions -------------------------------------------------------------------------- */

/* The program's own call. */
static inline struct ibv_mr *make_real(enum road road, enum pdn_verb verb,
				       const struct pdn_registration *what)
{
	void *real = real_on(road, verb);

	if (PDN_UNLIKELY(!real)) {
		errno = ENOSYS;
		return NULL;
	}
	switch (verb) {
	case PDN_VERB_ibv_reg_mr:
		return ((pdn_ibv_reg_mr_function *)real)(what->pd, what->addr, what->length,
							 what->access);
	case PDN_VERB_ibv_reg_mr_iova:
		return ((pdn_ibv_reg_mr_iova_function *)real)(what->pd, what->addr, what->length,
							      what->iova, what->access);
	default:
		return ((pdn_ibv_reg_mr_iova2_function *)real)(what->pd, what->addr, what->length,
							       what->iova, (unsigned)what->access);
	}
}

/*
 * GPU memory whose allocation we did not see looks like host memory, until the kernel refuses it
 * with EFAULT. Then the driver is asked.
 */
static struct ibv_mr *try_after_all(const struct pdn_registration *what, int error_before)
{
	struct ibv_mr *mr = NULL;

	if (errno == EFAULT && pdn_verbs_on() && pdn_libcuda_begin())
		mr = pdn_verbs_register(what);
	if (mr)
		errno = error_before;
	return mr;
}

/* The registrations that we cache may be the reason for the card having no room. */
static bool can_try_again(const struct ibv_pd *pd)
{
	int error = errno;
	bool can = error == ENOMEM && pdn_verbs_evict_idle(pd->context);

	errno = error;
	return can;
}

static inline struct ibv_mr *make(enum road road, enum pdn_verb verb,
				  const struct pdn_registration *what)
{
	uint64_t begun = begin_trace();
	struct ibv_mr *mr = NULL;
	bool asked = may_be_gpu_memory(what->addr);
	int error = errno;

	if (asked)
		mr = pdn_verbs_register(what);
	if (!mr)
		mr = make_real(road, verb, what);
	if (PDN_UNLIKELY(!mr) && can_try_again(what->pd)) {
		errno = error;
		mr = make_real(road, verb, what);
	}
	if (PDN_UNLIKELY(!mr) && !asked)
		mr = try_after_all(what, error);
	if (PDN_UNLIKELY(begun))
		trace_made(verb, what, mr, begun);
	return mr;
}

/* Always inlined into the wrappers: the return address is in the code that has called these. */
#define IN_WRAPPER static inline __attribute__((always_inline))
#define CALLER	   __builtin_return_address(0)

IN_WRAPPER struct ibv_mr *caught_ibv_reg_mr(enum road road, struct ibv_pd *pd, void *addr,
					    size_t length, int access)
{
	struct pdn_registration what = {pd, addr, length, (uintptr_t)addr, access, CALLER};

	return make(road, PDN_VERB_ibv_reg_mr, &what);
}

IN_WRAPPER struct ibv_mr *caught_ibv_reg_mr_iova(enum road road, struct ibv_pd *pd, void *addr,
						 size_t length, uint64_t iova, int access)
{
	struct pdn_registration what = {pd, addr, length, iova, access, CALLER};

	return make(road, PDN_VERB_ibv_reg_mr_iova, &what);
}

IN_WRAPPER struct ibv_mr *caught_ibv_reg_mr_iova2(enum road road, struct ibv_pd *pd, void *addr,
						  size_t length, uint64_t iova, unsigned access)
{
	struct pdn_registration what = {pd, addr, length, iova, (int)access, CALLER};

	return make(road, PDN_VERB_ibv_reg_mr_iova2, &what);
}

/* As libibverbs does it. What it imports is noted for the report. */
static struct ibv_mr *make_of_dmabuf(enum road road, const struct pdn_exact *exact)
{
	pdn_ibv_reg_dmabuf_mr_function *real = REAL(ibv_reg_dmabuf_mr);
	struct ibv_mr *mr = NULL;

	if (real)
		mr = real(exact->pd, exact->offset, exact->length, exact->iova, exact->fd,
			  exact->access);
	else
		errno = ENOSYS;
	if (mr)
		pdn_export_imported_at(exact->fd, mr, exact->caller);
	return mr;
}

static __attribute__((noinline)) struct ibv_mr *make_exact(enum road road, struct pdn_exact *exact)
{
	uint64_t begun = begin_trace();
	struct ibv_mr *mr = NULL;
	int error = errno;

	if (pdn_verbs_on())
		mr = pdn_verbs_register_dmabuf(exact);
	if (!mr)
		mr = make_of_dmabuf(road, exact);
	if (PDN_UNLIKELY(!mr) && can_try_again(exact->pd)) {
		errno = error;
		mr = make_of_dmabuf(road, exact);
	}
	if (PDN_UNLIKELY(begun)) {
		note_stack(mr);
		trace(PDN_VERB_ibv_reg_dmabuf_mr, exact->iova, exact->length, mr ? 0 : errno, begun,
		      mr ? mr->lkey | (uint64_t)pdn_mr_is_ours(mr) << 32 : 0);
	}
	return mr;
}

IN_WRAPPER struct ibv_mr *caught_ibv_reg_dmabuf_mr(enum road road, struct ibv_pd *pd,
						   uint64_t offset, size_t length, uint64_t iova,
						   int fd, int access)
{
	struct pdn_exact exact = {.pd = pd,
				  .offset = offset,
				  .length = length,
				  .iova = iova,
				  .fd = fd,
				  .access = access,
				  .caller = CALLER};

	return make_exact(road, &exact);
}

/* ---- changing and ending them ---------------------------------------------------------------- */

static RARE int caught_ibv_rereg_mr(enum road road, struct ibv_mr *mr, int flags, struct ibv_pd *pd,
				    void *addr, size_t length, int access)
{
	struct pdn_change change = {flags, pd, addr, length, access, REAL(ibv_rereg_mr)};
	uint64_t begun = begin_trace();
	int result = pdn_verbs_rereg(mr, &change);

	if (PDN_UNLIKELY(begun))
		trace(PDN_VERB_ibv_rereg_mr, (uintptr_t)addr, length, result ? errno : 0, begun,
		      (uint64_t)flags);
	return result;
}

static inline int caught_ibv_dereg_mr(enum road road, struct ibv_mr *mr)
{
	pdn_ibv_dereg_mr_function *real;
	uint64_t begun = begin_trace(), addr = 0, length = 0, extra = 0;
	bool ours = pdn_mr_is_ours(mr);
	int error;

	if (PDN_UNLIKELY(begun) && mr) {
		addr = (uintptr_t)mr->addr;
		length = mr->length;
		extra = mr->lkey | (uint64_t)ours << 32;
	}
	if (ours) {
		error = pdn_verbs_deregister((struct pdn_mr *)mr);
	} else {
		real = REAL(ibv_dereg_mr);
		pdn_export_let_go(mr);
		if (PDN_UNLIKELY(!real))
			error = ENOSYS;
		else
			error = real(mr);
	}
	if (PDN_UNLIKELY(begun))
		trace(PDN_VERB_ibv_dereg_mr, addr, length, error, begun, extra);
	return error;
}

/* For regions made with ibv_import_mr, which libibverbs makes; one that we made is deregistered. */
static RARE void caught_ibv_unimport_mr(enum road road, struct ibv_mr *mr)
{
	pdn_ibv_unimport_mr_function *real = REAL(ibv_unimport_mr);

	if (pdn_mr_is_ours(mr))
		pdn_verbs_deregister((struct pdn_mr *)mr);
	else if (real)
		real(mr);
}

static RARE int caught_ibv_dealloc_pd(enum road road, struct ibv_pd *pd)
{
	pdn_ibv_dealloc_pd_function *real = REAL(ibv_dealloc_pd);
	uint64_t begun = begin_trace();
	int error;

	pdn_verbs_end_pd(pd);
	error = real ? real(pd) : ENOSYS;
	if (PDN_UNLIKELY(begun))
		trace(PDN_VERB_ibv_dealloc_pd, 0, 0, error, begun, (uintptr_t)pd);
	return error;
}

static RARE void caught_ibv_unimport_pd(enum road road, struct ibv_pd *pd)
{
	pdn_ibv_unimport_pd_function *real = REAL(ibv_unimport_pd);

	pdn_verbs_end_pd(pd);
	if (real)
		real(pd);
}

static RARE int caught_ibv_close_device(enum road road, struct ibv_context *context)
{
	pdn_ibv_close_device_function *real = REAL(ibv_close_device);
	uint64_t begun = begin_trace();
	int result;

	pdn_verbs_end_device(context);
	result = real ? real(context) : -1;
	if (result == 0)
		pdn_verbs_device_ended(context);
	if (PDN_UNLIKELY(begun))
		trace(PDN_VERB_ibv_close_device, 0, 0, result, begun, (uintptr_t)context);
	return result;
}

/* ---- the two roads --------------------------------------------------------------------------- */

/* linked_*: the address of our export, whatever definition the loader binds its name to. */
#define X(symbol, version, result, params, args)                               \
	PDN_EXPORT result symbol params                                        \
	{                                                                      \
		return caught_##symbol(LINKED, PDN_LIST args);                 \
	}                                                                      \
	static typeof(symbol) linked_##symbol __attribute__((alias(#symbol))); \
                                                                               \
	static result looked_up_##symbol params                                \
	{                                                                      \
		return caught_##symbol(LOOKED_UP, PDN_LIST args);              \
	}
#include "hook/verbs/verbs.def"
#undef X

void *const pdn_verb_wrapper[PDN_VERBS] = {
#define X(symbol, ...) linked_##symbol,
#include "hook/verbs/verbs.def"
#undef X
};

static void *const looked_up[PDN_VERBS] = {
#define X(symbol, ...) looked_up_##symbol,
#include "hook/verbs/verbs.def"
#undef X
};

void *pdn_verb_hand_out(enum pdn_verb verb, void *found)
{
	const struct pdn_watched this = watched(verb);
	void *wrapper;

	if (!pdn_library_has(&libibverbs, found) ||
	    found != pdn_elf_find(&libibverbs.elf, symbol_of(verb)))
		return found; /* a wrapper, of another version, or of another library */
	wrapper = pdn_watched_wrapper(&this, found);
	return wrapper ? wrapper : found;
}
