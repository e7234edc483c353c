/* SPDX-License-Identifier: MIT */
/* The trace's clock: which one, and how it goes against the system's. For writer.c only. */
#ifndef PD_TRACE_CLOCK_H
#define PD_TRACE_CLOCK_H

#include "cache/trace/format.h"

/* Settle whether the processor's counter can be used: sets pd_ticks_steady. Before the first stamp.
 */
void pd_trace_clock_choose(void);

/* The three clocks at one moment, as nearly as can be had: within some tens of nanoseconds. */
void pd_trace_clock_read(struct pd_trace_clock *clock);

#endif
