/* SPDX-License-Identifier: MIT */
/* Plays the races of order_test.h, whole and broken, until they have been close often enough. */
#define _GNU_SOURCE
#include "tests/unit/support/order_test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cache/base/thread/barrier.h"
#include "tests/unit/support/refuse.h"

/* ---- who pays ---- */

static const char *const payer_names[] = {"the rare side pays", "each side pays",
					  "the rare side is refused its membarrier"};

static void let_pay(enum payers who)
{
	__atomic_store_n(&pdn_fence_mode,
			 who == FENCE_IN_EACH_HIT ? PDN_FENCE_FOR_GOOD : PDN_MEMBARRIER,
			 __ATOMIC_SEQ_CST);
}

/* ---- rounds ---- */

bool broken;
static unsigned refusals; /* in rounds that must have one */

void skip_barrier_if_broken(void)
{
	if (broken)
		__atomic_store_n(&pdn_fence_mode, PDN_FENCE_FOR_GOOD, __ATOMIC_RELAXED);
}

static enum outcome play(const struct race *race, enum payers who)
{
	enum outcome outcome;

	race->prepare();
	let_pay(broken && !race->rare_side_late ? MEMBARRIER : who);
	duel_round(&race->duel);
	refusals += who == REFUSED && !broken && pdn_fence_mode == PDN_FENCE_FOR_GOOD;
	let_pay(who == REFUSED ? FENCE_IN_EACH_HIT : MEMBARRIER);
	outcome = race->judge();
	ck_assert_msg(broken || outcome != NEITHER, "%s, %s: %s", race->what, payer_names[who],
		      race->wrong);
	return outcome;
}

/*
 * How often a broken round must go wrong (LONG with CHECK_LONG=1). Unbroken rounds are as many, so
 * they have had the same chance.
 */
#define ENOUGH_LONG  100
#define ENOUGH_SHORT 25
static unsigned enough;

#define PATIENCE 15 /* seconds */

/*
 * A limit for all races of a program. Each race that comes later still gets a little time. On a
 * busy machine, or one whose processors' stores are seldom late, no race may ever be close, and a
 * program's time is limited (tests/run).
 */
#define PATIENCE_FOR_ALL_LONG  120
#define PATIENCE_FOR_ALL_SHORT 30
#define LITTLE_PATIENCE	       2
static time_t end_of_all;

static time_t end_of_race(enum payers who)
{
	time_t now = time(NULL), end = now + (who == REFUSED ? PATIENCE / 2 : PATIENCE);

	if (end <= end_of_all)
		return end;
	return end_of_all > now + LITTLE_PATIENCE ? end_of_all : now + LITTLE_PATIENCE;
}

static bool was_close(const unsigned *when_broken, enum payers who)
{
	return when_broken[NEITHER] >= enough && (who != REFUSED || refusals >= enough);
}

/* Two threads meet too rarely when other programs want the processors. */
static const char *load_text(void)
{
	static char text[100];
	double load = 0;

	getloadavg(&load, 1);
	snprintf(text, sizeof(text), "due to load (%.1f on %ld processors); alone it does more",
		 load, sysconf(_SC_NPROCESSORS_ONLN));
	return text;
}

static void play_until_it_was_close(const struct race *race, enum payers who)
{
	unsigned whole[OUTCOMES] = {0}, when_broken[OUTCOMES] = {0};
	time_t end = end_of_race(who);

	while (!was_close(when_broken, who) && time(NULL) < end) {
		broken = false;
		whole[play(race, who)]++;
		broken = true;
		when_broken[play(race, who)]++;
	}
	broken = false;
	printf("%s, %s: the rare side saw the other in %u rounds, was seen in %u, either in %u; "
	       "neither in %u of as many broken ones\n",
	       race->what, payer_names[who], whole[RARE_SAW], whole[FREQUENT_SAW], whole[ONE_SAW],
	       when_broken[NEITHER]);
	if (!was_close(when_broken, who))
		skip_test("%s, %s: only %u of the broken rounds went wrong, %u are needed: %s",
			  race->what, payer_names[who], when_broken[NEITHER], enough, load_text());
}

static void come(void)
{
	is_cached(BASE, 1);
}

static void do_nothing(void)
{
}

/* While only one thread has used the cache, it makes no barrier at all. */
static const struct duel other_comes = {NULL, come, do_nothing};

void play_race(const struct race *race, enum payers who)
{
	get_and_put(BASE, 1);
	if (pdn_fence_mode == PDN_FENCE_FOR_GOOD && who != FENCE_IN_EACH_HIT) {
		skip_test("%s, %s: the kernel has no membarrier", race->what, payer_names[who]);
		return;
	}
	/* Each round has a grace period; late stores are late by some microseconds only. */
	pdn_barrier_grace_ns = 500000;
	if (who == REFUSED && !refuse_system_call(SYS_membarrier, EPERM)) {
		skip_test("%s: no seccomp filter can be installed here", race->what);
		return;
	}
	duel_begin();
	duel_round(&other_comes);
	play_until_it_was_close(race, who);
	duel_end();
}

int run_order_suite(Suite *suite)
{
	const char *why_not = duel_why_not();
	bool is_long = wants_long_rounds();

	enough = is_long ? ENOUGH_LONG : ENOUGH_SHORT;
	end_of_all = time(NULL) + (is_long ? PATIENCE_FOR_ALL_LONG : PATIENCE_FOR_ALL_SHORT);
	if (!why_not)
		return run_suite(suite);
	srunner_free(srunner_create(suite));
	printf("skipped: %s\n", why_not);
	return 77;
}
