/* SPDX-License-Identifier: MIT */
/*
 * What happens to the regions of a list, without the lock: subscribers are notified, objects end,
 * the idle regions are unpinned, and those in use are left to their holders.
 */
#define _GNU_SOURCE
#include "cache/base/barrier.h"
#include "cache/base/cancel.h"
#include "cache/base/test_point.h"
#include "cache/dispatch.h"
#include "cache/kept.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/region.h"
#include "cache/region_trace.h"
#include "cache/subscribe.h"
#include "cache/trace/writer.h"
#include "cache/trust.h"
#include "cache/unpin.h"

static unsigned trace_flags(const struct pindown_region *region, bool in_use)
{
	return (in_use ? PDN_TRACE_IN_USE : 0) |
	       (pdn_region_flags(region) & PDN_REGION_MISSED ? PDN_TRACE_MISSED : 0) |
	       (pdn_region_flags(region) & PDN_REGION_REPLACED ? PDN_TRACE_REPLACED : 0);
}

static void tell(const struct pindown_region *region, bool in_use)
{
	enum pdn_event event =
		region->reason == PINDOWN_REASON_EVICTED ? PDN_EV_EVICT : PDN_EV_INVALIDATE;

	if (pdn_tracing(event)) {
		uint64_t now = pdn_ticks();

		pdn_trace_about(event, region, 0, trace_flags(region, in_use), now, now);
	}
	pdn_tell_subscribers(region, in_use);
}

/*
 * Notify everyone who built something on the region or asked to hear of its end. They may call
 * back.
 */
static void tell_all(uint32_t number, const struct pdn_victims *victims, bool in_use)
{
	if (pdn_region_flags(&pdn_regions[number]) & PDN_REGION_MISSED)
		pdn_tell_of_miss(&pdn_regions[number], victims->missed);
	if (!pdn_region_is_abandoned(number))
		tell(&pdn_regions[number], in_use);
	if (pdn_objects_any(number) && !pdn_region_is_abandoned(number))
		pdn_objects_end(number, victims->scope);
}

/* Nobody but a trace can want to hear of the end of any region that this thread has ended. */
static bool is_quiet(void)
{
	return !pdn_tracing(PDN_EV_EVICT) && !pdn_tracing(PDN_EV_INVALIDATE) &&
	       !pdn_has_subscribers() && !pdn_creations_any();
}

/* The same of this one: it is idle, and has only to be unpinned. */
static bool has_only_a_pin(uint32_t number)
{
	return __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) == PDN_DYING &&
	       !pdn_first_object(number) &&
	       !(pdn_region_flags(&pdn_regions[number]) & PDN_REGION_MISSED);
}

/* Tell everyone, and let go of the region if it is in use. false: it is idle and to be unpinned. */
static bool ends_in_company(struct pdn_victims *victims, uint32_t number,
			    struct pdn_unpinned *unpinned)
{
	bool in_use = __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) == PDN_KEPT;

	/* A callback may wait for a free in another thread, which may wait for a dying region. */
	if (in_use || pdn_has_subscribers() || pdn_objects_any(number))
		pdn_unpinned_give_back(victims, unpinned);
	tell_all(number, victims, in_use);
	if (pdn_region_is_abandoned(number))
		return true;
	if (in_use)
		pdn_let_go(victims, number);
	return in_use;
}

/* `quiet` as by is_quiet(); only_pins: moreover, each region of the list has only a pin. */
static int __attribute__((noinline))
end_all(struct pdn_victims *victims, bool quiet, bool only_pins)
{
	PDN_UNCANCELLED;
	struct pdn_unpinned unpinned = {.count = 0};
	int count = 0;

	for (uint32_t number = victims->first, next; number; number = next, count++) {
		next = pdn_regions[number].victim;
		if (unpinned.count == PDN_MOST_UNPINNED)
			pdn_unpinned_give_back(victims, &unpinned);
		PDN_POINT(END_TELLING, pdn_region_base_now(number));
		if (!only_pins && !(quiet && has_only_a_pin(number)) &&
		    ends_in_company(victims, number, &unpinned))
			continue;
		pdn_unpin_next(&unpinned, number);
	}
	pdn_unpinned_give_back(victims, &unpinned);
	return count;
}

int pdn_victims_dispatch_some(struct pdn_victims *victims)
{
	bool quiet = is_quiet();
	bool only_pins = quiet && !victims->need_more && !pdn_any_object_ever();
	int count;

	pdn_barrier_report();
	if (only_pins && victims->first == victims->last)
		count = pdn_unpin_one(victims);
	else
		count = end_all(victims, quiet, only_pins);
	victims->first = 0;
	return count;
}
