/* SPDX-License-Identifier: MIT */
/*
 * What happens to the regions of a list, without the lock: subscribers are notified, objects end,
 * the idle regions are unpinned, and those in use are left to their holders.
 */
#define _GNU_SOURCE
#include "cache/base/thread/barrier.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/test_point.h"
#include "cache/end/dispatch.h"
#include "cache/end/kept.h"
#include "cache/objects/client.h"
#include "cache/objects/end_with.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "cache/pin/region_trace.h"
#include "cache/trace/writer/events.h"
#include "cache/trust/trust.h"

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
static void tell_all(uint32_t number, const struct pdn_ending *ending, bool in_use)
{
	if (pdn_region_flags(&pdn_regions[number]) & PDN_REGION_MISSED)
		pdn_tell_of_miss(&pdn_regions[number], ending->missed);
	if (!pdn_process_is_off())
		tell(&pdn_regions[number], in_use);
	if (pdn_first_object(number) && !pdn_process_is_off())
		pdn_objects_end(number, ending->scope);
}

/*
 * Tell everyone, and unpin the region, or let go of it if it is in use. Somebody may fork
 * meanwhile: in the child the region is the parent's.
 */
static void end(struct pdn_ending *ending, uint32_t number)
{
	bool in_use = __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) == PDN_KEPT;

	PDN_POINT(END_TELLING, pdn_region_base_now(number));
	tell_all(number, ending, in_use);
	if (pdn_process_is_off())
		return;
	if (in_use)
		pdn_let_go(ending);
	else
		pdn_unpin_idle(ending);
}

int pdn_ending_dispatch(struct pdn_ending *ending)
{
	PDN_UNCANCELLED;
	int count = 0;

	if (ending->first)
		pdn_barrier_report();
	for (uint32_t number = ending->first, next; number; number = next, count++) {
		next = pdn_regions[number].next;
		end(ending, number);
	}
	ending->first = 0;
	return count;
}
