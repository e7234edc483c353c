/* SPDX-License-Identifier: MIT */
/* What the trace says of a region. Call these where pd_tracing() says that the event is written. */
#ifndef PD_REGION_TRACE_H
#define PD_REGION_TRACE_H

#include <stdint.h>

#include "cache/pindown.h"
#include "cache/trace/writer.h"

/* A get of [addr, addr + length) was answered with this region. */
void pd_trace_hit(const struct pindown_region *region, uint64_t addr, uint64_t length);

/* Something else has happened to it, from `begin` to `end` in ticks; flags: PD_TRACE_*. */
void pd_trace_about(enum pd_event event, const struct pindown_region *region, int result,
		    unsigned flags, uint64_t begin, uint64_t end);

#endif
