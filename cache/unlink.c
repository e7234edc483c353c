/* SPDX-License-Identifier: MIT */
/* One region that is live no longer leaves the index, its queue and the accounts. */
#include "cache/region.h"
#include "cache/unlink.h"

bool __attribute__((noinline, cold)) pdn_unlink_mark(struct pdn_victims *victims, uint32_t number)
{
	struct pindown_region *region = &pdn_regions[number];
	bool missed = victims->missed && !pdn_region_is_volatile(region);

	pdn_region_set_flags(region, region->flags | (missed ? PDN_REGION_MISSED : 0) |
					     (victims->are_replaced ? PDN_REGION_REPLACED : 0));
	victims->need_more |= missed;
	return missed;
}

void __attribute__((cold))
pdn_victims_add(struct pdn_victims *victims, uint32_t number, enum pindown_reason reason)
{
	pdn_unlink(victims, number, reason);
}
