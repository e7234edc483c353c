/* SPDX-License-Identifier: MIT */
/*
 * Unlinking a region: it is live no longer, is in a list of regions that are ending, and leaves the
 * index, its queue and the accounts. No lookup finds it from here on. Lock held for all of these.
 */
#ifndef PDN_UNLINK_H
#define PDN_UNLINK_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/account.h"
#include "cache/base/test_point.h"
#include "cache/ending.h"
#include "cache/index.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/queues.h"
#include "cache/region.h"
#include "cache/trust.h"

/* It is no longer live, but still in the index, in its queue and in the accounts. */
static inline void pdn_begin_end(struct pdn_victims *victims, uint32_t number,
				 enum pindown_reason reason)
{
	struct pindown_region *region = &pdn_regions[number];

	pdn_victims_append(victims, number);
	region->reason = (uint8_t)reason;
	region->killer = victims->killer;
	pdn_region_set_state(number, PDN_DYING);
	pdn_objects_unlink(number, reason, victims->scope);
	PDN_POINT(END_DYING, region->base);
}

/* Why it ends is more than the reason says. true: its free was missed. */
bool pdn_unlink_mark(struct pdn_victims *victims, uint32_t number);

/* Inline: most frees end one region. */
static inline __attribute__((always_inline)) void
pdn_unlink(struct pdn_victims *victims, uint32_t number, enum pindown_reason reason)
{
	struct pindown_region *region = &pdn_regions[number];
	bool missed = false;

	pdn_begin_end(victims, number, reason);
	if (__builtin_expect(victims->missed || victims->are_replaced, 0))
		missed = pdn_unlink_mark(victims, number);
	pdn_index_remove(number, region->base, region->end);
	pdn_queues_remove(number);
	pdn_occupied_add(-1u);
	pdn_account_out(region, missed);
	if (missed)
		pdn_trust_ends();
	PDN_POINT(END_UNLINKED, region->base);
}

/* The same, where time is no matter. */
void pdn_victims_add(struct pdn_victims *victims, uint32_t number, enum pindown_reason reason);

#endif
