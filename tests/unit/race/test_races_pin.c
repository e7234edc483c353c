/* SPDX-License-Identifier: MIT */
/*
 * A pin in one thread against an action in another, at each edge of each driver call that the pin
 * makes. An edge is the begin or the end of such a call (fake_driver.h). The action is started
 * there and runs until it ends or waits for the pin; then the pin continues. A sweep ends when the
 * pin has no more edges.
 *
 * [gdrcopy] invalidation by a racing free, of the same and of a neighbouring range.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>

#include "cache/end/work.h"
#include "tests/unit/support/edges_test.h"

START_TEST(a_pin_loses_against_a_free)
{
	sweep_losing(free_it, FAKE_LINEAR);
}
END_TEST

START_TEST(a_pin_loses_against_an_async_free)
{
	sweep_losing(free_it, FAKE_POOL);
}
END_TEST

/* The memory is still there: the get succeeds, and what it has pinned does not outlive the put. */
START_TEST(a_pin_against_a_free_that_acts_later)
{
	pindown_region *region;
	unsigned edge = 0;
	int result;

	for (;; edge++) {
		fake_alloc(BASE, LENGTH, FAKE_LINEAR);
		pdn_allocated(BASE, LENGTH);
		if (!get_racing_at(edge, BASE, free_it_later, &result, &region))
			break;
		ck_assert_msg(result == PINDOWN_OK, "edge %u: %s", edge, pindown_strerror(result));
		ck_assert_msg(!pindown_region_is_live(region), "edge %u: it is trusted", edge);
		pindown_put(region);
		ck_assert_uint_eq(stats().regions, 0);
		assert_clean_after_race();
		really_free(BASE);
	}
	pindown_put(region);
	ck_assert_uint_ge(edge, 8);
}
END_TEST

START_TEST(a_pin_loses_against_an_unmap)
{
	sweep_losing(unmap_it, FAKE_VMM);
}
END_TEST

START_TEST(a_pin_loses_against_the_end_of_its_context)
{
	sweep_losing(destroy_its_context, FAKE_LINEAR);
}
END_TEST

START_TEST(a_pin_loses_against_a_reset_of_its_device)
{
	sweep_losing(reset_its_device, FAKE_LINEAR);
}
END_TEST

START_TEST(a_pin_loses_against_a_checkpoint)
{
	sweep_losing(end_everything, FAKE_LINEAR);
}
END_TEST

/*
 * A free that begins at one edge, and whose driver call comes at a later edge, or when the pin has
 * ended.
 */
static struct {
	bool through, go; /* past pdn_end_range(); the driver's free may run */
	unsigned more;	  /* edges before the driver's free */
} slow;

static void free_when_told(uint64_t base)
{
	pdn_guard guard = pdn_end_range(base, 0);

	other.exports_after_end = fake_open_exports_of(other.old_id);
	__atomic_store_n(&slow.through, true, __ATOMIC_SEQ_CST);
	wait_until(__atomic_load_n(&slow.go, __ATOMIC_SEQ_CST) || !pdn_works_any());
	really_free(base);
	pdn_ended(guard);
}

static void tell_to_free(void *arg)
{
	(void)arg;
	__atomic_store_n(&slow.go, true, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&slow.through, __ATOMIC_SEQ_CST) && !worker_is_done(&other.worker))
		sched_yield();
}

static void begin_to_free(void *arg)
{
	start_other(arg);
	fake_at_edge(FAKE_CALLS, slow.more, tell_to_free, NULL);
}

/* Returns false if the pin does not have that many edges. */
static bool get_with_a_slow_free(unsigned first, unsigned more)
{
	pindown_region *region = NULL;

	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	slow.through = slow.go = false;
	slow.more = more;
	other.act = free_when_told;
	other.base = BASE;
	other.edge = first;
	other.worker.tid = 0;
	fake_at_edge(FAKE_CALLS, first, begin_to_free, NULL);
	int result = pindown_get(BASE, LENGTH, 0, &region);
	bool met = other.worker.tid != 0;
	fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
	if (!met) {
		ck_assert_int_eq(result, PINDOWN_OK);
		pindown_put(region);
		ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
		return false;
	}
	worker_join(&other.worker);
	ck_assert_msg(result == PINDOWN_ERR_NOT_DEVICE, "edges %u and %u: %s", first, more,
		      pindown_strerror(result));
	ck_assert_uint_eq(stats().regions, 0);
	assert_clean_after_race();
	return true;
}

START_TEST(a_pin_loses_against_a_free_that_takes_its_time)
{
	unsigned first = 0;

	for (; get_with_a_slow_free(first, 0); first++)
		for (unsigned more = 1; more < 12; more++)
			get_with_a_slow_free(first, more);
	ck_assert_uint_ge(first, 8);
}
END_TEST

/* Other memory, registered or not: its end costs the pin only a look at the guards. */
static void free_others(uint64_t base)
{
	ck_assert_int_eq(watched_free(base + 4 * LENGTH), FAKE_SUCCESS);
	ck_assert_int_eq(watched_free(base + 8 * LENGTH), FAKE_SUCCESS);
}

START_TEST(a_pin_is_not_lost_to_a_free_of_other_memory)
{
	unsigned edge = 0, max_calls = 0, calls = 0;
	pindown_region *region;
	bool met = true;
	int result;

	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	for (; met; edge++) {
		max_calls = calls > max_calls ? calls : max_calls;
		fake_alloc(BASE + 4 * LENGTH, LENGTH, FAKE_LINEAR);
		fake_alloc(BASE + 8 * LENGTH, LENGTH, FAKE_POOL);
		get_and_put(BASE + 8 * LENGTH, 1);
		unsigned before = fake_count(FAKE_CALLS);
		met = get_racing_at(edge, BASE, free_others, &result, &region);
		ck_assert_int_eq(result, PINDOWN_OK);
		ck_assert_uint_eq(fake_exports_made(), 2 * (edge + 1));
		calls = fake_count(FAKE_CALLS) - before;
		pindown_put(region);
		ck_assert_int_eq(pindown_invalidate(BASE, LENGTH), 1);
		if (met)
			continue;
		watched_free(BASE + 4 * LENGTH);
		watched_free(BASE + 8 * LENGTH);
	}
	ck_assert_uint_ge(edge, 8);
	ck_assert_uint_eq(stats().lost_races, 0);
	/* Each of the two frees asks how far its memory reaches. */
	ck_assert_uint_eq(max_calls, calls + 2);
}
END_TEST

/* In the end there is memory, and the get finds it, old or new. */
static void sweep_finding(void (*act)(uint64_t), enum fake_kind kind)
{
	unsigned edge = 0;
	pindown_region *region;
	bool met = true;
	int result;

	fake_alloc(BASE, LENGTH, kind);
	for (; met; edge++) {
		pindown_flush();
		met = get_racing_at(edge, BASE, act, &result, &region);
		/*
		 * The pin was told to give up, and may have asked the driver again between the free
		 * and the allocation.
		 */
		if (result == PINDOWN_ERR_NOT_DEVICE && act == free_and_reuse_it)
			result = pindown_get(BASE, 1, 0, &region);
		ck_assert_msg(result == PINDOWN_OK, "edge %u: %s", edge, pindown_strerror(result));
		ck_assert_uint_eq(pindown_region_buffer_id(region), fake_id(BASE));
		ck_assert_int_eq(pindown_region_is_live(region), 1);
		ck_assert_uint_eq(fake_open_exports(), 1);
		assert_clean_after_race();
		pindown_put(region);
		ck_assert(is_cached(BASE, LENGTH));
	}
	ck_assert_uint_ge(edge, 8);
}

START_TEST(a_pin_finds_what_has_taken_the_place)
{
	sweep_finding(free_and_reuse_it, FAKE_LINEAR);
}
END_TEST

START_TEST(a_pin_survives_a_free_that_fails)
{
	sweep_finding(fail_to_free_it, FAKE_LINEAR);
}
END_TEST

/* An unwatched free, then a watched allocation at the same address. */
static void replace_unseen(uint64_t base)
{
	ck_assert_int_eq(fake_free_unseen(base), FAKE_SUCCESS);
	watched_alloc(base, LENGTH, FAKE_LINEAR);
}

START_TEST(a_pin_notices_an_allocation_in_its_place)
{
	sweep_finding(replace_unseen, FAKE_LINEAR);
}
END_TEST

static void replace_and_recheck(uint64_t base)
{
	ck_assert_int_eq(fake_free_unseen(base), FAKE_SUCCESS);
	fake_alloc(base, LENGTH, FAKE_LINEAR);
	pdn_recheck(NULL);
}

START_TEST(a_pin_notices_a_recheck)
{
	sweep_finding(replace_and_recheck, FAKE_LINEAR);
	expected_missed = stats().missed_invalidations;
}
END_TEST

static void invalidate_it(uint64_t base)
{
	ck_assert_int_ge(pindown_invalidate(base, LENGTH), 0);
}

START_TEST(a_pin_survives_an_invalidation_without_a_free)
{
	sweep_finding(invalidate_it, FAKE_LINEAR);
}
END_TEST

/* A neighbour in the same page is allocated and freed, which changes nothing. */
static void free_and_reuse_neighbour(uint64_t base)
{
	other.old_id = 0;
	ck_assert_int_eq(watched_free(base - 512), FAKE_SUCCESS);
	watched_alloc(base - 512, 512, FAKE_LINEAR);
}

START_TEST(a_pin_and_a_neighbours_free)
{
	fake_alloc(BASE + 512, 512, FAKE_LINEAR);
	fake_alloc(BASE + 1024, LENGTH, FAKE_LINEAR);
	bool met = true;

	for (unsigned edge = 0; met; edge++) {
		pindown_region *region;
		int result;
		get_and_put(BASE + 512, 512);
		met = get_racing_at(edge, BASE + 1024, free_and_reuse_neighbour, &result, &region);
		ck_assert_msg(result == PINDOWN_OK, "edge %u: %s", edge, pindown_strerror(result));
		ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
		ck_assert_int_eq(pindown_region_is_live(region), 1);
		ck_assert_int_eq(is_cached(BASE + 512, 512), !met);
		pindown_put(region);
		ck_assert_int_eq(pindown_invalidate(BASE + 1024, 0), 1);
	}
}
END_TEST

/* ---- the buffer id, before and after ---- */

START_TEST(a_pin_of_memory_that_changed_meanwhile_is_given_up)
{
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	fake_swap_during_export(1);
	pindown_region *region = must_get(BASE, 1);
	ck_assert_uint_eq(pindown_region_buffer_id(region), fake_id(BASE));
	ck_assert_uint_eq(fake_exports_made(), 2);
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert_uint_eq(stats().lost_races, 1);
	pindown_put(region);
}
END_TEST

START_TEST(memory_that_never_stays_the_same_is_busy)
{
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	fake_swap_during_export(UINT32_MAX);
	must_refuse(BASE, 1, PINDOWN_ERR_BUSY);
	fake_swap_during_export(0);
	ck_assert_uint_eq(fake_open_exports(), 0);
	get_and_put(BASE, 1);
}
END_TEST

/*
 * Another thread has pinned the region since this one looked, and then the memory was replaced
 * unseen. Volatile memory is checked then, too.
 */
static void pin_and_replace(uint64_t base)
{
	get_and_put(base, 1);
	ck_assert_int_eq(fake_free_unseen(base), FAKE_SUCCESS);
	fake_alloc(base, LENGTH, FAKE_LINEAR);
}

START_TEST(volatile_memory_pinned_meanwhile_is_checked)
{
	pdn_volatile(BASE, LENGTH);
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	bool met = true;

	for (unsigned edge = 0; met; edge++) {
		pindown_region *region;
		int result;
		uint64_t before = fake_id(BASE);
		pindown_flush();
		met = get_racing_at(edge, BASE, pin_and_replace, &result, &region);
		ck_assert_msg(result == PINDOWN_OK, "edge %u: %s", edge, pindown_strerror(result));
		/*
		 * A replacement after the driver's last answer can't be noticed: the memory is
		 * volatile. But the cache must use every answer that it got.
		 */
		if (met && fake_id(BASE) != pindown_region_buffer_id(region)) {
			ck_assert_uint_ne(before, 0);
			ck_assert_msg(edge >= 5, "edge %u: a stale region", edge);
		}
		pindown_put(region);
	}
}
END_TEST

/* ---- no lock is held across a driver call ---- */

static void hear(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
}

static void use_the_rest_of_the_cache(uint64_t base)
{
	uint64_t mine = base + GIB(1);
	int id = pindown_subscribe(hear, NULL);

	ck_assert_int_gt(id, 0);
	get_and_put(mine, 1);
	ck_assert(is_cached(mine, 1));
	ck_assert(!is_cached(base, 1));
	stats();
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
	other.exports_after_end = 0;
}

START_TEST(another_thread_can_get_while_a_driver_call_runs)
{
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	fake_alloc(BASE + GIB(1), LENGTH, FAKE_LINEAR);
	bool met = true;

	for (unsigned edge = 0; met; edge++) {
		pindown_region *region;
		int result;
		pindown_flush();
		other.worker.done = false;
		met = get_racing_at(edge, BASE, use_the_rest_of_the_cache, &result, &region);
		ck_assert_int_eq(result, PINDOWN_OK);
		pindown_put(region);
	}
}
END_TEST

static void free_something_else(void *arg)
{
	(void)arg;
	watched_alloc(BASE + GIB(2), LENGTH, FAKE_LINEAR);
	get_and_put(BASE + GIB(2), 1);
	ck_assert_int_eq(watched_free(BASE + GIB(2)), FAKE_SUCCESS);
	ck_assert_int_ge(pindown_flush(), 0);
}

static void wait_for_a_free_of_something_else(void *arg)
{
	in_other_thread(free_something_else, arg);
}

/* From the moment that the pin knows what it pins, frees of other memory don't wait for it. */
START_TEST(another_thread_can_free_while_an_export_runs)
{
	for (unsigned edge = 0; edge < 2; edge++) {
		fake_alloc(BASE, LENGTH, FAKE_LINEAR);
		fake_at_edge(FAKE_EXPORT, edge, wait_for_a_free_of_something_else, NULL);
		get_and_put(BASE, 1);
		ck_assert(fake_edge_met());
		fake_at_edge(FAKE_SYNC, edge, wait_for_a_free_of_something_else, NULL);
		pindown_flush();
		get_and_put(BASE, 1);
		ck_assert(fake_edge_met());
		ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	}
	ck_assert_uint_eq(stats().lost_races, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: pins");
	TCase *tc = cache_case(suite, "against the end of the memory");

	tcase_add_test(tc, a_pin_loses_against_a_free);
	tcase_add_test(tc, a_pin_loses_against_an_async_free);
	tcase_add_test(tc, a_pin_against_a_free_that_acts_later);
	tcase_add_test(tc, a_pin_loses_against_an_unmap);
	tcase_add_test(tc, a_pin_loses_against_the_end_of_its_context);
	tcase_add_test(tc, a_pin_loses_against_a_reset_of_its_device);
	tcase_add_test(tc, a_pin_loses_against_a_checkpoint);
	tcase_add_test(tc, a_pin_loses_against_a_free_that_takes_its_time);
	tcase_add_test(tc, a_pin_is_not_lost_to_a_free_of_other_memory);
	tc = cache_case(suite, "against what leaves memory there");
	tcase_add_test(tc, a_pin_finds_what_has_taken_the_place);
	tcase_add_test(tc, a_pin_survives_a_free_that_fails);
	tcase_add_test(tc, a_pin_notices_an_allocation_in_its_place);
	tcase_add_test(tc, a_pin_notices_a_recheck);
	tcase_add_test(tc, a_pin_survives_an_invalidation_without_a_free);
	tcase_add_test(tc, a_pin_and_a_neighbours_free);
	tc = cache_case(suite, "the buffer id, before and after");
	tcase_add_test(tc, a_pin_of_memory_that_changed_meanwhile_is_given_up);
	tcase_add_test(tc, memory_that_never_stays_the_same_is_busy);
	tc = cache_case(suite, "two pins");
	tcase_add_test(tc, volatile_memory_pinned_meanwhile_is_checked);
	tc = cache_case(suite, "no lock across driver calls");
	tcase_add_test(tc, another_thread_can_get_while_a_driver_call_runs);
	tcase_add_test(tc, another_thread_can_free_while_an_export_runs);
	return run_suite(suite);
}
