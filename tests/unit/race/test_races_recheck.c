/* SPDX-License-Identifier: MIT */
/*
 * A recheck, or an allocation, that can't ask the driver: the guard of a free in another thread
 * does not say what ends, and so stands for all memory. test_races_asks has guards that do say it.
 */
#define _GNU_SOURCE
#include "cache/hook_events.h"
#include "cache/end/in_use.h"
#include "cache/end/invalidate.h"
#include "cache/end/work.h"
#include "cache/trust/recheck.h"
#include "tests/unit/support/freer.h"

#define DEEP (PDN_GUARDS + 1)

/* Frees in frees, in callbacks of the program: the deepest guard stands for all memory. */
static void free_deep(void *arg)
{
	pdn_guard guards[DEEP];

	(void)arg;
	for (unsigned i = 0; i < DEEP; i++)
		guards[i] = pdn_end_range(AT(8 + i), 0);
	gate_open(&freer.inside);
	gate_wait(&freer.go);
	for (unsigned i = DEEP; i-- > 0;)
		pdn_ended(guards[i]);
}

static void deep_freer_stops_in_driver(void)
{
	gate_init(&freer.inside);
	gate_init(&freer.go);
	freer.stops = true;
	worker_start(&freer.worker, free_deep, NULL);
	gate_wait(&freer.inside);
}

/* A region that hits trust. */
static void pin_and_trust(uint64_t addr)
{
	fake_alloc(addr, LENGTH, FAKE_LINEAR);
	for (unsigned i = 0; i < 3; i++)
		get_and_put(addr, LENGTH);
}

/* The recheck must not ask, nor wait for long; and the region must not be trusted for that. */
START_TEST(what_a_recheck_can_not_ask_about_is_checked_at_its_hits)
{
	restore_wait_limit();
	expected_missed = 1;
	pin_and_trust(AT(0));
	pin_and_trust(AT(1));
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS); /* unseen */
	deep_freer_stops_in_driver();
	fake_watch_questions(AT(0), AT(2));
	pdn_recheck(NULL);
	ck_assert_uint_eq(fake_watched_questions(), 0);
	ck_assert(!is_cached(AT(0), LENGTH));
	ck_assert(is_cached(AT(1), LENGTH));
	ck_assert_uint_ne(fake_watched_questions(), 0);
	freer_ends();
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
}
END_TEST

/* As one that the program's context has got for good. */
#define STICKY_ERROR FAKE_UNKNOWN

START_TEST(what_a_recheck_gets_no_answer_about_is_checked_at_its_hits)
{
	expected_missed = 1;
	pin_and_trust(AT(0));
	fake_fail(FAKE_QUERY, 0, 1, STICKY_ERROR);
	pdn_recheck(NULL);
	ck_assert(is_cached(AT(0), LENGTH));
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS); /* unseen, or by the call before */
	ck_assert(!is_cached(AT(0), LENGTH));
}
END_TEST

/* The same where the driver hands out the memory again. */
START_TEST(new_memory_is_checked_if_it_can_not_be_asked_about)
{
	pindown_region *region;

	restore_wait_limit();
	expected_missed = 1;
	pin_and_trust(AT(0));
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS); /* unseen */
	deep_freer_stops_in_driver();
	watched_alloc(AT(0), LENGTH, FAKE_LINEAR);
	freer_ends();
	region = must_get(AT(0), LENGTH);
	ck_assert_uint_eq(pindown_region_buffer_id(region), fake_id(AT(0)));
	pindown_put(region);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
}
END_TEST

/* An eviction has chosen it, as it looked idle, and finds it in use. */
static void try_to_evict(const pindown_region *held)
{
	struct pdn_ending ending = {0};

	pdn_lock();
	pdn_ending_add_idle(&ending, pdn_region_number(held), PINDOWN_REASON_EVICTED);
	pdn_unlock();
	ck_assert_int_eq(pdn_ending_dispatch(&ending), 0);
}

START_TEST(what_could_not_be_asked_about_is_checked_after_an_eviction)
{
	pindown_region *held;

	restore_wait_limit();
	expected_missed = 1;
	pin_and_trust(AT(0));
	held = must_get(AT(0), LENGTH);
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS); /* unseen */
	deep_freer_stops_in_driver();
	pdn_recheck(NULL);
	freer_ends();
	try_to_evict(held);
	ck_assert(!is_cached(AT(0), LENGTH));
	pindown_put(held);
}
END_TEST

/* In a volatile range, whose regions are trusted again when the driver hands the memory out. */
START_TEST(volatile_memory_is_not_trusted_again_unasked)
{
	pindown_region *region;

	restore_wait_limit();
	pdn_volatile(AT(0), LENGTH);
	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	get_and_put(AT(0), LENGTH);
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS); /* unseen, as expected there */
	deep_freer_stops_in_driver();
	watched_alloc(AT(0), LENGTH, FAKE_LINEAR);
	freer_ends();
	region = must_get(AT(0), LENGTH);
	ck_assert_uint_eq(pindown_region_buffer_id(region), fake_id(AT(0)));
	ck_assert(!pindown_region_is_volatile(region));
	pindown_put(region);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: rechecks that can't ask");
	TCase *tc = cache_case(suite, "a guard on everything");

	tcase_add_test(tc, what_a_recheck_can_not_ask_about_is_checked_at_its_hits);
	tcase_add_test(tc, what_a_recheck_gets_no_answer_about_is_checked_at_its_hits);
	tcase_add_test(tc, new_memory_is_checked_if_it_can_not_be_asked_about);
	tcase_add_test(tc, what_could_not_be_asked_about_is_checked_after_an_eviction);
	tcase_add_test(tc, volatile_memory_is_not_trusted_again_unasked);
	return run_suite(suite);
}
