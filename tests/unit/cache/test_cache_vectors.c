/* SPDX-License-Identifier: MIT */
/*
 * Several ranges in one call: it is as good as a get of each, holds all or nothing, and holds no
 * region that has ended meanwhile.
 */
#define _GNU_SOURCE
#include <string.h>

#include "cache/pindown.h"
#include "tests/unit/support/api_test.h"

/* ---- vectors ---- */

#define MANY 64

static void same_as_gets(const struct pindown_range *ranges, size_t n)
{
	pindown_region *regions[MANY];

	ck_assert_int_eq(pindown_getv(ranges, n, 0, regions, NULL), PINDOWN_OK);
	for (size_t i = 0; i < n; i++) {
		pindown_region *region = must_get(ranges[i].addr, ranges[i].length);

		ck_assert_ptr_eq(regions[i], region);
		pindown_put(region);
	}
	pindown_putv(regions, n);
}

/* Equal, overlapping and unordered ranges; the fixture sees whether all holds were given back. */
START_TEST(a_vector_is_as_good_as_gets)
{
	struct pindown_range ranges[MANY];

	for (size_t i = 0; i < MANY; i++)
		ranges[i] = (struct pindown_range){AT(i / 3 % 4) + i % 5, 1 + i % 7};
	for (size_t n = 0; n <= MANY; n++)
		same_as_gets(ranges, n);
	ck_assert_uint_eq(stats().pins, 4);
	ck_assert_uint_eq(stats().misses, 4);
	ck_assert_uint_eq(stats().hits, MANY * (MANY + 1) - 4);
	ck_assert_int_eq(pindown_flush(), 4);
}
END_TEST

/* Between two ranges of one region lies another, which is pinned meanwhile, or just a hit. */
START_TEST(a_vector_that_comes_back_to_a_region)
{
	const struct pindown_range ranges[] = {{AT(0), 1}, {AT(1), 1}, {AT(0), 2}, {AT(1), 2}};
	pindown_region *regions[4];

	for (unsigned i = 0; i < 3; i++) /* a thread's first hit is looked at more closely */
		get_and_put(AT(0), 1);
	for (unsigned round = 0; round < 2; round++) {
		ck_assert_int_eq(pindown_getv(ranges, 4, 0, regions, NULL), PINDOWN_OK);
		for (unsigned i = 0; i < 4; i++)
			ck_assert_uint_eq(pindown_region_base(regions[i]), AT(i % 2));
		pindown_putv(regions, 4);
	}
	ck_assert_uint_eq(stats().pins, 2);
}
END_TEST

START_TEST(each_hold_of_a_vector_counts)
{
	const struct pindown_range ranges[] = {{AT(0), 1}, {AT(0), 1}, {AT(0) + MIB(1), MIB(1)}};
	pindown_region *regions[3];

	ck_assert_int_eq(pindown_getv(ranges, 3, 0, regions, NULL), PINDOWN_OK);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(pindown_flush(), 0);
		pindown_putv(&regions[i], 1);
	}
	ck_assert_int_eq(pindown_flush(), 1);
}
END_TEST

START_TEST(a_vector_fails_as_a_whole)
{
	struct pindown_range ranges[] = {
		{AT(0), 1}, {AT(0), 2}, {AT(1), 1}, {AT(9), 1}, {AT(2), 1}};
	const struct {
		struct pindown_range range;
		int result;
	} bad[] = {{{AT(9), 1}, PINDOWN_ERR_NOT_DEVICE},
		   {{AT(1), 0}, PINDOWN_ERR_INVALID},
		   {{AT(1), SIZE_MAX}, PINDOWN_ERR_INVALID},
		   {{AT(1), MIB(2) + 1}, PINDOWN_ERR_RANGE}};
	pindown_region *regions[5];

	for (unsigned i = 0; i < 4; i++) {
		size_t failed = 99;

		memset(regions, 0x55, sizeof(regions));
		ranges[3] = bad[i].range;
		ck_assert_int_eq(pindown_getv(ranges, 5, 0, regions, &failed), bad[i].result);
		ck_assert_uint_eq(failed, 3);
		for (unsigned k = 0; k < 5; k++)
			ck_assert_ptr_null(regions[k]);
		ck_assert_int_eq(pindown_getv(ranges, 5, 0, regions, NULL), bad[i].result);
		pindown_putv(regions, 5); /* NULLs are ignored */
		ck_assert_int_eq(pindown_flush(), 2);
	}
}
END_TEST

/* The brief of a region has no room for bits that no device address has, such as a tag's. */
START_TEST(an_address_beyond_all_is_no_hit)
{
	const struct pindown_range ranges[] = {
		{AT(0), 1}, {AT(0), 1}, {AT(0) + (uint64_t)_i * PDN_ADDRESS_LIMIT, 1}};
	pindown_region *regions[3];
	size_t failed = 99;

	for (unsigned i = 0; i < 3; i++) /* a thread's first hit is looked at more closely */
		get_and_put(AT(0), 1);
	ck_assert_int_eq(pindown_getv(ranges, 3, 0, regions, &failed), PINDOWN_ERR_NOT_DEVICE);
	ck_assert_uint_eq(failed, 2);
}
END_TEST

START_TEST(a_vector_of_cached_regions)
{
	const struct pindown_range ranges[] = {{AT(0), 1}, {AT(1), 1}};
	pindown_region *regions[2];
	size_t failed = 99;

	get_and_put(AT(0), 1);
	ck_assert_int_eq(pindown_getv(ranges, 2, PINDOWN_GET_CACHED, regions, &failed),
			 PINDOWN_ERR_NOT_DEVICE);
	ck_assert_uint_eq(failed, 1);
	ck_assert_uint_eq(stats().pins, 1);
}
END_TEST

START_TEST(bad_vectors_are_refused)
{
	const struct pindown_range range = {AT(0), 1};
	pindown_region *region = NULL;
	size_t failed = 99;

	ck_assert_int_eq(pindown_getv(NULL, 0, 0, NULL, NULL), PINDOWN_OK);
	ck_assert_int_eq(pindown_getv(NULL, 1, 0, &region, &failed), PINDOWN_ERR_INVALID);
	ck_assert_uint_eq(failed, 0);
	failed = 99;
	ck_assert_int_eq(pindown_getv(&range, 1, 0, NULL, &failed), PINDOWN_ERR_INVALID);
	ck_assert_uint_eq(failed, 0);
	ck_assert_int_eq(pindown_getv(&range, 1, 4, &region, NULL), PINDOWN_ERR_INVALID);
	ck_assert_ptr_null(region);
	pindown_putv(NULL, 0);
}
END_TEST

static void free_in_this_thread(void *arg)
{
	(void)arg;
	watched_free(AT(0));
}

static void free_first(void *arg)
{
	in_other_thread(free_in_this_thread, arg);
}

/* The memory of a range ends while a later one is pinned: it is not found again after that. */
START_TEST(a_range_that_ends_in_the_middle_of_a_vector)
{
	const struct pindown_range ranges[] = {{AT(0), 1}, {AT(1), 1}, {AT(0), 1}};
	pindown_region *regions[3];
	size_t failed = 99;

	get_and_put(AT(0), 1);
	fake_at_edge(FAKE_EXPORT, FAKE_ENTERING(0), free_first, NULL);
	ck_assert_int_eq(pindown_getv(ranges, 3, 0, regions, &failed), PINDOWN_ERR_NOT_DEVICE);
	ck_assert(fake_edge_met());
	ck_assert_uint_eq(failed, 2);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
}
END_TEST

static unsigned unmapped;

static void unmap_segment(const struct pindown_invalidation *what, void *arg)
{
	(void)arg;
	if (what->reason == PINDOWN_REASON_EVICTED && !unmapped++)
		for (unsigned i = 0; i < 2; i++)
			ck_assert_int_eq(watched_unmap(SEGMENT + i * PIECE, PIECE), FAKE_SUCCESS);
}

/*
 * The first range makes a region over both mappings; before the get returns it, the memory ends in
 * a callback. The second range lies in the region that was just got, and must not be found there.
 */
START_TEST(a_region_that_has_ended_is_not_held_again)
{
	const struct pindown_range ranges[] = {{SEGMENT + PIECE - 1, 2}, {SEGMENT, 1}};
	pindown_region *regions[2];
	size_t failed = 99;
	int id;

	pin_half_a_segment();
	id = pindown_subscribe(unmap_segment, NULL);
	ck_assert_int_eq(pindown_getv(ranges, 2, 0, regions, &failed), PINDOWN_ERR_NOT_DEVICE);
	ck_assert_uint_eq(unmapped, 1);
	ck_assert_uint_eq(failed, 1);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_vectors");
	TCase *tc = objects_case(s, "vectors");

	tcase_add_test(tc, a_vector_is_as_good_as_gets);
	tcase_add_test(tc, a_vector_that_comes_back_to_a_region);
	tcase_add_test(tc, each_hold_of_a_vector_counts);
	tcase_add_test(tc, a_vector_fails_as_a_whole);
	tcase_add_loop_test(tc, an_address_beyond_all_is_no_hit, 1, 3);
	tcase_add_test(tc, a_vector_of_cached_regions);
	tcase_add_test(tc, bad_vectors_are_refused);
	tcase_add_test(tc, a_range_that_ends_in_the_middle_of_a_vector);
	tcase_add_test(tc, a_region_that_has_ended_is_not_held_again);
	return run_suite(s);
}
