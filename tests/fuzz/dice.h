/* SPDX-License-Identifier: MIT */
/* The dice of the fuzzers: numbers that follow from a state alone, so that a seed repeats them. */
#ifndef DICE_H
#define DICE_H

#include <stdbool.h>
#include <stdint.h>

/* splitmix64: neighbouring seeds give unrelated numbers */
static inline uint64_t next(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static inline uint64_t below(uint64_t *state, uint64_t limit)
{
	return next(state) % limit;
}

static inline bool one_in(uint64_t *state, uint64_t count)
{
	return below(state, count) == 0;
}

#endif
