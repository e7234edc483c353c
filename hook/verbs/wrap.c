/* SPDX-License-Identifier: MIT */
/*
 * The wrappers of the verbs. Programs linked with libibverbs or libmlx5 call our exports, which
 * call the next definition behind us. A look-up in these libraries is answered with another
 * wrapper, which calls the function that the look-up found.
 *
 * Most memory regions are of host memory, and for those a wrapper is a comparison and a jump.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/base/process.h"
#include "cache/base/config.h"
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
static void note_stack(struct pdn_mr *given)
{
	uint32_t stack = given ? pdn_trace_stack(false) : 0;

	if (stack)
		pdn_mr_set_by(given, stack);
}

/* `extra` is the lkey, and bit 32 says whether we made the ibv_mr. */
static void trace_made(enum pdn_verb verb, const struct pdn_registration *what, struct ibv_mr *mr,
		       uint64_t begun)
{
	uint64_t extra = mr ? mr->lkey | (uint64_t)pdn_mr_is_ours(mr) << 32 : 0;

	note_stack(mr && pdn_mr_is_ours(mr) ? (struct pdn_mr *)mr : NULL);
	trace(verb, (uintptr_t)what->addr, what->length, mr ? 0 : errno, begun, extra);
}

/* ---- making regions -------------------------------------------------------------------------- */

/* The program's own call. */
static inline struct ibv_mr *make_real(struct pdn_target to, enum pdn_verb verb,
				       const struct pdn_registration *what)
{
	void *real = pdn_copy_real(to, verb);

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
static bool can_try_again_on(struct ibv_context *context)
{
	bool can = pdn_verbs_evict_idle(context);

	errno = ENOMEM;
	return can;
}

static bool can_try_again(const struct ibv_pd *pd)
{
	return errno == ENOMEM && can_try_again_on(pd->context);
}

static inline struct ibv_mr *make(struct pdn_target to, enum pdn_verb verb,
				  const struct pdn_registration *what)
{
	uint64_t begun = begin_trace();
	struct ibv_mr *mr = NULL;
	bool asked = may_be_gpu_memory(what->addr);
	int error = errno;

	if (asked)
		mr = pdn_verbs_register(what);
	if (!mr)
		mr = make_real(to, verb, what);
	if (PDN_UNLIKELY(!mr) && can_try_again(what->pd)) {
		errno = error;
		mr = make_real(to, verb, what);
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

IN_WRAPPER struct ibv_mr *caught_ibv_reg_mr(struct pdn_target to, struct ibv_pd *pd, void *addr,
					    size_t length, int access)
{
	struct pdn_registration what = {
		pd, addr, length, (uintptr_t)addr, access, CALLER, pdn_copy_number(to.copy)};

	return make(to, PDN_VERB_ibv_reg_mr, &what);
}

IN_WRAPPER struct ibv_mr *caught_ibv_reg_mr_iova(struct pdn_target to, struct ibv_pd *pd,
						 void *addr, size_t length, uint64_t iova,
						 int access)
{
	struct pdn_registration what = {
		pd, addr, length, iova, access, CALLER, pdn_copy_number(to.copy)};

	return make(to, PDN_VERB_ibv_reg_mr_iova, &what);
}

IN_WRAPPER struct ibv_mr *caught_ibv_reg_mr_iova2(struct pdn_target to, struct ibv_pd *pd,
						  void *addr, size_t length, uint64_t iova,
						  unsigned access)
{
	struct pdn_registration what = {
		pd, addr, length, iova, (int)access, CALLER, pdn_copy_number(to.copy)};

	return make(to, PDN_VERB_ibv_reg_mr_iova2, &what);
}

/* ---- regions of dma-bufs --------------------------------------------------------------------- */

/*
 * How a call makes a region: by `exact` if it names a dma-buf, else by `what`. `attr` is the
 * program's own argument of ibv_reg_mr_ex().
 */
struct making {
	enum pdn_verb verb;
	struct pdn_exact exact;
	struct pdn_registration what;
	struct ibv_mr_init_attr *attr;
	bool by_dmabuf, by_address; /* neither: libibverbs' own business */
};

static struct ibv_mr *call_real(void *real, const struct making *making)
{
	const struct pdn_exact *exact = &making->exact;

	switch (making->verb) {
	case PDN_VERB_ibv_reg_mr_ex:
		return ((pdn_ibv_reg_mr_ex_function *)real)(making->what.pd, making->attr);
	case PDN_VERB_ibv_reg_dmabuf_mr:
		return ((pdn_ibv_reg_dmabuf_mr_function *)real)(exact->pd, exact->offset,
								exact->length, exact->iova,
								exact->fd, exact->access);
	default:
		return ((pdn_mlx5dv_reg_dmabuf_mr_function *)real)(
			exact->pd, exact->offset, exact->length, exact->iova, exact->fd,
			exact->access, (int)exact->flags);
	}
}

/* As the library does it. What it imports is noted for the report. */
static struct ibv_mr *make_as_asked(struct pdn_target to, const struct making *making)
{
	void *real = pdn_copy_real(to, making->verb);
	struct ibv_mr *mr = NULL;

	if (real)
		mr = call_real(real, making);
	else
		errno = ENOSYS;
	if (mr && making->by_dmabuf)
		pdn_export_imported(making->exact.fd, mr, making->what.caller);
	return mr;
}

static struct ibv_mr *make_from_cache(struct making *making)
{
	making->exact.caller = making->what.caller;
	if (making->by_dmabuf)
		return pdn_verbs_register_dmabuf(&making->exact);
	return making->by_address ? pdn_verbs_register(&making->what) : NULL;
}

static __attribute__((noinline)) struct ibv_mr *make_by_any(struct pdn_target to,
							    struct making *making)
{
	uint64_t begun = begin_trace();
	struct ibv_mr *mr = NULL;
	bool asked = making->by_address ? may_be_gpu_memory(making->what.addr) : pdn_verbs_on();
	int error = errno;

	making->what.copy = making->exact.copy = pdn_copy_number(to.copy);
	if (asked)
		mr = make_from_cache(making);
	if (!mr)
		mr = make_as_asked(to, making);
	if (!mr && can_try_again(making->what.pd)) {
		errno = error;
		mr = make_as_asked(to, making);
	}
	if (!mr && making->by_address && !asked)
		mr = try_after_all(&making->what, error);
	if (begun)
		trace_made(making->verb, &making->what, mr, begun);
	return mr;
}

/* The trace has the iova in the place of the address. */
IN_WRAPPER struct ibv_mr *caught_ibv_reg_dmabuf_mr(struct pdn_target to, struct ibv_pd *pd,
						   uint64_t offset, size_t length, uint64_t iova,
						   int fd, int access)
{
	struct making making = {
		.verb = PDN_VERB_ibv_reg_dmabuf_mr,
		.exact = {.pd = pd,
			  .offset = offset,
			  .length = length,
			  .iova = iova,
			  .fd = fd,
			  .access = access},
		.what = {.pd = pd,
			 .addr = (void *)(uintptr_t)iova,
			 .length = length,
			 .caller = CALLER},
		.by_dmabuf = true,
	};

	return make_by_any(to, &making);
}

IN_WRAPPER struct ibv_mr *caught_mlx5dv_reg_dmabuf_mr(struct pdn_target to, struct ibv_pd *pd,
						      uint64_t offset, size_t length, uint64_t iova,
						      int fd, int access, int mlx5_access)
{
	struct making making = {
		.verb = PDN_VERB_mlx5dv_reg_dmabuf_mr,
		.exact = {.maker = PDN_BY_MLX5DV,
			  .pd = pd,
			  .offset = offset,
			  .length = length,
			  .iova = iova,
			  .fd = fd,
			  .access = access,
			  .flags = (unsigned)mlx5_access},
		.what = {.pd = pd,
			 .addr = (void *)(uintptr_t)iova,
			 .length = length,
			 .caller = CALLER},
		.by_dmabuf = true,
	};

	return make_by_any(to, &making);
}

/*
 * The mask says which members libibverbs reads. A region with a DMA handle, of a buffer of
 * libibverbs, or with members of a later version is libibverbs' own business, and so is a call
 * that it refuses. It wants an iova with a dma-buf.
 */
static PDN_RARE struct ibv_mr *make_by_attr(struct pdn_target to, struct ibv_pd *pd,
					    struct ibv_mr_init_attr *attr, const void *caller)
{
	const uint64_t by_fd = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET,
		       mask = attr->comp_mask, iova = IBV_REG_MR_MASK_IOVA;
	struct making making = {
		.verb = PDN_VERB_ibv_reg_mr_ex,
		.attr = attr,
		.what = {.pd = pd,
			 .length = attr->length,
			 .access = attr->access,
			 .caller = caller},
		.by_address = (mask & ~iova) == IBV_REG_MR_MASK_ADDR,
		.by_dmabuf = mask & IBV_REG_MR_MASK_FD,
	};

	if (mask & IBV_REG_MR_MASK_ADDR)
		making.what.addr = attr->addr;
	making.what.iova = mask & iova ? attr->iova : (uintptr_t)making.what.addr;
	if (!making.by_dmabuf)
		return make_by_any(to, &making);
	making.exact.fd = attr->fd;
	making.what.addr = (void *)(uintptr_t)making.what.iova;
	/* Without a protection domain, pdn_verbs_register_dmabuf() leaves it to libibverbs. */
	if (mask == (by_fd | iova)) {
		making.exact.pd = pd;
		making.exact.offset = attr->fd_offset;
		making.exact.length = attr->length;
		making.exact.iova = attr->iova;
		making.exact.access = attr->access;
	}
	return make_by_any(to, &making);
}

IN_WRAPPER struct ibv_mr *caught_ibv_reg_mr_ex(struct pdn_target to, struct ibv_pd *pd,
					       struct ibv_mr_init_attr *attr)
{
	return make_by_attr(to, pd, attr, CALLER);
}

/* ---- umems ----------------------------------------------------------------------------------- */

static struct mlx5dv_devx_umem *make_umem_as_asked(struct pdn_target to, enum pdn_verb verb,
						   struct ibv_context *context,
						   struct mlx5dv_devx_umem_in *in)
{
	void *real = pdn_copy_real(to, verb);

	if (!real) {
		errno = ENOSYS;
		return NULL;
	}
	if (verb == PDN_VERB_mlx5dv_devx_umem_reg_ex)
		return ((pdn_mlx5dv_devx_umem_reg_ex_function *)real)(context, in);
	return ((pdn_mlx5dv_devx_umem_reg_function *)real)(context, in->addr, in->size, in->access);
}

static struct pdn_exact exact_umem(struct ibv_context *context,
				   const struct mlx5dv_devx_umem_in *in, const void *caller)
{
	bool by_dmabuf = in->comp_mask & MLX5DV_UMEM_MASK_DMABUF;

	return (struct pdn_exact){
		.maker = by_dmabuf ? PDN_UMEM_BY_DMABUF : PDN_UMEM_BY_ADDRESS,
		.context = context,
		.offset = (uintptr_t)in->addr,
		.length = in->size,
		.fd = by_dmabuf ? in->dmabuf_fd : -1,
		.access = (int)in->access,
		.flags = in->pgsz_bitmap,
		.caller = caller,
	};
}

/* Is it worth to ask the cache? `refused`: the kernel has refused it as host memory. */
static bool may_be_gpu_umem(const struct mlx5dv_devx_umem_in *in, bool refused)
{
	if (in->comp_mask)
		return !refused && in->comp_mask == MLX5DV_UMEM_MASK_DMABUF && pdn_verbs_on();
	return refused ? errno == EFAULT && pdn_verbs_on() && pdn_libcuda_begin()
		       : may_be_gpu_memory(in->addr);
}

static PDN_RARE struct mlx5dv_devx_umem *make_umem(struct pdn_target to, enum pdn_verb verb,
						   struct ibv_context *context,
						   struct mlx5dv_devx_umem_in *in,
						   const void *caller)
{
	struct pdn_exact exact = exact_umem(context, in, caller);
	bool asked = may_be_gpu_umem(in, false);
	struct mlx5dv_devx_umem *umem = NULL;
	uint64_t begun = begin_trace();
	int error = errno;

	exact.copy = pdn_copy_number(to.copy);
	if (asked)
		umem = pdn_verbs_register_umem(&exact);
	if (!umem) {
		umem = make_umem_as_asked(to, verb, context, in);
		if (!umem && errno == ENOMEM && can_try_again_on(context)) {
			errno = error;
			umem = make_umem_as_asked(to, verb, context, in);
		}
		if (umem && exact.maker == PDN_UMEM_BY_DMABUF)
			pdn_export_imported(exact.fd, umem, caller);
	}
	if (!umem && !asked && may_be_gpu_umem(in, true)) {
		umem = pdn_verbs_register_umem(&exact);
		if (umem)
			errno = error;
	}
	if (begun) {
		note_stack(umem ? pdn_umem_record(umem) : NULL);
		trace(verb, exact.offset, exact.length, umem ? 0 : errno, begun,
		      umem ? umem->umem_id | (uint64_t)(pdn_umem_record(umem) != NULL) << 32 : 0);
	}
	return umem;
}

#define ALL_PAGE_SIZES (UINT64_MAX & ~4095ull) /* the card's, as libmlx5 passes them */

IN_WRAPPER struct mlx5dv_devx_umem *caught_mlx5dv_devx_umem_reg(struct pdn_target to,
								struct ibv_context *context,
								void *addr, size_t size,
								uint32_t access)
{
	struct mlx5dv_devx_umem_in in = {
		.addr = addr, .size = size, .access = access, .pgsz_bitmap = ALL_PAGE_SIZES};

	return make_umem(to, PDN_VERB_mlx5dv_devx_umem_reg, context, &in, CALLER);
}

IN_WRAPPER struct mlx5dv_devx_umem *caught_mlx5dv_devx_umem_reg_ex(struct pdn_target to,
								   struct ibv_context *context,
								   struct mlx5dv_devx_umem_in *in)
{
	return make_umem(to, PDN_VERB_mlx5dv_devx_umem_reg_ex, context, in, CALLER);
}

static PDN_RARE int caught_mlx5dv_devx_umem_dereg(struct pdn_target to,
						  struct mlx5dv_devx_umem *umem)
{
	pdn_mlx5dv_devx_umem_dereg_function *real;
	struct pdn_mr *record = pdn_umem_record(umem);
	uint64_t begun = begin_trace(), extra = 0;
	int error;

	if (begun && umem)
		extra = umem->umem_id | (uint64_t)(record != NULL) << 32;
	if (record) {
		error = pdn_umem_deregister(record);
	} else {
		real = REAL(mlx5dv_devx_umem_dereg);
		pdn_export_let_go(umem);
		error = real ? real(umem) : ENOSYS;
	}
	if (begun)
		trace(PDN_VERB_mlx5dv_devx_umem_dereg, 0, 0, error, begun, extra);
	return error;
}

/* ---- changing and ending them ---------------------------------------------------------------- */

static PDN_RARE int change_region(struct ibv_mr *mr, const struct pdn_change *change)
{
	uint64_t begun = begin_trace();
	int result = pdn_verbs_rereg(mr, change);

	if (begun) {
		note_stack(!result && pdn_mr_is_ours(mr) ? (struct pdn_mr *)mr : NULL);
		trace(PDN_VERB_ibv_rereg_mr, (uintptr_t)change->addr, change->length,
		      result ? errno : 0, begun, (uint64_t)change->flags);
	}
	return result;
}

IN_WRAPPER int caught_ibv_rereg_mr(struct pdn_target to, struct ibv_mr *mr, int flags,
				   struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct pdn_change change = {flags, pd, addr, length, access, REAL(ibv_rereg_mr), CALLER};

	return change_region(mr, &change);
}

static inline int caught_ibv_dereg_mr(struct pdn_target to, struct ibv_mr *mr)
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
static PDN_RARE void caught_ibv_unimport_mr(struct pdn_target to, struct ibv_mr *mr)
{
	pdn_ibv_unimport_mr_function *real = REAL(ibv_unimport_mr);

	if (pdn_mr_is_ours(mr))
		pdn_verbs_deregister((struct pdn_mr *)mr);
	else if (real)
		real(mr);
}

static PDN_RARE int caught_ibv_dealloc_pd(struct pdn_target to, struct ibv_pd *pd)
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

static PDN_RARE void caught_ibv_unimport_pd(struct pdn_target to, struct ibv_pd *pd)
{
	pdn_ibv_unimport_pd_function *real = REAL(ibv_unimport_pd);

	pdn_verbs_end_pd(pd);
	if (real)
		real(pd);
}

static PDN_RARE int caught_ibv_close_device(struct pdn_target to, struct ibv_context *context)
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
#define X(symbol, version, result, params, args)                                        \
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
#define X(symbol, version, result, params, args)      \
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
