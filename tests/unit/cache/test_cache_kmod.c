/* SPDX-License-Identifier: MIT */
/*
 * The cache on the kernel module: regions over several mappings, each of which the module pins by
 * itself. test_cache_fallback has memory that the module refuses; test_kmod_process has what the
 * process does.
 */
#define _GNU_SOURCE
#include "tests/unit/support/kmod_test.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache/hit/region.h"

/* ---- one region of several pins ---- */

START_TEST(each_mapping_is_pinned_by_itself)
{
	unsigned asked;

	map_parts();
	get_and_put(BASE, ALL);
	ck_assert_str_eq(stats().backend, "kmod");
	ck_assert_uint_eq(fake_kmod_pins(), PARTS);
	ck_assert_uint_eq(fake_kmod_bytes(), ALL);
	ck_assert_uint_eq(stats().bytes, ALL);
	ck_assert_uint_eq(stats().regions, 1);
	ck_assert_uint_eq(stats().pins, 1);
	asked = fake_count(FAKE_CALLS);
	for (unsigned i = 0; i < PARTS; i++)
		get_and_put(part(i), PART);
	get_and_put(BASE, ALL);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), asked);
	ck_assert_uint_eq(stats().hits, PARTS + 1);
	ck_assert_uint_eq(stats().regions, 1);
}
END_TEST

START_TEST(an_unmap_of_one_ends_them_all)
{
	map_parts();
	pindown_region *region = must_get(BASE, ALL);
	ck_assert_int_eq(watched_unmap(part((unsigned)_i), PART), FAKE_SUCCESS);
	ck_assert(!is_cached(BASE, ALL));
	ck_assert_uint_eq(fake_kmod_pins(), PARTS); /* held */
	ck_assert_uint_eq(stats().kept_bytes, ALL);
	pindown_put(region);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
}
END_TEST

START_TEST(a_part_that_fails_leaves_none)
{
	map_parts();
	fake_kmod_fail((unsigned)_i, 1, EIO);
	must_refuse(BASE, ALL, PINDOWN_ERR_DRIVER);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
	ck_assert_uint_eq(stats().pin_failures, 1);
	get_and_put(BASE, ALL);
	ck_assert_uint_eq(fake_kmod_pins(), PARTS);
}
END_TEST

/* The number of a pin that has ended is used for a later pin, of another region as well. */
START_TEST(a_number_that_is_used_again_is_another_pins)
{
	map_parts();
	watched_alloc(BASE + GIB(1), PART, FAKE_LINEAR);
	get_and_put(BASE, ALL);
	pindown_flush();
	get_and_put(BASE, 2 * PART);
	get_and_put(BASE + GIB(1), PART);
	ck_assert_int_eq(watched_unmap(part(0), PART), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_kmod_pins(), 1);
	freed_unseen(BASE + GIB(1));
	ck_assert(!is_cached(BASE + GIB(1), PART));
	expected_missed = 1;
}
END_TEST

/* Idle regions make room for the whole region, in the module's space and in the budget. */
START_TEST(the_whole_is_made_room_for)
{
	map_parts();
	watched_alloc(BASE + GIB(1), PART, FAKE_LINEAR);
	watched_alloc(BASE + GIB(2), PART / 2, FAKE_LINEAR);
	fake_kmod_space(ALL); /* idle and free space together are just enough */
	get_and_put(BASE + GIB(1), PART);
	get_and_put(BASE + GIB(2), PART / 2);
	get_and_put(BASE, ALL);
	ck_assert_uint_eq(stats().evictions, 2);
	ck_assert_uint_eq(fake_kmod_bytes(), ALL);
	fake_kmod_space(ALL - 1);
	pindown_flush();
	must_refuse(BASE, ALL, PINDOWN_ERR_NO_SPACE);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
}
END_TEST

START_TEST(the_budget_counts_the_whole)
{
	setenv("PINDOWN_MAX_BYTES", "5M", 1);
	map_parts();
	must_refuse(BASE, ALL, PINDOWN_ERR_NO_SPACE);
	get_and_put(BASE, 2 * PART);
	get_and_put(part(2), PART);
	ck_assert_uint_eq(stats().evictions, 1);
	ck_assert_uint_eq(fake_kmod_pins(), 1);
}
END_TEST

/* However many signals come: other processes are asked twice, and not for ever. */
static void give_space(void)
{
	fake_kmod_space(PAGE);
}

START_TEST(signals_end_the_wait_for_other_processes)
{
	watched_alloc(BASE, PAGE, FAKE_LINEAR);
	fake_kmod_space(0);
	fake_kmod_signals(1000);
	must_refuse(BASE, PAGE, PINDOWN_ERR_NO_SPACE);
	ck_assert_uint_eq(fake_kmod_calls(), 5); /* two ask nobody, and neither does the last */
	fake_kmod_at_pin(4, give_space);
	get_and_put(BASE, PAGE);
	ck_assert_uint_eq(fake_kmod_calls(), 10);
}
END_TEST

/* ---- windows: parts of what the module has no space for ---- */

#define LARGE (BASE + GIB(1))

START_TEST(an_allocation_is_pinned_by_windows)
{
	watched_alloc(LARGE, MIB(16), FAKE_LINEAR);
	fake_kmod_space(MIB(8));
	for (unsigned n = 0; n < 16; n++)
		get_and_put(LARGE + n * MIB(1), MIB(1));
	ck_assert_uint_eq(fake_kmod_pins(), 8);
	ck_assert_uint_eq(fake_kmod_bytes(), MIB(8));
	ck_assert_uint_eq(stats().pin_failures, 0);
	ck_assert_int_eq(watched_free(LARGE), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
}
END_TEST

/* The kernel revokes the pin of each window. */
START_TEST(windows_are_revoked)
{
	watched_alloc(LARGE, MIB(16), FAKE_LINEAR);
	fake_kmod_space(MIB(8));
	get_and_put(LARGE + MIB(4), 1);
	get_and_put(LARGE + MIB(9), 1);
	ck_assert_uint_eq(fake_kmod_pins(), 2);
	ck_assert_int_eq(fake_free(LARGE), FAKE_SUCCESS);
	fake_kmod_revoke(LARGE + MIB(4));
	fake_kmod_revoke(LARGE + MIB(9));
	ck_assert(!is_cached(LARGE + MIB(4), 1));
	ck_assert(!is_cached(LARGE + MIB(9), 1));
	ck_assert_uint_eq(stats().regions, 0);
	expected_missed = 2;
}
END_TEST

/* Space for half of a mapping: a window over the boundary of two has a pin in each. */
START_TEST(a_window_over_two_mappings)
{
	map_parts();
	fake_kmod_space(PART / 2);
	get_and_put(part(1) - PAGE, 2 * PAGE);
	ck_assert_uint_eq(fake_kmod_pins(), 2);
	ck_assert_uint_le(fake_kmod_bytes(), PART / 2);
	get_and_put(part(1) - PAGE, 2 * PAGE);
	ck_assert_uint_eq(stats().hits, 1);
	if (_i < 2) {
		ck_assert_int_eq(watched_unmap(part((unsigned)_i), PART), FAKE_SUCCESS);
	} else {
		freed_unseen(part((unsigned)_i - 2));
		fake_kmod_revoke(part(_i == 2 ? 1 : 2) - PAGE);
		fake_kmod_revoke(part(1));
		ck_assert(!is_cached(part(1), 1));
		expected_missed = 1;
	}
	ck_assert_uint_eq(fake_kmod_pins(), 0);
}
END_TEST

/* ---- revocation ---- */

START_TEST(a_revocation_of_one_ends_them_all)
{
	unsigned asked;

	map_parts();
	get_and_put(BASE, ALL);
	freed_unseen(part((unsigned)_i));
	asked = fake_count(FAKE_CALLS);
	ck_assert(!is_cached(BASE, 1));
	ck_assert_uint_eq(fake_count(FAKE_CALLS), asked);
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
	expected_missed = 1;
}
END_TEST

START_TEST(a_revocation_of_another_region_ends_none)
{
	pindown_region *region;
	uint64_t offset;
	unsigned asked;
	int fd;

	map_parts();
	watched_alloc(BASE + GIB(1), PART, FAKE_LINEAR);
	get_and_put(BASE + GIB(1), PART);
	get_and_put(BASE, ALL);
	freed_unseen(BASE + GIB(1));
	asked = fake_count(FAKE_CALLS);
	region = must_get(BASE, ALL);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), asked);
	/* The next hit is as fast as before. */
	ck_assert(pdn_region_word_stands(region));
	pindown_put(region);
	/*
	 * The region is not taken for dead either by a caller that asks the driver, or by one that
	 * pins another group of mappings.
	 */
	watched_alloc(BASE + GIB(2), PART, FAKE_LINEAR);
	get_and_put(BASE + GIB(2), PART);
	region = must_get(BASE, ALL);
	freed_unseen(BASE + GIB(2));
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE, &fd, &offset), PINDOWN_OK);
	pindown_put(region);
	watched_alloc(BASE + GIB(3), PART, FAKE_LINEAR);
	get_and_put(BASE + GIB(3), PART);
	watched_alloc(part(PARTS), PART, FAKE_VMM);
	freed_unseen(BASE + GIB(3));
	get_and_put(part(1), ALL);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
	/* And later revocations are seen. */
	freed_unseen(part(1));
	ck_assert(!is_cached(part(1), ALL));
	for (unsigned i = 1; i <= 3; i++)
		ck_assert(!is_cached(BASE + GIB(i), 1));
	expected_missed = 4;
}
END_TEST

static void hits_all_the_while(void *arg)
{
	bool *over = arg;

	do
		get_and_put(part(1), PART);
	while (!__atomic_load_n(over, __ATOMIC_RELAXED));
}

/* Once one thread has looked at the changed count, the other threads need not. */
START_TEST(threads_hit_while_others_are_revoked)
{
	struct worker workers[3];
	const unsigned others = 200;
	bool over = false;

	map_parts();
	get_and_put(BASE, ALL);
	for (unsigned i = 0; i < 3; i++)
		worker_start(&workers[i], hits_all_the_while, &over);
	for (unsigned i = 0; i < others; i++) {
		uint64_t other = BASE + GIB(1) + i * PART;

		watched_alloc(other, PART, FAKE_LINEAR);
		get_and_put(other, PART);
		freed_unseen(other);
		get_and_put(BASE, ALL);
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 3; i++)
		worker_join(&workers[i]);
	ck_assert_uint_eq(fake_kmod_calls(), PARTS + others);
	ck_assert_uint_eq(stats().misses, 1 + others);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
	freed_unseen(part(2));
	ck_assert(!is_cached(BASE, ALL));
	expected_missed = 1;
}
END_TEST

static void revoke_the_first(void)
{
	fake_kmod_revoke(BASE);
}

START_TEST(a_revocation_while_the_others_are_pinned_is_seen)
{
	map_parts();
	fake_kmod_at_pin((unsigned)_i, revoke_the_first);
	get_and_put(BASE, ALL);
	ck_assert(!is_cached(BASE, ALL));
	ck_assert_uint_eq(fake_kmod_pins(), 0);
	expected_missed = 1;
}
END_TEST

/* ---- the dma-buf of several pins, which the driver makes ---- */

START_TEST(the_driver_makes_one_dmabuf_of_them)
{
	pindown_region *region;
	uint64_t offset;
	int fd = -1;

	map_parts();
	region = must_get(BASE, ALL);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_int_eq(pindown_region_dmabuf(region, part(2) + 1, &fd, &offset), PINDOWN_OK);
	ck_assert_uint_eq(offset, 2 * PART + 1);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert_uint_eq(stats().dmabufs, 1);
	/* It is not the pin, which stays when the dma-buf is closed. */
	pindown_region_close_dmabuf(region);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_uint_eq(fake_kmod_pins(), PARTS);
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE, &fd, &offset), PINDOWN_OK);
	pindown_put(region);
	ck_assert_int_eq(watched_unmap(part(1), PART), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
}
END_TEST

START_TEST(a_driver_that_makes_none_is_said_to)
{
	pindown_region *region;
	uint64_t offset;
	int fd = -1;

	fake_no_dmabuf();
	map_parts();
	region = must_get(BASE, ALL);
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE, &fd, &offset), PINDOWN_ERR_NO_DMABUF);
	ck_assert_int_eq(fd, -1);
	ck_assert(pindown_region_is_live(region));
	pindown_put(region);
	/* For a region of one pin, the module makes the dma-buf. */
	region = must_get(BASE + PART, 1);
	pindown_put(region);
	pindown_flush();
	region = must_get(BASE, PART);
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE, &fd, &offset), PINDOWN_OK);
	pindown_put(region);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: on the kernel module");
	TCase *tc = suite_case(suite, "one region of several pins", begin_kmod, end_kmod);

	tcase_add_test(tc, each_mapping_is_pinned_by_itself);
	tcase_add_loop_test(tc, an_unmap_of_one_ends_them_all, 0, PARTS);
	tcase_add_loop_test(tc, a_part_that_fails_leaves_none, 0, PARTS);
	tcase_add_test(tc, a_number_that_is_used_again_is_another_pins);
	tcase_add_test(tc, the_whole_is_made_room_for);
	tcase_add_test(tc, the_budget_counts_the_whole);
	tcase_add_test(tc, signals_end_the_wait_for_other_processes);
	tc = suite_case(suite, "windows", begin_kmod, end_kmod);
	tcase_add_test(tc, an_allocation_is_pinned_by_windows);
	tcase_add_test(tc, windows_are_revoked);
	tcase_add_loop_test(tc, a_window_over_two_mappings, 0, 4);
	tc = suite_case(suite, "revocation", begin_kmod, end_kmod);
	tcase_add_loop_test(tc, a_revocation_of_one_ends_them_all, 0, PARTS);
	tcase_add_test(tc, a_revocation_of_another_region_ends_none);
	tcase_add_test(tc, threads_hit_while_others_are_revoked);
	tcase_add_loop_test(tc, a_revocation_while_the_others_are_pinned_is_seen, 1, PARTS);
	tc = suite_case(suite, "the dma-buf of several pins", begin_kmod, end_kmod);
	tcase_add_test(tc, the_driver_makes_one_dmabuf_of_them);
	tcase_add_test(tc, a_driver_that_makes_none_is_said_to);
	return run_suite(suite);
}
