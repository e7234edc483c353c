// SPDX-License-Identifier: MIT
/* Choosing and reading the clock that stamps trace events. */
#define _GNU_SOURCE
#include "cache/trace/writer/clock.h"

#include <string.h>
#include <sys/prctl.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "cache/base/process/system.h"
#include "cache/trace/writer/events.h"
#include "cache/trace/writer/writer.h"

bool pdn_ticks_steady;

static bool is_steady(void)
{
#if defined(__x86_64__)
	static const char name[] =
		"/sys/devices/system/clocksource/clocksource0/current_clocksource";
	static const char others[] = "hpet acpi_pm refined-jiffies";
	int mode = PR_TSC_ENABLE, fd;
	unsigned a, b, c, d;
	char text[32];
	long length;

	/* Bit 8 of edx: the counter runs at one rate in every power state. */
	if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & 1u << 8))
		return false;
	/* A program can have forbidden itself the instruction, with prctl(PR_SET_TSC). */
	if (pdn_sys(SYS_prctl, PR_GET_TSC, &mode) == 0 && mode != PR_TSC_ENABLE)
		return false;
	/* A kernel that found the processors' counters out of step uses one of these instead. */
	fd = pdn_sys_open(name, O_RDONLY);
	length = pdn_sys(SYS_read, fd, text, sizeof(text));
	pdn_sys(SYS_close, fd);
	return length < 2 || !memmem(others, sizeof(others), text, (size_t)length - 1);
#else
	return true;
#endif
}

void pdn_trace_clock_choose(void)
{
	/* Relaxed: the release of the event mask in pdn_trace_open() publishes it. */
	__atomic_store_n(&pdn_ticks_steady, is_steady(), __ATOMIC_RELAXED);
}

void pdn_trace_clock_read(struct pdn_trace_clock *clock)
{
	uint64_t tightest = UINT64_MAX;

	/* Keep the tightest of three readings, since any of them can be interrupted. */
	for (int i = 0; i < 3; i++) {
		uint64_t before = pdn_ticks(), monotonic = pdn_sys_clock_monotonic(),
			 realtime = pdn_sys_clock(CLOCK_REALTIME), after = pdn_ticks();

		if (after - before < tightest) {
			tightest = after - before;
			clock->ticks = pdn_ticks_steady ? before + (after - before) / 2 : monotonic;
			clock->monotonic = monotonic;
			clock->realtime = realtime;
		}
	}
}
