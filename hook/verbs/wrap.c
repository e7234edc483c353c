/* SPDX-License-Identifier: MIT */
/*
 * The wrappers of the verbs. Programs linked with libibverbs or libmlx5 call our exports, which
 * call what their caller would have reached without us (copies.h). A look-up in these libraries is
 * answered with another wrapper, which calls the function that the look-up found.
 *
 * Most memory regions are of host memory. For those a wrapper looks up an answer that was kept for
 * its caller, makes a comparison, and calls.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/base/process/process.h"
#include "cache/base/environment/config.h"
#include "cache/base/visible.h"
#include "hook/cuda/devicemap.h"
#include "cache/dmabuf/foreign_dmabufs.h"
#include "hook/hook.h"
#include "hook/verbs/copies.h"
#include "hook/verbs/verbs.h"

#define REAL(symbol) ((pdn_##symbol##_function *)pdn_copy_real(to, PDN_VERB_##symbol))

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
	return on == ON && !pdn_process_is_off();
}

static bool may_be_gpu_memory(uint64_t addr)
{
	return PDN_UNLIKELY(pdn_may_be_device(addr)) && pdn_verbs_on();
}

/* ---- the trace ------------------------------------------------------------------------------- */

static uint64_t begin_trace(void)
{
	return pdn_tracing(PDN_EV_CALL) ? pdn_ticks() : 0;
}

static void trace(enum pdn_verb verb, uint64_t addr, uint64_t length, int error, uint64_t begun,
		  uint64_t extra)
{
	int saved = errno;

	pdn_trace_call(PDN_CALLS + verb, addr, length, error, begun, pdn_ticks(), extra);
	errno = saved;
}

/* Where stacks are wanted, the whole stack says who has registered, not only the caller. */
static void note_stack(struct pdn_mr *given)
{
	uint32_t stack = given ? pdn_trace_stack(false) : 0;

	if (stack)
		pdn_mr_set_by(given, stack);
}

/* The key, and bit 32 says whether we made it. */
static uint64_t describe(const void *made, enum pdn_maker maker, const struct pdn_mr *record)
{
	uint32_t key;

	if (!made)
		return 0;
	key = pdn_maker_makes_umems(maker) ? ((const struct mlx5dv_devx_umem *)made)->umem_id
					   : ((const struct ibv_mr *)made)->lkey;
	return key | (uint64_t)(record != NULL) << 32;
}

/* Our record of a region or a umem, or NULL. */
static struct pdn_mr *record_of(void *made, enum pdn_maker maker)
{
	if (pdn_maker_makes_umems(maker))
		return pdn_umem_record(made);
	return pdn_mr_is_ours(made) ? made : NULL;
}

/* By a dma-buf, the trace has the iova in the place of the address; of a umem, the offset. */
static void trace_made(const struct pdn_request *what, void *made, uint64_t begun)
{
	bool by_iova = what->pd && pdn_request_is_by_dmabuf(what);
	struct pdn_mr *record = record_of(made, what->maker);

	note_stack(record);
	trace(what->verb, by_iova ? what->iova : what->addr, what->length, made ? 0 : errno, begun,
	      describe(made, what->maker, record));
}

/* ---- the calls of the libraries -------------------------------------------------------------- */

#define ENDS(...)

void *pdn_verbs_call(void *function, const struct pdn_request *what)
{
	struct ibv_context *context = what->context;
	struct ibv_pd *pd = what->pd;
	void *addr = (void *)(uintptr_t)what->addr;
	uint64_t offset = what->addr, iova = what->iova;
	size_t length = what->length, size = length;
	int fd = what->fd, access = what->access, mlx5_access = (int)what->flags;
	struct ibv_mr_init_attr *attr = what->argument;
	struct mlx5dv_devx_umem_in *in = what->argument;

	if (PDN_UNLIKELY(!function)) {
		errno = ENOSYS;
		return NULL;
	}
	switch ((int)what->verb) {
#define MAKES(symbol, args)     \
	case PDN_VERB_##symbol: \
		return ((pdn_##symbol##_function *)function)args;
#define X(symbol, version, result, params, args, kind, ...) kind(symbol, args)
#include "hook/verbs/verbs.def"
#undef X
#undef MAKES
	}
	return NULL;
}

int pdn_verbs_call_end(void *function, enum pdn_maker maker, void *made)
{
	if (PDN_UNLIKELY(!function))
		return ENOSYS;
	return pdn_maker_makes_umems(maker)
		       ? ((pdn_mlx5dv_devx_umem_dereg_function *)function)(made)
		       : ((pdn_ibv_dereg_mr_function *)function)(made);
}

/* ---- making regions and umems ---------------------------------------------------------------- */

/*
 * The mask says which members libibverbs reads. A region with a DMA handle, of a buffer of
 * libibverbs, or with members of a later version is libibverbs' own business, and so is a call
 * that it refuses. It wants an iova with a dma-buf.
 */
static void read_attr(struct pdn_request *what, const struct ibv_mr_init_attr *attr)
{
	const uint64_t iova = IBV_REG_MR_MASK_IOVA, mask = attr->comp_mask, others = mask & ~iova;
	const uint64_t by_fd = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET;

	what->length = attr->length;
	what->access = attr->access;
	if (mask & IBV_REG_MR_MASK_ADDR)
		what->addr = (uintptr_t)attr->addr;
	what->iova = mask & iova ? attr->iova : what->addr;
	what->is_left = others != IBV_REG_MR_MASK_ADDR && mask != (by_fd | iova);
	if (mask & IBV_REG_MR_MASK_FD) {
		what->maker = PDN_MR_BY_DMABUF;
		what->fd = attr->fd;
	}
	if (mask == (by_fd | iova))
		what->addr = attr->fd_offset;
}

static void read_in(struct pdn_request *what, const struct mlx5dv_devx_umem_in *in)
{
	what->addr = (uintptr_t)in->addr;
	what->length = in->size;
	what->access = (int)in->access;
	what->flags = in->pgsz_bitmap;
	what->is_left = in->comp_mask && in->comp_mask != MLX5DV_UMEM_MASK_DMABUF;
	if (in->comp_mask & MLX5DV_UMEM_MASK_DMABUF) {
		what->maker = PDN_UMEM_BY_DMABUF;
		what->fd = in->dmabuf_fd;
	}
}

/* The registrations that we cache may be the reason for the card having no room. */
static bool can_try_again(const struct pdn_request *what)
{
	return errno == ENOMEM &&
	       pdn_verbs_evict_idle(what->pd ? what->pd->context : what->context);
}

/* As the library does it. What it imports is noted for the report. */
static void *make_as_asked(struct pdn_target to, const struct pdn_request *what)
{
	void *real = pdn_copy_real(to, what->verb);
	int error = errno;
	void *made = pdn_verbs_call(real, what);

	if (PDN_UNLIKELY(!made) && can_try_again(what)) {
		errno = error;
		made = pdn_verbs_call(real, what);
	}
	if (made && pdn_request_is_by_dmabuf(what))
		pdn_export_imported(what->fd, made, what->caller);
	return made;
}

/*
 * GPU memory whose allocation we did not see looks like host memory, until the kernel refuses it
 * with EFAULT. Then the driver is asked.
 */
static void *try_after_all(struct pdn_request *what, int error_before)
{
	void *made = NULL;

	if (errno == EFAULT && !what->is_left && !pdn_request_is_by_dmabuf(what) &&
	    pdn_verbs_on() && pdn_libcuda_begin())
		made = pdn_verbs_register(what);
	if (made)
		errno = error_before;
	return made;
}

static bool may_be_cached(const struct pdn_request *what)
{
	if (PDN_UNLIKELY(what->is_left))
		return false;
	return pdn_request_is_by_dmabuf(what) ? pdn_verbs_on() : may_be_gpu_memory(what->addr);
}

static void *make(struct pdn_target to, struct pdn_request *what)
{
	uint64_t begun = begin_trace();
	int error = errno;
	void *made = NULL;
	bool asked;

	if (what->verb == PDN_VERB_ibv_reg_mr_ex)
		read_attr(what, what->argument);
	else if (what->verb == PDN_VERB_mlx5dv_devx_umem_reg_ex)
		read_in(what, what->argument);
	what->copy = pdn_copy_number(to.copy);
	asked = may_be_cached(what);
	if (asked)
		made = pdn_verbs_register(what);
	if (!made)
		made = make_as_asked(to, what);
	if (PDN_UNLIKELY(!made) && !asked)
		made = try_after_all(what, error);
	if (PDN_UNLIKELY(begun))
		trace_made(what, made, begun);
	return made;
}

/* Always inlined into the wrappers: the return address is in the code that has called these. */
#define IN_WRAPPER static inline __attribute__((always_inline))
#define CALLER	   __builtin_return_address(0)

#define ALL_PAGE_SIZES (UINT64_MAX & ~4095ull) /* the card's, as libmlx5 passes them */

#define MAKES(symbol, result, params, request)                                          \
	IN_WRAPPER result caught_##symbol(struct pdn_target to, PDN_LIST params)        \
	{                                                                               \
		struct pdn_request what = {                                             \
			.verb = PDN_VERB_##symbol, .caller = CALLER, PDN_LIST request}; \
                                                                                        \
		return make(to, &what);                                                 \
	}
#define X(symbol, version, result, params, args, kind, request) \
	kind(symbol, result, params, request)
#include "hook/verbs/verbs.def"
#undef X

/* ---- changing and ending them ---------------------------------------------------------------- */

static int change(struct ibv_mr *mr, const struct pdn_request *what,
		  pdn_ibv_rereg_mr_function *real)
{
	uint64_t begun = begin_trace();
	int result = pdn_verbs_rereg(mr, what, real);

	if (begun) {
		note_stack(result ? NULL : record_of(mr, PDN_MR_BY_ADDRESS));
		trace(PDN_VERB_ibv_rereg_mr, what->addr, what->length, result ? errno : 0, begun,
		      what->flags);
	}
	return result;
}

IN_WRAPPER int caught_ibv_rereg_mr(struct pdn_target to, struct ibv_mr *mr, int flags,
				   struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct pdn_request what = {.pd = pd,
				   .addr = (uintptr_t)addr,
				   .length = length,
				   .access = access,
				   .flags = (uint64_t)flags,
				   .caller = CALLER};

	return change(mr, &what, REAL(ibv_rereg_mr));
}

/* A region or a umem. */
static int deregister(struct pdn_target to, enum pdn_verb verb, enum pdn_maker maker, void *made)
{
	uint64_t begun = begin_trace(), addr = 0, length = 0, extra = 0;
	struct pdn_mr *record = record_of(made, maker);
	int error;

	if (PDN_UNLIKELY(begun) && made) {
		extra = describe(made, maker, record);
		if (!pdn_maker_makes_umems(maker)) {
			addr = (uintptr_t)((struct ibv_mr *)made)->addr;
			length = ((struct ibv_mr *)made)->length;
		}
	}
	if (record) {
		error = pdn_verbs_deregister(record, maker);
	} else {
		pdn_export_let_go(made);
		error = pdn_verbs_call_end(pdn_copy_real(to, verb), maker, made);
	}
	if (PDN_UNLIKELY(begun))
		trace(verb, addr, length, error, begun, extra);
	return error;
}

static int caught_ibv_dereg_mr(struct pdn_target to, struct ibv_mr *mr)
{
	return deregister(to, PDN_VERB_ibv_dereg_mr, PDN_MR_BY_ADDRESS, mr);
}

static int caught_mlx5dv_devx_umem_dereg(struct pdn_target to, struct mlx5dv_devx_umem *umem)
{
	struct pdn_mr *record = pdn_umem_record(umem);
	struct ibv_context *context = record ? record->verbs.mr.context : NULL;
	int error = deregister(to, PDN_VERB_mlx5dv_devx_umem_dereg, PDN_UMEM_BY_ADDRESS, umem);

	if (record && !error)
		pdn_umem_unstick(context);
	return error;
}

/* For regions made with ibv_import_mr, which libibverbs makes; one that we made is deregistered. */
static void caught_ibv_unimport_mr(struct pdn_target to, struct ibv_mr *mr)
{
	pdn_ibv_unimport_mr_function *real = REAL(ibv_unimport_mr);

	if (pdn_mr_is_ours(mr))
		pdn_verbs_deregister((struct pdn_mr *)mr, PDN_MR_BY_ADDRESS);
	else if (real)
		real(mr);
}

static int caught_ibv_dealloc_pd(struct pdn_target to, struct ibv_pd *pd)
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

static void caught_ibv_unimport_pd(struct pdn_target to, struct ibv_pd *pd)
{
	pdn_ibv_unimport_pd_function *real = REAL(ibv_unimport_pd);

	pdn_verbs_end_pd(pd);
	if (real)
		real(pd);
}

static int caught_ibv_close_device(struct pdn_target to, struct ibv_context *context)
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

/* ---- the roads ------------------------------------------------------------------------------- */

/*
 * linked_*: the address of our export, whatever definition the loader binds its name to. A region
 * that we made is not for another copy of the library either, whoever ends it.
 */
#define FIRST(first, ...) first
#define X(symbol, version, result, params, args, ...)                                   \
	PDN_EXPORT result symbol params                                                 \
	{                                                                               \
		void *other = pdn_copy_beside(PDN_VERB_##symbol, CALLER);               \
		struct pdn_target to = {pdn_copies, PDN_LINKED};                        \
                                                                                        \
		if (PDN_UNLIKELY(other) && !pdn_mr_is_ours((const void *)FIRST args)) { \
			to.copy = pdn_copy_with(PDN_VERB_##symbol, other);              \
			if (!to.copy)                                                   \
				return ((pdn_##symbol##_function *)other)args;          \
		}                                                                       \
		return caught_##symbol(to, PDN_LIST args);                              \
	}                                                                               \
	static typeof(symbol) linked_##symbol __attribute__((alias(#symbol)));
#include "hook/verbs/verbs.def"
#undef X

void *const pdn_verb_wrapper[PDN_VERBS] = {
#define X(symbol, ...) linked_##symbol,
#include "hook/verbs/verbs.def"
#undef X
};

/* A look-up's answers, of each copy. */
#define LOOKED_UP_IN(number, symbol, result, params, args)                                      \
	static result looked_up_##number##_##symbol params                                      \
	{                                                                                       \
		return caught_##symbol((struct pdn_target){&pdn_copies[number], PDN_LOOKED_UP}, \
				       PDN_LIST args);                                          \
	}
#define X(symbol, version, result, params, args, ...) \
	LOOKED_UP_IN(0, symbol, result, params, args) \
	LOOKED_UP_IN(1, symbol, result, params, args) \
	LOOKED_UP_IN(2, symbol, result, params, args)
#include "hook/verbs/verbs.def"
#undef X

static void *const looked_up[][PDN_COPIES] = {
#define X(symbol, ...) {looked_up_0_##symbol, looked_up_1_##symbol, looked_up_2_##symbol},
#include "hook/verbs/verbs.def"
#undef X
};

void *pdn_verb_hand_out(enum pdn_verb verb, void *found)
{
	struct pdn_copy *copy = pdn_copy_looked_up(verb, found);

	return copy ? looked_up[verb][pdn_copy_number(copy)] : found;
}
