/* SPDX-License-Identifier: MIT */
/* Which of the regions that end are in use? */
#include "cache/base/thread/barrier.h"
#include "cache/base/test_point.h"
#include "cache/end/in_use.h"
#include "cache/objects/end.h"
#include "cache/hit/announced.h"
#include "cache/hit/region.h"
#include "cache/trust/trust.h"
#include "cache/end/collect.h"

void pdn_ending_split_idle_and_held(struct pdn_ending *ending)
{
	if (!ending->first)
		return;
	pdn_let_hits_pass(ending->first);
	for (uint32_t n = ending->first; n; n = pdn_regions[n].next)
		if (pdn_region_in_use(n) || pdn_objects_hold(n))
			pdn_keep(n);
}

/*
 * For eviction, which must leave regions in use alone. No get takes a candidate meanwhile, and a
 * put of one takes the lock; candidates that are held get their state back.
 */
void pdn_ending_add_idle(struct pdn_ending *ending, uint32_t candidates, enum pindown_reason reason)
{
	bool alone;

	for (uint32_t n = candidates; n; n = pdn_regions[n].next)
		pdn_region_set_state(n, PDN_DYING);
	PDN_POINT(EVICT_MARKED, pdn_region_base_now(candidates));
	alone = pdn_heavy_barrier();
	pdn_announced_pass(alone);
	PDN_POINT(EVICT_COUNTING, pdn_region_base_now(candidates));
	for (uint32_t n = candidates, next; n; n = next) {
		next = pdn_regions[n].next;
		if (pdn_region_in_use(n) || pdn_objects_hold(n))
			pdn_region_set_checked(n, pdn_regions[n].flags);
		else
			pdn_ending_add(ending, n, reason);
	}
}
