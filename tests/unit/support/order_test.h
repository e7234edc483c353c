/* SPDX-License-Identifier: MIT */
/*
 * The order of a store and a load behind it (cache/base/barrier.h), where the processor would rather have it the other way
 * round: what one side stores comes late (duel.h), and unless somebody pays for the order the two sides don't see
 * each other.
 *
 * A race that is never close shows nothing. So every second round is played broken: nobody pays, and it must go
 * wrong, again and again. Where it doesn't, the test is skipped and says so.
 */
#ifndef ORDER_TEST_H
#define ORDER_TEST_H

#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/duel.h"

/*
 * In the round: the rare side, with a membarrier; each, with a fence; the rare side, and each from
 * there on; the rare side, whose membarrier is refused.
 */
enum payers { RARE_PAYS, EACH_PAYS, CHANGES, REFUSED, PAYERS };

enum outcome { RARE_SAW, FREQUENT_SAW, ONE_SAW, NEITHER, OUTCOMES };

struct race {
	const char *what;
	void (*prepare)(void);	     /* by the rare side's thread */
	struct duel duel;	     /* the rare side is here, the frequent one there */
	enum outcome (*judge)(void); /* also tidies up */
	const char *wrong;	     /* what it is if neither has seen the other */
	bool rare_side_late; /* and each pays: broken is what it has seen before its fence */
};

extern bool broken; /* this round */

/*
 * To be called by the rare side as it begins. In a broken round it says that each pays, when the other side has been
 * told that this one does; and no membarrier came in between.
 */
void nobody_pays(void);

/* Until it has been close. The memory at BASE can be registered; the test has chosen the backend "none". */
void play_race(const struct race *race, enum payers who);

/* As run_suite(), where there can be duels. */
int run_order_suite(Suite *suite);

#endif
