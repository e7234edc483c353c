/* SPDX-License-Identifier: MIT */
/*
 * The cache's one lock, for all changes of its tables, and waiting. The lock is never held across a
 * call out: not of the driver, a backend, a subscriber, the trace or the log. Hits don't take it,
 * nor do frees of memory that is not registered.
 *
 * "Unsettled" counts what a free may have to wait for: pins in flight, and regions being unpinned.
 * A free that reads 0, and then finds nothing in the index, has nothing to wait for; see race.h.
 */
#ifndef PD_LOCK_H
#define PD_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/barrier.h"
#include "cache/base/notify.h"
#include "cache/base/process.h"

/*
 * Any lock of pindown's. None is held across a fork: in a child all of them are free; see
 * process.h.
 */
void pd_take(enum pd_lock_name name);
void pd_let_go(enum pd_lock_name name);

void pd_lock(void);
void pd_unlock(void);

/* Set under the lock: counters have changed, and pd_unlock() notifies before it lets go. */
extern __attribute__((visibility("hidden"))) bool pd_untold;
PD_EVENT(untold, (void));

extern __attribute__((visibility("hidden"))) uint32_t pd_unsettled; /* changed under the lock */

/*
 * A bit of it: dma-bufs of the program's own are remembered (foreign_dmabufs.h). It is here so that
 * a free needs one test for both.
 */
#define PD_UNSETTLED_EXPORTS 0x80000000u

/*
 * Lock held. Up: followed by pd_heavy_barrier() where guards are looked for, pairs with the loads
 * in hook_events.c. Down: release, so that a free that reads 0 finds what has settled: in the
 * index, or unpinned.
 */
static inline void pd_unsettled_add(uint32_t change)
{
	__atomic_store_n(&pd_unsettled, __atomic_load_n(&pd_unsettled, __ATOMIC_RELAXED) + change,
			 PD_BEFORE_BARRIER);
}

/* Lock held. Something has settled: wake the threads that wait for it. */
void pd_wake_waiters(void);

/*
 * Lock held; let go while waiting. Waits until something settles or the deadline (monotonic ns)
 * passes; false when it has.
 */
bool pd_wait_settled(uint64_t deadline);

/* Monotonic nanoseconds from now. */
uint64_t pd_deadline(uint64_t ns);

/*
 * How long a get waits for a free, and a free for a pin: two seconds; and a fork for a descriptor
 * that is being made, or the making of one for a fork: a tenth of a second. Tests of a wait that
 * must succeed have longer times, for slow machines.
 */
extern __attribute__((visibility("hidden"))) uint64_t pd_race_wait_ns, pd_fork_wait_ns;

static inline uint64_t pd_race_deadline(void)
{
	return pd_deadline(pd_race_wait_ns);
}

/* Sleep this long, without touching errno. */
void pd_nap(uint64_t ns);

/*
 * One turn of waiting for another thread that will be ready in a few instructions and wakes nobody.
 * The first turns are short; from then on each sleeps, twice as long as the one before, a
 * millisecond at most. A thread that only yielded its processor would never let a thread of lower
 * real-time priority run on it.
 */
struct pd_rest {
	unsigned turns;
};
void pd_rest(struct pd_rest *rest);

/* Sleep while *where holds `value`, until pd_wake_all() or the deadline; or for no reason. */
void pd_sleep_while(uint32_t *where, uint32_t value, uint64_t deadline);
void pd_wake_all(uint32_t *where);

/* In a forked child: no thread waits. */
void pd_lock_fork_child(void);

#endif
