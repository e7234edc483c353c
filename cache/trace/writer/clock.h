/* SPDX-License-Identifier: MIT */
/* The trace's clock: which one it is, and how it relates to the system's. */
#ifndef PDN_TRACE_CLOCK_H
#define PDN_TRACE_CLOCK_H

#include <stdbool.h>

#include "cache/base/process/system.h"
#include "cache/trace/format.h"

/*
 * A cheap time stamp: the processor's counter if it is steady, else nanoseconds. That is decided
 * when the trace is opened, so stamps are valid only while tracing. Relaxed: a thread that traces
 * has seen the mask (pdn_tracing()) or the trace's state.
 */
extern bool pdn_ticks_steady;

static inline uint64_t pdn_ticks(void)
{
#if defined(__x86_64__)
	if (__builtin_expect(__atomic_load_n(&pdn_ticks_steady, __ATOMIC_RELAXED), 1))
		return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	if (__builtin_expect(__atomic_load_n(&pdn_ticks_steady, __ATOMIC_RELAXED), 1)) {
		uint64_t ticks;

		__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
		return ticks;
	}
#endif
	return pdn_sys_clock_monotonic();
}

/* For the writer, before the first stamp: decide whether the processor's counter is usable. */
void pdn_trace_clock_choose(void);

/* Read the three clocks at the same moment, to within some tens of nanoseconds. */
void pdn_trace_clock_read(struct pdn_trace_clock *clock);

#endif
