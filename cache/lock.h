/* SPDX-License-Identifier: MIT */
/*
 * The cache's one lock, for all changes of its tables. It is never held across a call out: not of
 * the driver, a backend, a subscriber, the trace or the log. Hits don't take it, nor do frees of
 * memory that is not registered.
 *
 * "Unsettled" counts what a free may have to wait for: pins in flight, and regions being unpinned.
 * A free that reads 0, and then finds nothing in the index, has nothing to wait for; see guard.h.
 */
#ifndef PD_LOCK_H
#define PD_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "asym.h"

void pd_lock(void);
void pd_unlock(void);

extern __attribute__((visibility("hidden"))) uint32_t pd_unsettled; /* changed under the lock */

/*
 * A bit of it: dma-bufs of the program's own are remembered (exports.h). It is here so that a free
 * asks one question for both.
 */
#define PD_UNSETTLED_EXPORTS 0x80000000u

/*
 * Lock held. Up: followed by pd_heavy_barrier() where guards are looked for, pairs with the loads in events.c. Down:
 * release, so that a free that reads 0 finds what has settled: in the index, or unpinned.
 */
static inline void pd_unsettled_add(uint32_t change)
{
	__atomic_store_n(&pd_unsettled, __atomic_load_n(&pd_unsettled, __ATOMIC_RELAXED) + change,
			 PD_BEFORE_BARRIER);
}

/* Lock held. Something has settled: wake who waits for it. */
void pd_wake_waiters(void);

/*
 * Lock held; let go while waiting. Waits until something settles or the deadline (monotonic ns)
 * passes; false when it has.
 */
bool pd_wait_settled(uint64_t deadline);

/* Monotonic nanoseconds from now. */
uint64_t pd_deadline(uint64_t ns);

/*
 * So long a get waits for a free, and a free for a pin: two seconds; and a fork for a pin: a tenth of one. Tests
 * that are to see such a wait come to its end have more patience, for slow machines.
 */
extern __attribute__((visibility("hidden"))) uint64_t pd_race_wait_ns, pd_fork_wait_ns;

static inline uint64_t pd_race_deadline(void)
{
	return pd_deadline(pd_race_wait_ns);
}

/* Sleep so long, without touching errno. */
void pd_nap(uint64_t ns);

/* In a forked child: the lock is free, nobody waits. */
void pd_lock_fork_child(void);

#endif
