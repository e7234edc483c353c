/* SPDX-License-Identifier: MIT */
/* Unlinking a region, and those that a scope covers. */
#include "cache/end/collect.h"

#include "cache/show/account.h"
#include "cache/base/test_point.h"
#include "cache/hit/index.h"
#include "cache/objects/end_with.h"
#include "cache/room/queues.h"
#include "cache/hit/region.h"
#include "cache/trust/trust.h"

/* It is no longer live, but still in the index, in its queue and in the accounts. */
static void begin_end(struct pdn_ending *ending, uint32_t number, enum pindown_reason reason)
{
	struct pindown_region *region = &pdn_regions[number];

	pdn_ending_append(ending, number);
	region->reason = (uint8_t)reason;
	pdn_region_set_state(number, PDN_DYING);
	pdn_objects_unlink(number, reason, ending->scope);
	PDN_POINT(END_DYING, region->base);
}

void pdn_ending_add(struct pdn_ending *ending, uint32_t number, enum pindown_reason reason)
{
	struct pindown_region *region = &pdn_regions[number];
	bool missed = ending->missed && !pdn_region_is_volatile(region);

	begin_end(ending, number, reason);
	pdn_region_set_flags(region, region->flags | (missed ? PDN_REGION_MISSED : 0) |
					     (ending->are_replaced ? PDN_REGION_REPLACED : 0));
	pdn_index_remove(number, region->base, region->end);
	pdn_queues_remove(number);
	pdn_occupied_add(-1u);
	pdn_account_out(region, missed);
	if (missed)
		pdn_trust_ends();
	PDN_POINT(END_UNLINKED, region->base);
}

/* ---- by scope -------------------------------------------------------------------------------- */

static void collect_range(uint64_t begin, uint64_t end, struct pdn_ending *ending,
			  enum pindown_reason reason)
{
	uint32_t number;

	while ((number = pdn_index_next(&begin, end)) != 0)
		pdn_ending_add(ending, number, reason);
}

static void collect_matching(const struct pdn_scope *scope, struct pdn_ending *ending,
			     enum pindown_reason reason)
{
	for (uint32_t number = pdn_queues_first(), next; number; number = next) {
		struct pdn_memory memory = pdn_memory_of(&pdn_regions[number]);

		next = pdn_queues_next(number);
		if (pdn_scope_covers(scope, &memory))
			pdn_ending_add(ending, number, reason);
	}
}

void pdn_collect(const struct pdn_scope *scope, struct pdn_ending *ending,
		 enum pindown_reason reason)
{
	if (scope->kind != PDN_GUARD_RANGE)
		collect_matching(scope, ending, reason);
	else
		collect_range(scope->begin, scope->end, ending, reason);
}
