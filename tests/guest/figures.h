/* SPDX-License-Identifier: MIT */
/*
 * Measurements on a machine that counts instructions: in the boot "figures" each instruction takes
 * one nanosecond of the guest's clock, whatever the host does. In any other boot the clock is no
 * measure.
 */
#ifndef FIGURES_H
#define FIGURES_H

#include <time.h>

#include "guest.h"

static inline uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* Does a loop of a known number of instructions repeatedly take as many nanoseconds? */
static inline void clock_must_count(void)
{
	uint64_t begin, took;
	int i, tries;

	for (tries = 0; tries < 5; tries++) {
		begin = now();
		for (i = 0; i < 1000000; i++)
			__asm__ volatile("");
		took = now() - begin;
		if (took < 1500000 || took > 4500000)
			test_skipped("the guest's clock does not count instructions");
	}
}

/* The minimum of several turns: an interrupt of the guest makes some of them longer. */
#define TURNS 9
#define min_time(what)                                    \
	({                                                \
		uint64_t best = UINT64_MAX, begin, took;  \
		int turn;                                 \
		for (turn = 0; turn < TURNS; turn++) {    \
			begin = now();                    \
			what;                             \
			took = now() - begin;             \
			best = took < best ? took : best; \
		}                                         \
		best;                                     \
	})

#endif
