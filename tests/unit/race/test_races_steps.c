/* SPDX-License-Identifier: MIT */
/* Races at every single instruction of a hit and of a put; see stepping.h. */
#define _GNU_SOURCE
#include "cache/base/thread/lock.h"
#include "cache/base/thread/thread.h"
#include "cache/hook_events.h"
#include "cache/hit/index.h"
#include "cache/end/invalidate.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "tests/unit/support/steps_test.h"

/* ---- a hit against a free ---- */

START_TEST(a_hit_against_a_free)
{
	static const struct race race = {one_idle_region, stepped_hit, other_frees, check_hit};

	run_race("hit against free", &race, TURNS);
}
END_TEST

/* All ranges but the first are held by the hold of the first. */
#define IN_VECTOR 8
static pindown_region *vector[IN_VECTOR];
static uint32_t held_before_free;

static void stepped_vector(void)
{
	struct pindown_range ranges[IN_VECTOR];

	for (unsigned i = 0; i < IN_VECTOR; i++)
		ranges[i] = (struct pindown_range){AT(0) + i, 1};
	step_from_here();
	result = pindown_getv(ranges, IN_VECTOR, 0, vector, NULL);
	step_to_here();
}

static void other_counts_and_frees(void)
{
	uint32_t number = pdn_index_find(AT(0));

	pdn_lock();
	held_before_free = 0;
	for (uint32_t i = 0; i < PDN_STRIPES; i++)
		if (pdn_stripes[i / 64] >> i % 64 & 1)
			held_before_free += pdn_holds[i][number];
	pdn_unlock();
	other_frees();
}

/* What was not held when the free began is not found, but for the one that was being looked at. */
static void check_vector(void)
{
	if (result == PINDOWN_OK) {
		ck_assert(!race_met() || held_before_free >= IN_VECTOR - 1);
		for (unsigned i = 0; i < IN_VECTOR; i++) {
			ck_assert_ptr_eq(vector[i], vector[0]);
			ck_assert_uint_eq(pindown_region_buffer_id(vector[i]), old_id);
			ck_assert_msg(fake_open_exports_of(old_id) == 1,
				      "instruction %u: unpinned under %u holds", race_instruction(),
				      IN_VECTOR - i);
			pindown_put(vector[i]);
		}
	} else {
		ck_assert_int_eq(result, PINDOWN_ERR_NOT_DEVICE);
		for (unsigned i = 0; i < IN_VECTOR; i++)
			ck_assert_ptr_null(vector[i]);
	}
	if (race_met())
		assert_all_gone();
}

START_TEST(a_vector_against_a_free)
{
	static const struct race race = {one_idle_region, stepped_vector, other_counts_and_frees,
					 check_vector};

	run_race("vector against free", &race, TURNS);
}
END_TEST

/*
 * The region's record is used again, for other memory, and then for new memory at the same address.
 */
static void other_reuses_the_record(void)
{
	other_frees();
	fake_alloc(AT(1), PAGE, FAKE_LINEAR);
	get_and_put(AT(1), 1);
	fake_alloc(AT(0), MIB(4), FAKE_LINEAR);
	get_and_put(AT(0), 1);
}

static void check_reuse(void)
{
	if (result == PINDOWN_ERR_NOT_DEVICE) { /* between the free and the new memory */
		ck_assert(!race_was_inside());
		return;
	}
	ck_assert_int_eq(result, PINDOWN_OK);
	ck_assert_uint_eq(pindown_region_base(region), AT(0));
	uint64_t id = pindown_region_buffer_id(region);
	ck_assert(id == old_id || id == fake_id(AT(0)));
	ck_assert_uint_eq(pindown_region_length(region),
			  id == fake_id(AT(0)) ? (race_met() ? MIB(4) : PAGE) : PAGE);
	ck_assert_uint_eq(fake_open_exports_of(id), 1);
	pindown_put(region);
	if (race_met())
		assert_all_gone();
}

START_TEST(a_hit_against_a_record_used_again)
{
	static const struct race race = {one_idle_region, stepped_hit, other_reuses_the_record,
					 check_reuse};

	run_race("hit against reuse of its record", &race, TURNS);
}
END_TEST

static void other_makes_it_volatile_and_replaces_it(void)
{
	pdn_volatile(AT(0), PAGE);
	ck_assert_int_eq(fake_free_unseen(AT(0)), FAKE_SUCCESS);
	fake_alloc(AT(0), PAGE, FAKE_LINEAR);
}

static void check_volatile(void)
{
	if (result == PINDOWN_ERR_NOT_DEVICE) { /* between the free and the new memory */
		ck_assert(!race_was_inside());
	} else {
		ck_assert_int_eq(result, PINDOWN_OK);
		pindown_put(region);
	}
	pindown_flush();
	pdn_allocated(AT(0), PAGE);
	assert_all_gone();
}

START_TEST(a_hit_against_a_range_becoming_volatile)
{
	static const struct race race = {one_idle_region, stepped_hit,
					 other_makes_it_volatile_and_replaces_it, check_volatile};

	run_race("hit against volatile", &race, TURNS);
}
END_TEST

/* ---- a thread's first hit, which takes the lock, against the end of dead memory ---- */

static void a_dead_region_of_volatile_memory(void)
{
	one_idle_region();
	other_makes_it_volatile_and_replaces_it();
}

static void first_hit(void *arg)
{
	(void)arg;
	stepped_hit();
}

static void stepped_first_hit(void)
{
	struct worker newcomer;

	worker_start(&newcomer, first_hit, NULL);
	worker_join(&newcomer);
}

static void other_compares_all(void)
{
	pdn_recheck(NULL);
}

/* The memory was dead before the get began, so finding the region has no excuse. */
static void check_first_hit(void)
{
	ck_assert_int_eq(result, PINDOWN_OK);
	ck_assert_msg(pindown_region_buffer_id(region) == fake_id(AT(0)), "instruction %u: stale",
		      race_instruction());
	pindown_put(region);
	pindown_flush();
	pdn_allocated(AT(0), PAGE);
	assert_all_gone();
}

START_TEST(a_first_hit_against_a_comparison)
{
	static const struct race race = {a_dead_region_of_volatile_memory, stepped_first_hit,
					 other_compares_all, check_first_hit};

	run_race("first hit against comparison", &race, 8 * TURNS);
}
END_TEST

/* ---- a hit against an eviction ---- */

static void other_flushes(void)
{
	pindown_flush();
}

static void check_flush(void)
{
	ck_assert_int_eq(result, PINDOWN_OK);
	ck_assert_uint_eq(pindown_region_buffer_id(region), old_id);
	ck_assert_uint_ge(fake_open_exports_of(old_id), 1);
	pindown_put(region);
	pindown_flush();
	assert_all_gone();
}

START_TEST(a_hit_against_a_flush)
{
	static const struct race race = {one_idle_region, stepped_hit, other_flushes, check_flush};

	run_race("hit against flush", &race, TURNS);
}
END_TEST

/* ---- puts ---- */

static void check_put(void)
{
	ck_assert_uint_le(exports_after_end, 1);
	if (race_met())
		assert_all_gone();
}

/* A lost unpin (each thread leaves it to the other), or a double one (both unpin). */
START_TEST(a_put_against_a_free)
{
	static const struct race race = {one_held_region, stepped_put, other_frees, check_put};

	run_race("put against free", &race, TURNS);
}
END_TEST

static void one_kept_region_with_two_holds(void)
{
	one_held_region();
	others_region = must_get(AT(0), 1);
	other_frees();
}

static void other_puts(void)
{
	pindown_put(others_region);
	others_region = NULL;
}

static void check_two_puts(void)
{
	if (others_region)
		other_puts();
	assert_all_gone();
}

START_TEST(the_last_two_puts_of_a_kept_region)
{
	static const struct race race = {one_kept_region_with_two_holds, stepped_put, other_puts,
					 check_two_puts};

	run_race("put against put", &race, TURNS);
}
END_TEST

/*
 * Memory of a region without holders may be freed, also while the thread that held it last unpins
 * it.
 */
static bool was_taken;

static void one_kept_region(void)
{
	one_held_region();
	ck_assert_int_eq(pindown_invalidate(AT(0), PAGE), 1);
	was_taken = false;
}

static void other_frees_what_is_taken(void)
{
	was_taken = pdn_brief_of(region)->state == PDN_DYING;
	other_frees();
}

static void check_free_of_taken(void)
{
	ck_assert_msg(!was_taken || exports_after_end == 0,
		      "instruction %u: pinned still when the free went on", race_instruction());
	if (race_met())
		assert_all_gone();
}

START_TEST(the_last_put_of_a_kept_region_against_a_free)
{
	static const struct race race = {one_kept_region, stepped_put, other_frees_what_is_taken,
					 check_free_of_taken};

	run_race("last put against free", &race, 4 * TURNS);
}
END_TEST

/*
 * A put that takes the lock late finds another region in its record. If that region was held until
 * a moment ago, and its own put has not taken the lock either, the late put unpins it: exactly one
 * of the two puts must.
 */
static pindown_region *second; /* in the same record, or in another */
static uint64_t second_id;
static unsigned taken_by_late_put;

static void other_ends_one_more(void)
{
	other_puts();
	fake_alloc(AT(1), PAGE, FAKE_LINEAR);
	second_id = fake_id(AT(1));
	second = must_get(AT(1), 1);
	ck_assert_int_eq(pindown_invalidate(AT(1), PAGE), 1);
	/* its put has come this far */
	pdn_unhold(pdn_self_or_anonymous(), pdn_region_number(second));
}

static void check_late_put(void)
{
	uint32_t number = pdn_region_number(second);
	struct pdn_ending last = {0};
	bool was_last;

	if (!race_met()) {
		other_puts();
		assert_all_gone();
		return;
	}
	pdn_lock();
	pdn_region_take_kept(&last, number);
	pdn_unlock();
	was_last = last.first;
	pdn_unpin_kept(&last);
	taken_by_late_put += !was_last;
	ck_assert(was_last || second == region);
	ck_assert_uint_eq(fake_open_exports_of(second_id), 0);
	ck_assert_int_eq(fake_free(AT(1)), FAKE_SUCCESS);
	assert_all_gone();
}

START_TEST(a_late_put_and_another_region_in_its_record)
{
	static const struct race race = {one_kept_region_with_two_holds, stepped_put,
					 other_ends_one_more, check_late_put};

	run_race("late put against another region's", &race, 4 * TURNS);
	ck_assert_uint_gt(taken_by_late_put, 0);
}
END_TEST

static void other_gets_and_puts(void)
{
	get_and_put(AT(0), 1);
}

static void check_get_and_put(void)
{
	ck_assert(is_cached(AT(0), 1));
	ck_assert_uint_eq(fake_open_exports_of(old_id), 1);
	ck_assert_int_eq(pindown_flush(), 1);
	assert_all_gone();
}

START_TEST(a_put_against_a_hit)
{
	static const struct race race = {one_held_region, stepped_put, other_gets_and_puts,
					 check_get_and_put};

	run_race("put against hit", &race, TURNS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: single instructions of hits and puts");
	TCase *tc = cache_case(suite, "single instructions");

	/* Thousands of turns; in each of them the test waits until a thread sleeps. */
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, a_hit_against_a_free);
	tcase_add_test(tc, a_vector_against_a_free);
	tcase_add_test(tc, a_hit_against_a_record_used_again);
	tcase_add_test(tc, a_hit_against_a_range_becoming_volatile);
	tcase_add_test(tc, a_first_hit_against_a_comparison);
	tcase_add_test(tc, a_hit_against_a_flush);
	tcase_add_test(tc, a_put_against_a_free);
	tcase_add_test(tc, the_last_two_puts_of_a_kept_region);
	tcase_add_test(tc, the_last_put_of_a_kept_region_against_a_free);
	tcase_add_test(tc, a_late_put_and_another_region_in_its_record);
	tcase_add_test(tc, a_put_against_a_hit);
	return run_stepped_suite(suite);
}
