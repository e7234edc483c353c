/* SPDX-License-Identifier: MIT */
/*
 * The cache's one lock, for all changes of its tables, and waiting. The lock is never held across a
 * call out: not of the driver, a backend, a subscriber, the trace or the log. Hits don't take it,
 * nor do frees of memory that is not registered.
 */
#ifndef PDN_LOCK_H
#define PDN_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/notify.h"
#include "cache/base/process/process.h"

/*
 * Any lock of pindown's. None is held across a fork: in a child all of them are free; see
 * process.h.
 */
void pdn_lock_one(enum pdn_lock_name name);
void pdn_unlock_one(enum pdn_lock_name name);

void pdn_lock(void);
void pdn_unlock(void);

/*
 * Who looks at all records of a table lets go of the lock after so many of them, and takes it again
 * for the next ones. So other threads wait for a bounded time, however many records there are.
 * Tests set a smaller number.
 */
extern __attribute__((visibility("hidden"))) uint32_t pdn_looks_per_lock;

/* Set under the lock: counters have changed, and pdn_unlock() notifies before it lets go. */
extern __attribute__((visibility("hidden"))) bool pdn_stats_changed;
PDN_EVENT(untold, (void));

/*
 * Lock held. Wakes the threads in pdn_wait_for_work(), as something has ended that they may wait
 * for.
 */
void pdn_wake_waiters(void);

/*
 * Lock held; let go while waiting. true: pdn_wake_waiters() has come; false: the deadline passed.
 */
bool pdn_wait_for_work(uint64_t deadline);

/*
 * The time `ns` nanoseconds from now, as a deadline for the functions below that wait. Their clock
 * stands still while the process is stopped, and while nobody waits.
 */
uint64_t pdn_deadline(uint64_t ns);

/*
 * How long a get waits for a free, and a free for a pin: two seconds; and a fork for a descriptor
 * that is being made, or the making of one for a fork: a tenth of a second. Tests of a wait that
 * must succeed have longer times, for slow machines.
 */
extern __attribute__((visibility("hidden"))) uint64_t pdn_race_wait_ns, pdn_fork_wait_ns;

static inline uint64_t pdn_race_deadline(void)
{
	return pdn_deadline(pdn_race_wait_ns);
}

/*
 * Lock not held. A free has waited until then for that thread's `what`, and says so: in a line
 * once, in the trace each time. true: it is to wait on, as PINDOWN_DEBUG wants it. Otherwise it
 * proceeds, since two threads that free inside callbacks may wait for each other, and since a
 * thread that hangs in the driver must not make all others hang; the memory stays pinned until that
 * thread comes back.
 */
bool pdn_free_waits_on(uint32_t tid, const char *what);
PDN_EVENT(free_has_waited, (uint32_t tid, const char *what, const char *and_now));

/*
 * One turn of waiting for another thread that will be ready in a few instructions and wakes nobody.
 * The first turns are short; from then on each sleeps, twice as long as the one before, a
 * millisecond at most. A thread that only yielded its processor would never let a thread of lower
 * real-time priority run on it.
 */
struct pdn_backoff {
	unsigned turns;
};
void pdn_backoff(struct pdn_backoff *rest);

/* Sleep while *where holds `value`, until pdn_wake_all() or the deadline; or for no reason. */
void pdn_sleep_while(uint32_t *where, uint32_t value, uint64_t deadline);
void pdn_wake_all(uint32_t *where);

#endif
