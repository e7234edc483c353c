/* SPDX-License-Identifier: MIT */
/* What the trace says of a region. */
#define _GNU_SOURCE
#include "cache/region_trace.h"

#include "cache/region.h"

void __attribute__((noinline))
pdn_trace_hit(const struct pindown_region *region, uint64_t addr, uint64_t length)
{
	uint64_t now = pdn_ticks();
	struct pdn_trace_region what = {
		.addr = addr,
		.size = length,
		.pin_addr = pdn_details_of(region)->pin.base,
		.pin_size = pdn_details_of(region)->pin.length,
		.buffer_id = pdn_details_of(region)->buffer_id,
		.context = (uintptr_t)pdn_details_of(region)->context,
		.region = pdn_region_number(region),
		.device = pdn_details_of(region)->pin.device,
		.flags = pdn_region_is_volatile(region) ? PDN_TRACE_VOLATILE : 0,
	};

	pdn_trace_region(PDN_EV_HIT, &what, now, now);
}

void pdn_trace_about(enum pdn_event event, const struct pindown_region *region, int result,
		     unsigned flags, uint64_t begin, uint64_t end)
{
	struct pdn_trace_region what = {
		.addr = region->base,
		.size = region->end - region->base,
		.pin_addr = pdn_details_of(region)->pin.base,
		.pin_size = pdn_details_of(region)->pin.length,
		.buffer_id = pdn_details_of(region)->buffer_id,
		.context = (uintptr_t)pdn_details_of(region)->context,
		.region = pdn_region_number(region),
		.device = pdn_details_of(region)->pin.device,
		.result = result,
		.reason = pdn_details_of(region)->reason,
		.flags = (uint16_t)(flags | (pdn_region_flags(region) & PDN_REGION_VOLATILE
						     ? PDN_TRACE_VOLATILE
						     : 0)),
	};

	pdn_trace_region(event, &what, begin, end);
}
