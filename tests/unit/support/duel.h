/* SPDX-License-Identifier: MIT */
/*
 * A duel: two threads, each on a processor of its own, do one thing each at the same moment, again
 * and again.
 *
 * A processor holds its stores back for a while and executes later loads before other processors
 * see those stores. Usually this lasts a few nanoseconds. Stores leave the processor in order. So a
 * thread that first stores to lines that are in no cache delays all of its following stores by a
 * microsecond or two, and a missing fence shows in one of every few rounds.
 */
#ifndef DUEL_H
#define DUEL_H

#include <stdbool.h>

#include "cache/base/thread/barrier.h"
#include "tests/unit/support/sanitizers.h"

#if defined(__x86_64__) && PDN_ASYMMETRIC && !UNDER_ASAN
#define DUEL_HAS_LATE_STORES 1
#else
#define DUEL_HAS_LATE_STORES 0
#endif

struct duel {
	void (*ready)(void); /* by the other thread, before the round; NULL: nothing to do */
	void (*there)(void); /* by the other thread */
	void (*here)(void);  /* by the caller of duel_round() */
};

/* NULL if duels are possible here; else the reason why not. */
const char *duel_why_not(void);

void duel_begin(void);

/* When this returns, both threads have done their part and see each other's stores. */
void duel_round(const struct duel *duel);
void duel_end(void);

/*
 * In a round, each thread has called this once before its part: a random delay of up to a
 * microsecond or two, so that either may be first.
 */
void wait_a_bit(void);

/*
 * At most once in a round, by either thread: the other thread sees this thread's following stores
 * late.
 */
void stores_come_late(void);

#endif
