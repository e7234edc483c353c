/* SPDX-License-Identifier: MIT */
/*
 * Umems of GPU memory: libmlx5's registrations for objects that a program makes with DEVX commands,
 * by address or by a dma-buf that the program has exported. They are made and cached as regions of
 * exactly the bytes named are (registrations.c); their owner is the device's context.
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
#include <unistd.h>

#include "hook/verbs/verbs.h"

/* The process in which a umem was ever stuck; 0: none. A child leaves its parent's alone. */
static pid_t stuck_in;

/* How often the program has deregistered a umem since then. */
static uint32_t looks;

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
			pdn_mr_free(kept);
			return 0;
		}
		/* Pairs with the acquires in pdn_mr_take() and is_of() too: it is complete. */
		__atomic_store_n(&kept->state, PDN_MR_STUCK, __ATOMIC_SEQ_CST);
	} while (__atomic_load_n(&looks, __ATOMIC_SEQ_CST) != before &&
		 pdn_mr_take(kept, PDN_MR_STUCK));
	return error;
}

void pdn_umem_unstick(struct ibv_context *context)
{
	struct pdn_mr *mr;
	int saved = errno;

	/* Relaxed: see pdn_umem_stick(). */
	if (__atomic_load_n(&stuck_in, __ATOMIC_RELAXED) == 0 ||
	    __atomic_load_n(&stuck_in, __ATOMIC_RELAXED) != getpid())
		return;
	__atomic_fetch_add(&looks, 1, __ATOMIC_SEQ_CST);
	for (PDN_EACH_MR(mr))
		/* As an acquire it pairs as in pdn_mr_take(): the context is there. */
		if (__atomic_load_n(&mr->state, __ATOMIC_SEQ_CST) == PDN_MR_STUCK &&
		    mr->verbs.mr.context == context && pdn_mr_take(mr, PDN_MR_STUCK))
			pdn_umem_stick(mr);
	errno = saved;
}
