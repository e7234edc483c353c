/* SPDX-License-Identifier: MIT */
/*
 * What the trace says of a region. Call these where pdn_tracing() says that the event is written.
 */
#ifndef PDN_REGION_TRACE_H
#define PDN_REGION_TRACE_H

#include <stdint.h>

#include "cache/pindown.h"
#include "cache/trace/writer/events.h"

/* A get of [addr, addr + length) was answered with this region. */
void pdn_trace_hit(const struct pindown_region *region, uint64_t addr, uint64_t length);

/* Something else has happened to it, from `begin` to `end` in ticks; flags: PDN_TRACE_*. */
void pdn_trace_about(enum pdn_event event, const struct pindown_region *region, int result,
		     unsigned flags, uint64_t begin, uint64_t end);

#endif
