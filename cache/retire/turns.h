/* SPDX-License-Identifier: MIT */
/*
 * Allocations and the frees that retire an address take turns: no other thread's allocation may get
 * the address between the driver's free and the reservation. A retiring free waits until the
 * allocations that are in the driver have returned, and the next ones wait for it. Neither waits
 * without bound, as a thread may have ended there, or be in the driver for long.
 */
#ifndef PDN_TURNS_H
#define PDN_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/visible.h"

/*
 * How long an allocation waits for a retiring free, and the free for allocations. The driver's free
 * may wait for kernels, so the first is short. Tests have longer times.
 */
extern PDN_HIDDEN uint64_t pdn_allocation_waits_ns, pdn_retiring_waits_ns;

/*
 * Set when the first address of the process is about to be retired. Relaxed: the lock orders the
 * rest. An allocation that was in the driver then has taken no turn; one that gets the address sees
 * this when it returns, as the driver's own locks order the free before it.
 */
extern PDN_HIDDEN bool pdn_turns_are_taken;
static inline bool pdn_any_was_retired(void)
{
	return __builtin_expect(__atomic_load_n(&pdn_turns_are_taken, __ATOMIC_RELAXED), 0);
}

/*
 * Lock not held; around a call that allocates addresses. true: pdn_allocation_ended() is due when
 * it has returned. One load until the first address is retired.
 */
bool pdn_allocation_waits(void);
static inline bool pdn_allocation_begins(void)
{
	return pdn_any_was_retired() && pdn_allocation_waits();
}
void pdn_allocation_ended(void);

/*
 * Lock not held. This thread is about to make the driver's free of an address that it retires; and
 * the address is reserved, or can't be.
 */
void pdn_retiring_begins(void);
void pdn_retiring_ended(void);

void pdn_turns_drop_own(void); /* lock held: see thread_quits (base/thread/thread.h) */

#endif
