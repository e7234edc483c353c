/* SPDX-License-Identifier: MIT */
/* What the trace says of a region. */
#define _GNU_SOURCE
#include "cache/region_trace.h"

#include "cache/region.h"

void __attribute__((noinline))
pd_trace_hit(const struct pindown_region *region, uint64_t addr, uint64_t length)
{
	uint64_t now = pd_ticks();
	struct pd_trace_region what = {
		.addr = addr,
		.size = length,
		.pin_addr = pd_details_of(region)->pin.base,
		.pin_size = pd_details_of(region)->pin.length,
		.buffer_id = pd_details_of(region)->buffer_id,
		.context = (uintptr_t)pd_details_of(region)->context,
		.region = pd_region_number(region),
		.device = pd_details_of(region)->pin.device,
		.flags = pd_region_is_volatile(region) ? PD_TRACE_VOLATILE : 0,
	};

	pd_trace_region(PD_EV_HIT, &what, now, now);
}

void pd_trace_about(enum pd_event event, const struct pindown_region *region, int result,
		    unsigned flags, uint64_t begin, uint64_t end)
{
	struct pd_trace_region what = {
		.addr = region->base,
		.size = region->end - region->base,
		.pin_addr = pd_details_of(region)->pin.base,
		.pin_size = pd_details_of(region)->pin.length,
		.buffer_id = pd_details_of(region)->buffer_id,
		.context = (uintptr_t)pd_details_of(region)->context,
		.region = pd_region_number(region),
		.device = pd_details_of(region)->pin.device,
		.result = result,
		.reason = pd_details_of(region)->reason,
		.flags = (uint16_t)(flags | (pd_region_flags(region) & PD_REGION_VOLATILE
						     ? PD_TRACE_VOLATILE
						     : 0)),
	};

	pd_trace_region(event, &what, begin, end);
}
