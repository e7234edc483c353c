/* SPDX-License-Identifier: MIT */
/*
 * Hits, puts and frees against the end of regions and new pins, where one side's stores become
 * visible late: see order_test.h.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>

#include "cache/base/barrier.h"
#include "cache/base/lock.h"
#include "cache/base/thread.h"
#include "cache/hook_events.h"
#include "cache/invalidate.h"
#include "cache/pindown.h"
#include "cache/region.h"
#include "tests/unit/support/order_test.h"
#include "tests/unit/support/syscalls.h"

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
 * Another thread's change has begun, and its membarrier has not: the end must not rely on hits with
 * a fence. One thread plays both threads of the rare side; at the membarrier it is just before the
 * other thread's system call.
 */
static bool another_changes, another_is_refused;

bool play_syscall(long number, const long args[6], long *result)
{
	(void)args;
	(void)result;
	if (number == SYS_membarrier && another_changes) {
		another_changes = false;
		end_it();
	}
	if (number == SYS_membarrier && another_is_refused)
		__atomic_store_n(&pdn_fence_mode, PDN_LOSING_MEMBARRIER, __ATOMIC_SEQ_CST);
	return false;
}

static void end_it_in_a_change(void)
{
	another_changes = true;
	pdn_heavy_barrier();
}

static enum outcome is_holder_known_in_a_change(void)
{
	ck_assert(!another_changes);
	return is_holder_known();
}

START_TEST(a_hit_against_an_end_in_a_change)
{
	static const struct race race = {
		.what = "a hit against an end, before the membarrier of another's change",
		.prepare = idle_region,
		.duel = {.ready = known_region, .there = hit, .here = end_it_in_a_change},
		.judge = is_holder_known_in_a_change,
		.wrong = "a region was unpinned under its holder",
	};

	run(&race, CHANGES);
}
END_TEST

/*
 * Another thread's membarrier is refused before the change of this thread is over. This thread does
 * not know that, and must not end the other's grace period.
 */
static void come(void)
{
	get_and_put(BASE, 1);
}

static void barrier_of_a_change(void)
{
	another_is_refused = true;
	pdn_heavy_barrier();
	another_is_refused = false;
}

static const struct duel other_comes = {NULL, come, skip_barrier_if_broken};
static const struct duel meanwhile = {NULL, skip_barrier_if_broken, barrier_of_a_change};

START_TEST(a_change_while_another_is_refused)
{
	setenv("PINDOWN_BACKEND", "none", 1);
	fake_alloc(BASE, PAGE, FAKE_LINEAR);
	get_and_put(BASE, 1);
	if (pdn_fence_mode == PDN_FENCE_FOR_GOOD) {
		skip_test("the kernel has no membarrier");
		return;
	}
	pdn_barrier_limits = (struct pdn_barrier_limits){.few = ~0u, .many = ~0u};
	duel_begin();
	/* While only one thread has used the cache, it makes no barrier at all. */
	duel_round(&other_comes);
	for (unsigned i = 0; i < 20; i++) {
		__atomic_store_n(&pdn_fence_mode, PDN_MEMBARRIER, __ATOMIC_SEQ_CST);
		duel_round(&meanwhile);
		ck_assert_uint_eq(pdn_fence_mode, PDN_LOSING_MEMBARRIER);
	}
	__atomic_store_n(&pdn_fence_mode, PDN_FENCE_IN_EACH_HIT, __ATOMIC_SEQ_CST);
	duel_end();
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
		seen |= __atomic_load_n(&t->probing, __ATOMIC_SEQ_CST) == number;
	return !seen && !pdn_region_in_use(number);
}

static void evict_it_late(void)
{
	struct pdn_victims victims = {0};

	pdn_lock();
	stores_come_late();
	unseen = broken && is_unseen_without_fence();
	pdn_regions[number].victim = 0;
	pdn_victims_add_idle(&victims, number, PINDOWN_REASON_FLUSHED);
	pdn_unlock();
	pdn_victims_dispatch(&victims);
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
	bool last;

	pdn_lock();
	last = pdn_region_take_kept(number);
	pdn_unlock();
	ck_assert(last);
	pdn_unpin_kept(number);
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
	guard = pdn_end_range(BASE, 0);
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

int main(void)
{
	Suite *suite = suite_create("races: the order of a store and a load");
	TCase *tc = cache_case(suite, "the frequent side's stores come late");

	tcase_add_loop_test(tc, a_hit_against_an_end, 0, PAYERS);
	tcase_add_test(tc, a_hit_against_an_end_in_a_change);
	tcase_add_test(tc, a_change_while_another_is_refused);
	tcase_add_loop_test(tc, a_hit_against_an_eviction, 0, PAYERS);
	tcase_add_loop_test(tc, a_put_against_an_end, 0, PAYERS);
	tcase_add_loop_test(tc, a_free_against_a_pin, 0, PAYERS);
	tc = cache_case(suite, "the rare side's stores come late");
	tcase_add_test(tc, an_eviction_against_a_hit);
	return run_order_suite(suite);
}
