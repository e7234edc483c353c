/* SPDX-License-Identifier: MIT */
/*
 * Two threads, each on a processor of its own, that do one thing each at the same moment, again and again.
 *
 * A processor keeps its stores to itself for a while, and loads what comes behind them before others see them.
 * Usually that while is a few nanoseconds. Stores leave in their order, so a thread that first stores to lines that
 * are in no cache has all that it stores next come to others a microsecond later or two: then who has forgotten a fence
 * is found out in every few rounds.
 */
#ifndef DUEL_H
#define DUEL_H

#include <stdbool.h>

#include "cache/base/barrier.h"

#if defined(__x86_64__) && PD_CAN_ASYM && !defined(__SANITIZE_ADDRESS__)
#define DUEL_HAS_LATE_STORES 1
#else
#define DUEL_HAS_LATE_STORES 0
#endif

struct duel {
	void (*ready)(void); /* by the other thread, before the round; NULL: nothing to be done */
	void (*there)(void); /* by the other thread */
	void (*here)(void);  /* by the caller of duel_round() */
};

/* NULL; or why there can be no duel here. */
const char *duel_why_not(void);

void duel_begin(void);

/* Both have done what they are to do, and know of each other's doings, when this returns. */
void duel_round(const struct duel *duel);
void duel_end(void);

/* In a round, by either thread. Each has done so once before: up to a microsecond or two, so that either may be first. */
void wait_a_bit(void);

/* Once in a round, by either thread: what it stores from here on comes late to the other. */
void stores_come_late(void);

#endif
