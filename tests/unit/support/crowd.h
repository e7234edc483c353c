/* SPDX-License-Identifier: MIT */
/* Many threads that are all there at once. Each has used the cache before the next one comes. */
#ifndef CROWD_H
#define CROWD_H

#include "tests/unit/support/cache_test.h"

#define AT(i) (BASE + MIB(2) * (i))
#define CROWD 1100u /* their records are in 18 blocks */

/*
 * Each thread opens crowd_here when it has come, and waits for a gate of its own before it goes. A
 * test's own threads may use them, too.
 */
extern struct gate crowd_here, crowd_may_go[CROWD];
extern struct worker crowd[CROWD];

/* Before all of them: AT(0), of which each gets a region, and AT(1) are memory of the driver. */
void crowd_begin(void);

/* The threads from the first number up to the second, without that one: they come, they end. */
void crowd_start(unsigned from, unsigned to);
void crowd_end(unsigned from, unsigned to);

/* The function of each thread. `may_go` is the gate that it waits for. */
void crowd_get_and_stay(void *may_go);

/* Moves the counts of those that have ended to where they cost nothing, a few at each pin. */
void crowd_move_orphans(void);

#endif
