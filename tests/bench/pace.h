/* SPDX-License-Identifier: MIT */
/*
 * How fast this thread's processor is at the moment: the ns of a fixed computation in registers. It
 * takes longer with a lower clock, and while other work uses the other half of the processor's
 * core. On a virtual machine that may be a neighbour's work, which no load average shows. Memory
 * and the shared caches are not looked at.
 */
#ifndef BENCH_PACE_H
#define BENCH_PACE_H

#include "bench.h"

#define PACE_LOOKS  2048u /* at most, between two calls of pace_since() */
#define PACE_ROUNDS 1024u

static __thread double pace_values[PACE_LOOKS];
static __thread unsigned pace_count;

static __attribute__((noinline, unused)) void pace_compute(uint64_t a, unsigned rounds)
{
	uint64_t b = a + 1, c = a + 2, d = a + 3;

	for (unsigned i = 0; i < rounds; i++) {
		a = (a << 1) + b;
		b = (b >> 1) ^ c;
		c = (c << 1) + d;
		d = (d >> 1) ^ a;
		__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
	}
}

static inline void pace_look(void)
{
	double begin;

	/* The code and the clock's page may have left the caches. */
	pace_compute((uint64_t)now_ns(), 2);
	begin = now_ns();
	pace_compute((uint64_t)begin, PACE_ROUNDS);
	if (pace_count < PACE_LOOKS)
		pace_values[pace_count++] = now_ns() - begin;
}

/* Where little is measured and much lies between the looks. */
static inline void pace_look_long(void)
{
	for (unsigned i = 0; i < 15; i++)
		pace_look();
}

/* The median of this thread's looks since the last call; 0: there was none. */
static inline double pace_since(void)
{
	double pace = pace_count ? median(pace_values, pace_count) : 0;

	pace_count = 0;
	return pace;
}

#endif
