/* SPDX-License-Identifier: MIT */
/*
 * Finding out which regions are in use. A region that is live no longer can be announced still, and
 * its holds are counted only when that is over: one heavy barrier for all of a list, then a wait
 * for the announcements (announced.h), then the count. Lock held for all of these.
 */
#ifndef PDN_IN_USE_H
#define PDN_IN_USE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/thread/barrier.h"
#include "cache/base/test_point.h"
#include "cache/end/work.h"
#include "cache/end/kept.h"
#include "cache/pindown.h"
#include "cache/hit/announced.h"
#include "cache/hit/region.h"

/*
 * After the barrier and with all announcements over, nobody can take a new hold, and every hold
 * that was taken is counted. A put that is missing in the sum will find the region KEPT and take
 * the lock. `first`: of the regions that are ending.
 */
static inline void pdn_let_hits_pass(uint32_t first)
{
	bool alone = pdn_heavy_barrier();

	PDN_POINT(END_BARRIER, pdn_regions[first].base);
	pdn_announced_pass(alone);
	PDN_POINT(END_COUNTING, pdn_regions[first].base);
}

/*
 * Find out which of a list are in use: they are kept for their holders. The idle ones are this
 * thread's to unpin.
 */
void pdn_ending_split_idle_and_held(struct pdn_ending *ending);

/* Of a list of live regions (linked through ->next), unlink those that nobody holds. */
void pdn_ending_add_idle(struct pdn_ending *ending, uint32_t candidates,
			 enum pindown_reason reason);

#endif
