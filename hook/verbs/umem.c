/* SPDX-License-Identifier: MIT */
/*
 * Umems of GPU memory: libmlx5's registrations for objects that a program makes with DEVX commands,
 * by address or by a dma-buf that the program has exported. They are consumer objects as
 * registrations by dma-bufs are (dmabuf.c), and their owner is the device's context.
 *
 * All identical calls on a context share one umem of the card. A umem is only a table of pages,
 * which DEVX commands name together with an offset, and the card allows any number of objects on
 * it; so sharing can't be noticed, except by the equal ids. Each program's umem is a record of its
 * own all the same: after a revocation it is a tombstone that can be deregistered.
 *
 * The card refuses to end a umem while an object uses it. Then the umem is stuck: it is ended when
 * the program deregisters a umem on the context, which it does after it has ended its objects.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cache/base/log.h"
#include "hook/hook.h"
#include "hook/verbs/verbs.h"

/* ---- libmlx5's ------------------------------------------------------------------------------- */

struct mlx5dv_devx_umem *pdn_umem_make(int fd, uint64_t offset, const struct pdn_exact *exact)
{
	pdn_mlx5dv_devx_umem_reg_ex_function *real = PDN_VERB_REAL(mlx5dv_devx_umem_reg_ex);
	struct mlx5dv_devx_umem_in in = {
		.addr = (void *)(uintptr_t)offset,
		.size = exact->length,
		.access = (uint32_t)exact->access,
		.pgsz_bitmap = exact->flags,
		.comp_mask = MLX5DV_UMEM_MASK_DMABUF,
		.dmabuf_fd = fd,
	};

	return real && fd >= 0 ? real(exact->context, &in) : NULL;
}

/* The end of a device looks for the owner in the place of the protection domain. */
struct ibv_mr pdn_umem_as_mr(const struct mlx5dv_devx_umem *umem, const struct pdn_exact *exact)
{
	const struct pdn_mlx5_umem *whole = (const void *)umem;

	return (struct ibv_mr){
		.context = exact->context,
		.pd = (struct ibv_pd *)exact->context,
		.handle = whole->handle,
		.lkey = umem->umem_id,
	};
}

/* ---- registering ----------------------------------------------------------------------------- */

/* false: it was revoked meanwhile. The loads are acquires: see fill() in cache.c. */
static bool fill(struct pdn_mr *mr, pindown_object *object, const struct pdn_exact *exact)
{
	const struct pdn_mr *kept = pindown_object_data(object);

	pdn_mr_set_object(mr, object);
	if (!kept || !pdn_verbs_is_as_asked(kept, exact))
		return false;
	pdn_mr_fill(mr, &(struct ibv_mr){.context = exact->context});
	mr->umem = (struct pdn_mlx5_umem){
		.umem = {__atomic_load_n(&kept->verbs.mr.lkey, __ATOMIC_ACQUIRE)},
		.context = exact->context,
		.handle = __atomic_load_n(&kept->verbs.mr.handle, __ATOMIC_ACQUIRE),
		.addr = (void *)(uintptr_t)exact->offset,
		.size = exact->length,
	};
	return pindown_object_data(object) == kept;
}

/* So that the members of providers are zero in the next use of the record. */
static void free_given(struct pdn_mr *mr)
{
	memset(&mr->umem, 0, sizeof(mr->umem));
	pdn_mr_free(mr);
}

static bool find_memory(struct pdn_exact *exact)
{
	const uint64_t begin = exact->offset, end = begin + exact->length;

	if (exact->maker == PDN_UMEM_BY_DMABUF)
		return pdn_export_find(exact->fd, begin, exact->length, &exact->part);
	exact->part = (struct pdn_exported){.addr = begin, .memory = {.base = begin, .end = end}};
	return end > begin;
}

struct mlx5dv_devx_umem *pdn_verbs_register_umem(struct pdn_exact *exact)
{
	struct mlx5dv_devx_umem *umem = NULL;
	pindown_object *object;
	int saved = errno;
	struct pdn_mr *mr;

	if (!exact->context || !pdn_verbs_may_cache(exact->access) ||
	    pdn_verbs_longest(exact->context) == 0 || !find_memory(exact))
		return NULL;
	mr = pdn_mr_new(PDN_MR_GIVEN);
	if (mr && pdn_verbs_attach_exact(exact, &object) != PINDOWN_OK) {
		pdn_mr_free(mr);
	} else if (mr && !fill(mr, object, exact)) {
		pindown_detach(object);
		free_given(mr);
	} else if (mr) {
		pdn_mr_set_by(mr, (uintptr_t)exact->caller);
		umem = &mr->umem.umem;
	}
	errno = saved;
	return umem;
}

/* ---- deregistering --------------------------------------------------------------------------- */

/* The process in which a umem was ever stuck; 0: none. A child leaves its parent's alone. */
static pid_t stuck_in;

/* Release pairs with the acquires in take() and pdn_umem_unstick(): the record is complete. */
void pdn_umem_stick(struct pdn_mr *kept)
{
	__atomic_store_n(&kept->state, PDN_MR_STUCK, __ATOMIC_RELEASE);
	__atomic_store_n(&stuck_in, getpid(), __ATOMIC_RELAXED);
}

/* Of several threads that try at the same time, one takes the record. */
static bool take(struct pdn_mr *mr, uint32_t state)
{
	/*
	 * Acquire pairs with the release in pdn_umem_stick(), or for PDN_MR_GIVEN with the one in
	 * pdn_mr_new().
	 */
	return __atomic_compare_exchange_n(&mr->state, &state, PDN_MR_FREE, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_ACQUIRE);
}

int pdn_umem_deregister(struct pdn_mr *mr)
{
	struct ibv_context *context;
	pindown_object *object;
	static bool told;

	if (PDN_UNLIKELY(!take(mr, PDN_MR_GIVEN))) {
		pdn_log_once(&told, PDN_LOG_ERROR,
			     "mlx5dv_devx_umem_dereg: %p is not a umem; ignored",
			     (void *)&mr->umem);
		return EINVAL;
	}
	context = mr->umem.context;
	object = mr->object;
	free_given(mr); /* first: see pdn_verbs_deregister() */
	pindown_detach(object);
	pdn_umem_unstick(context);
	return 0;
}

static void unstick(struct pdn_mr *kept)
{
	int saved = errno;

	if (pdn_mr_is_gone(kept) || pdn_verbs_deregister_made(kept->maker, kept->real) == 0) {
		pdn_mr_set_real(kept, NULL);
		free_given(kept);
	} else {
		pdn_umem_stick(kept);
	}
	errno = saved;
}

void pdn_umem_unstick(struct ibv_context *context)
{
	/* Relaxed: the thread that has ended the objects sees them stuck now or the next time. */
	if (__atomic_load_n(&stuck_in, __ATOMIC_RELAXED) == 0 ||
	    __atomic_load_n(&stuck_in, __ATOMIC_RELAXED) != getpid())
		return;
	for (uint32_t n = 1; pdn_mr_at(n); n++) {
		struct pdn_mr *mr = pdn_mr_at(n);

		/* Acquire pairs as in take(): the context is there. */
		if (__atomic_load_n(&mr->state, __ATOMIC_ACQUIRE) == PDN_MR_STUCK &&
		    mr->verbs.mr.context == context && take(mr, PDN_MR_STUCK))
			unstick(mr);
	}
}
