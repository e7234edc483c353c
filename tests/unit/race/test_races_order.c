/* SPDX-License-Identifier: MIT */
/*
 * Hits, puts and frees against the end of regions and new pins, where one side's stores become
 * visible late: see order_test.h.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>

#include "cache/base/thread/barrier.h"
#include "cache/base/thread/lock.h"
#include "cache/base/thread/thread.h"
#include "cache/hook_events.h"
#include "cache/end/invalidate.h"
#include "cache/pindown.h"
#include "cache/end/work.h"
#include "cache/hit/region.h"
#include "tests/unit/support/order_test.h"

static void run(const struct race *race, enum payers who)
{
	setenv("PINDOWN_BACKEND", "none", 1);
	fake_alloc(BASE, PAGE, FAKE_LINEAR);
	play_race(race, who);
}

static void idle_region(void)
{
	get_and_put(BASE, 1);
}

static pindown_region *region; /* got by the other thread */

/* ---- a hit ---- */

static void known_region(void)
{
	get_and_put(BASE, 1);
}

static void hit(void)
{
	stores_come_late();
	if (pindown_get(BASE, 1, PINDOWN_GET_CACHED, &region) != PINDOWN_OK)
		region = NULL;
}

static void end_it(void)
{
	skip_barrier_if_broken();
	pindown_invalidate(BASE, 1);
}

static void evict_it(void)
{
	skip_barrier_if_broken();
	pindown_flush();
}

static enum outcome is_holder_known(void)
{
	enum outcome outcome = FREQUENT_SAW;

	if (region)
		outcome = stats().regions ? RARE_SAW : NEITHER;
	pindown_put(region);
	return outcome;
}

START_TEST(a_hit_against_an_end)
{
	static const struct race race = {
		.what = "a hit against an end",
		.prepare = idle_region,
		.duel = {.ready = known_region, .there = hit, .here = end_it},
		.judge = is_holder_known,
		.wrong = "a region was unpinned under its holder",
	};

	run(&race, (enum payers)_i);
}
END_TEST

START_TEST(a_hit_against_an_eviction)
{
	static const struct race race = {
		.what = "a hit against an eviction",
		.prepare = idle_region,
		.duel = {.ready = known_region, .there = hit, .here = evict_it},
		.judge = is_holder_known,
		.wrong = "a region was evicted under its holder",
	};

	run(&race, (enum payers)_i);
}
END_TEST

/*
 * The same, where the eviction's own stores are late. They must be made after it has taken the
 * lock, because that waits for earlier stores. A broken round counts what the eviction would see
 * without a fence; the eviction then continues with one.
 */
static uint32_t number;
static bool unseen;

static void idle_region_of_number(void)
{
	region = must_get(BASE, 1);
	number = pdn_region_number(region);
	pindown_put(region);
}

/* Hits a little later, because the eviction has more to do first. */
static void hit_later(void)
{
	wait_a_bit();
	if (pindown_get(BASE, 1, PINDOWN_GET_CACHED, &region) != PINDOWN_OK)
		region = NULL;
}

static bool is_unseen_without_fence(void)
{
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t;
	bool seen = false;

	__atomic_store_n(&pdn_briefs[number].state, PDN_DYING, PDN_BEFORE_BARRIER);
	while ((t = pdn_walk_next(&walk)))
		seen |= __atomic_load_n(&t->announced, __ATOMIC_SEQ_CST) == number;
	return !seen && !pdn_region_in_use(number);
}

static void evict_it_late(void)
{
	struct pdn_ending ending = {0};

	pdn_lock();
	stores_come_late();
	unseen = broken && is_unseen_without_fence();
	pdn_regions[number].next = 0;
	pdn_ending_add_idle(&ending, number, PINDOWN_REASON_FLUSHED);
	pdn_unlock();
	pdn_ending_dispatch(&ending);
}

static enum outcome would_holder_be_known(void)
{
	bool was_unseen = region && unseen;
	enum outcome outcome = is_holder_known();

	return was_unseen ? NEITHER : outcome;
}

START_TEST(an_eviction_against_a_hit)
{
	static const struct race race = {
		.what = "an eviction against a hit",
		.prepare = idle_region_of_number,
		.duel = {.ready = known_region, .there = hit_later, .here = evict_it_late},
		.judge = would_holder_be_known,
		.wrong = "a region was evicted under its holder",
		.rare_side_late = true,
	};

	run(&race, FENCE_IN_EACH_HIT);
}
END_TEST

/* ---- a put ---- */

static void held_region(void)
{
	region = must_get(BASE, 1);
}

static void put(void)
{
	stores_come_late();
	pindown_put(region);
}

/* Unpins the region that a put left behind, although the put should have taken the lock. */
static void clear_away(uint32_t number)
{
	struct pdn_ending last = {0};

	pdn_lock();
	pdn_region_take_kept(&last, number);
	pdn_unlock();
	ck_assert(last.first);
	pdn_unpin_kept(&last);
}

static enum outcome is_nothing_kept(void)
{
	if (!stats().kept_regions)
		return ONE_SAW; /* which of the two, can't be told any more */
	clear_away(pdn_region_number(region));
	return NEITHER;
}

START_TEST(a_put_against_an_end)
{
	static const struct race race = {
		.what = "a put against an end",
		.prepare = idle_region,
		.duel = {.ready = held_region, .there = put, .here = end_it},
		.judge = is_nothing_kept,
		.wrong = "the last put did not unpin the region: it is kept for ever",
	};

	run(&race, (enum payers)_i);
}
END_TEST

/* ---- a free ---- */

static pdn_guard guard;
static bool guard_is_up, pinned;
static uint64_t races_lost;

static void nothing_pinned(void)
{
	races_lost = stats().lost_races;
}

static void guard_down(void)
{
	if (guard_is_up)
		pdn_ended(guard);
}

static void begin_free(void)
{
	stores_come_late();
	guard = pdn_end_range(BASE,
			      PAGE); /* without a question to the driver, which has a barrier */
	guard_is_up = true;
}

static void pin(void)
{
	skip_barrier_if_broken();
	pinned = pindown_get(BASE, 1, 0, &region) == PINDOWN_OK;
}

/* The guard is still up. */
static enum outcome is_nothing_live(void)
{
	bool live = pinned && pindown_region_is_live(region);

	if (pinned)
		pindown_put(region);
	if (live) {
		pindown_invalidate(BASE, 1);
		return NEITHER;
	}
	return pinned || stats().lost_races != races_lost ? FREQUENT_SAW : RARE_SAW;
}

START_TEST(a_free_against_a_pin)
{
	static const struct race race = {
		.what = "a free against a pin",
		.prepare = nothing_pinned,
		.duel = {.ready = guard_down, .there = begin_free, .here = pin},
		.judge = is_nothing_live,
		.wrong = "a free has begun and found nothing, and a pin has found no guard",
	};

	pdn_race_wait_ns = 0;		   /* neither waits for the other, nor yields */
	setenv("PINDOWN_LOG", "error", 1); /* the cache would report that */
	run(&race, (enum payers)_i);
}
END_TEST

/* ---- a free of what lies beside it ---- */

static struct pdn_flight flight;
static bool flight_saw;

static void no_flight(void)
{
	flight_saw = false;
}

static void free_beside(void)
{
	stores_come_late();
	guard = pdn_end_range(BASE + PAGE, PAGE);
	guard_is_up = true;
}

/* As for a descriptor of a region: the flight begins under the lock, without a barrier. */
static void reach_beside(void)
{
	skip_barrier_if_broken();
	pdn_flight_add(&flight, BASE, BASE + PAGE);
	flight_saw = pdn_flight_reach_further(&flight, BASE, BASE + 2 * PAGE) & PDN_GUARDED;
}

static enum outcome is_one_seen(void)
{
	enum outcome outcome = flight.lost ? FREQUENT_SAW : flight_saw ? RARE_SAW : NEITHER;

	pdn_flight_end_unlocked(&flight);
	return outcome;
}

START_TEST(a_free_against_a_reach)
{
	static const struct race race = {
		.what = "a free against a reach",
		.prepare = no_flight,
		.duel = {.ready = guard_down, .there = free_beside, .here = reach_beside},
		.judge = is_one_seen,
		.wrong = "a free has begun and found no flight, which has found no guard",
	};

	pdn_race_wait_ns = 0;
	setenv("PINDOWN_LOG", "error", 1);
	fake_alloc(BASE + PAGE, PAGE, FAKE_LINEAR);
	run(&race, (enum payers)_i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: the order of a store and a load");
	TCase *tc = cache_case(suite, "the frequent side's stores come late");

	tcase_add_loop_test(tc, a_hit_against_an_end, 0, PAYERS);
	tcase_add_loop_test(tc, a_hit_against_an_eviction, 0, PAYERS);
	tcase_add_loop_test(tc, a_put_against_an_end, 0, PAYERS);
	tcase_add_loop_test(tc, a_free_against_a_pin, 0, PAYERS);
	tcase_add_loop_test(tc, a_free_against_a_reach, 0, PAYERS);
	tc = cache_case(suite, "the rare side's stores come late");
	tcase_add_test(tc, an_eviction_against_a_hit);
	return run_order_suite(suite);
}
