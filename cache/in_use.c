/* SPDX-License-Identifier: MIT */
/* Which of the regions that end are in use? */
#include "cache/base/barrier.h"
#include "cache/base/test_point.h"
#include "cache/collect.h"
#include "cache/in_use.h"
#include "cache/objects/object.h"
#include "cache/probes.h"
#include "cache/region.h"
#include "cache/trust.h"

void pdn_victims_split_some(struct pdn_victims *victims)
{
	struct pdn_columns held;

	pdn_let_hits_pass(victims->first);
	pdn_columns_of(&held, pdn_holds);
	for (uint32_t n = victims->first; n; n = pdn_regions[n].victim)
		pdn_keep_if(pdn_columns_any(&held, n) || pdn_objects_hold(n), victims, n);
}

/*
 * For eviction, which must leave regions in use alone. No get takes a candidate meanwhile, and a
 * put of one takes the lock; candidates that are held get their state back.
 */
void __attribute__((cold))
pdn_victims_add_idle(struct pdn_victims *victims, uint32_t candidates, enum pindown_reason reason)
{
	struct pdn_sweep sweep = {.victims = victims, .reason = reason};
	struct pdn_columns held;
	bool alone;

	for (uint32_t n = candidates; n; n = pdn_regions[n].victim)
		pdn_region_set_state(n, PDN_DYING);
	PDN_POINT(EVICT_MARKED, pdn_region_base_now(candidates));
	alone = pdn_heavy_barrier();
	pdn_probes_pass(alone);
	PDN_POINT(EVICT_COUNTING, pdn_region_base_now(candidates));
	pdn_columns_of(&held, pdn_holds);
	for (uint32_t n = candidates, next; n; n = next) {
		next = pdn_regions[n].victim;
		if (pdn_columns_any(&held, n) || pdn_objects_hold(n))
			pdn_region_set_checked(n, pdn_regions[n].flags);
		else
			pdn_sweep_add(&sweep, n);
	}
	pdn_sweep_end(&sweep);
}
