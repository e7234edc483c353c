/* SPDX-License-Identifier: MIT */
/* The stripes of hold counts: which thread counts where. */
#ifndef PDN_STRIPES_H
#define PDN_STRIPES_H

#include <stdint.h>

#include "cache/base/visible.h"

struct pdn_thread;

/*
 * Hold counts are kept in stripes: the first threads to get have one of their own each. A thread
 * can't take the stripe of another one, however long that is idle: it may stand between finding the
 * count and changing it. So there are as many stripes as most processes have threads.
 */
#define PDN_STRIPES	     256
#define PDN_STRIPES_AT_FIRST 8 /* the others get memory when a thread takes one */
#define PDN_STRIPE_SHARED    0 /* of all other threads, with atomics */

/*
 * A bit for each stripe that may have counts: those that threads own, orphans, whose threads have
 * ended, and the shared one once it was used. Words from this number on have no bits.
 */
extern PDN_HIDDEN uint64_t pdn_stripes[PDN_STRIPES / 64];
extern PDN_HIDDEN uint32_t pdn_stripe_words;

/* How many orphans there are. Relaxed: a hint. */
extern PDN_HIDDEN uint32_t pdn_stripe_orphans;

/*
 * Take a stripe of hold counts that no other thread uses, or PDN_STRIPE_SHARED where there is none.
 * Then either use it, once it has memory, or give it back.
 */
uint32_t pdn_stripe_take(void);
void pdn_stripe_use(struct pdn_thread *self, uint32_t stripe);
void pdn_stripe_return(uint32_t stripe);

/* A thread ends, or its record is ended for it: the stripe that it owns becomes an orphan. */
void pdn_stripe_give_back(struct pdn_thread *self);

/* Before each hold in the shared stripe. */
void pdn_stripe_use_shared(void);

/*
 * Lock held. Take a stripe that may have counts but belongs to no thread, to move them;
 * PDN_STRIPE_SHARED: there is none. Then it has none any more, and is given back.
 */
uint32_t pdn_stripe_take_orphan(void);
void pdn_stripe_return_orphan(uint32_t stripe);

#endif
