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
 * the program deregisters a umem on the context, which it does after it has ended its objects. Such
 * a dereg that comes between the refusal and the note of it is counted, and the card is asked
 * again.
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
	pdn_mlx5dv_devx_umem_reg_ex_function *real =
		PDN_VERB_REAL(exact->copy, mlx5dv_devx_umem_reg_ex);
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
	mr->copy = (uint16_t)exact->copy;
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

/* How often the program has deregistered a umem since then. */
static uint32_t looks;

/* Of several threads that try at the same time, one takes the record. */
static bool take(struct pdn_mr *mr, uint16_t state)
{
	/*
	 * Acquire pairs with the store in pdn_umem_stick(), or for PDN_MR_GIVEN with the release in
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

/*
 * The thread that ends the last object of a umem calls pdn_umem_unstick() afterwards. If the card
 * refuses here, the object ends later, and the kernel, which orders the two calls, lets that thread
 * see stuck_in. It then counts, and looks at the state; this one stores the state, and looks at the
 * count. All four are sequentially consistent: one of the two sees the other's store.
 */
int pdn_umem_stick(struct pdn_mr *kept)
{
	uint32_t before;
	int error;

	__atomic_store_n(&stuck_in, getpid(), __ATOMIC_RELAXED);
	do {
		before = __atomic_load_n(&looks, __ATOMIC_SEQ_CST);
		error = pdn_mr_is_gone(kept)
				? 0
				: pdn_verbs_deregister_made(kept->copy, kept->maker, kept->real);
		if (!error) {
			pdn_mr_set_real(kept, NULL);
			free_given(kept);
			return 0;
		}
		/* Pairs with the acquires in take() and is_of() too: the record is complete. */
		__atomic_store_n(&kept->state, PDN_MR_STUCK, __ATOMIC_SEQ_CST);
	} while (__atomic_load_n(&looks, __ATOMIC_SEQ_CST) != before && take(kept, PDN_MR_STUCK));
	return error;
}

void pdn_umem_unstick(struct ibv_context *context)
{
	int saved = errno;

	/* Relaxed: see pdn_umem_stick(). */
	if (__atomic_load_n(&stuck_in, __ATOMIC_RELAXED) == 0 ||
	    __atomic_load_n(&stuck_in, __ATOMIC_RELAXED) != getpid())
		return;
	__atomic_fetch_add(&looks, 1, __ATOMIC_SEQ_CST);
	for (uint32_t n = 1; pdn_mr_at(n); n++) {
		struct pdn_mr *mr = pdn_mr_at(n);

		/* As an acquire it pairs as in take(): the context is there. */
		if (__atomic_load_n(&mr->state, __ATOMIC_SEQ_CST) == PDN_MR_STUCK &&
		    mr->verbs.mr.context == context && take(mr, PDN_MR_STUCK))
			pdn_umem_stick(mr);
	}
	errno = saved;
}
