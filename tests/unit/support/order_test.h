/* SPDX-License-Identifier: MIT */
/*
 * Order: a store and a later load (cache/base/thread/barrier.h) that the processor would execute
 * the other way round. One side's stores become visible late (duel.h). Unless one side pays for the
 * order with a barrier, the two sides don't see each other.
 *
 * A race that is never close shows nothing. So every second round is played broken: no side pays,
 * and the round must go wrong, again and again. If it never does, the test is skipped and says so.
 */
#ifndef ORDER_TEST_H
#define ORDER_TEST_H

#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/duel.h"

/*
 * Who pays in the round. MEMBARRIER: the rare side, with a membarrier. FENCE_IN_EACH_HIT: each
 * side, with a fence. REFUSED: the rare side, whose membarrier is refused.
 */
enum payers { MEMBARRIER, FENCE_IN_EACH_HIT, REFUSED, PAYERS };

enum outcome { RARE_SAW, FREQUENT_SAW, ONE_SAW, NEITHER, OUTCOMES };

struct race {
	const char *what;
	void (*prepare)(void);	     /* called by the rare side's thread */
	struct duel duel;	     /* the rare side is `here`, the frequent side `there` */
	enum outcome (*judge)(void); /* also cleans up */
	const char *wrong;	     /* the message if neither side has seen the other */
	/* With FENCE_IN_EACH_HIT: a broken round counts what the rare side saw before its fence. */
	bool rare_side_late;
};

extern bool broken; /* in this round no side pays */

/*
 * The rare side calls this as it begins. In a broken round it switches to FENCE_IN_EACH_HIT
 * although the frequent side was told that the rare side pays, and no membarrier came in between.
 */
void skip_barrier_if_broken(void);

/*
 * Plays rounds until the race has been close. The memory at BASE can be registered; the test has
 * chosen the backend "none".
 */
void play_race(const struct race *race, enum payers who);

/* As run_suite(), but skips the whole program where duels are not possible. */
int run_order_suite(Suite *suite);

#endif
