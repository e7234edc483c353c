/* SPDX-License-Identifier: MIT */
/* Trace events about a region. */
#define _GNU_SOURCE
#include "cache/pin/region_trace.h"

#include "cache/hit/region.h"

static struct pdn_trace_region fields_of(const struct pindown_region *region, uint64_t addr,
					 uint64_t length)
{
	return (struct pdn_trace_region){
		.addr = addr,
		.size = length,
		.pin_addr = pdn_region_pin_base(region),
		.pin_size = pdn_region_pin_length(region),
		.buffer_id = region->buffer_id,
		.context = (uintptr_t)pdn_region_context(region),
		.region = pdn_region_number(region),
		.device = region->device,
		.flags = pdn_region_is_volatile(region) ? PDN_TRACE_VOLATILE : 0,
	};
}

void pdn_trace_hit(const struct pindown_region *region, uint64_t addr, uint64_t length)
{
	struct pdn_trace_region what = fields_of(region, addr, length);
	uint64_t now = pdn_ticks();

	pdn_trace_region(PDN_EV_HIT, &what, now, now);
}

void pdn_trace_about(enum pdn_event event, const struct pindown_region *region, int result,
		     unsigned flags, uint64_t begin, uint64_t end)
{
	struct pdn_trace_region what = fields_of(region, region->base, region->end - region->base);

	what.result = result;
	what.reason = region->reason;
	what.flags |= (uint16_t)flags;
	pdn_trace_region(event, &what, begin, end);
}
