/* SPDX-License-Identifier: MIT */
/* The trace's clock: which one it is, and how it relates to the system's. For the writer only. */
#ifndef PDN_TRACE_CLOCK_H
#define PDN_TRACE_CLOCK_H

#include "cache/trace/format.h"

/* Before the first stamp: decide whether the processor's counter is usable (pdn_ticks_steady). */
void pdn_trace_clock_choose(void);

/* Read the three clocks at the same moment, to within some tens of nanoseconds. */
void pdn_trace_clock_read(struct pdn_trace_clock *clock);

#endif
