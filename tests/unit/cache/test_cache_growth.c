/* SPDX-License-Identifier: MIT */
/*
 * A region that is replaced by a wider one: how far a pin of mapped memory reaches, and what it
 * does where it can't have that. test_cache_replaced has what becomes of the replaced one.
 */
#include "cache/hit/get.h"
#include "cache/hit/region.h"
#include "cache/trust/trust.h"
#include "tests/unit/support/growth_test.h"

/* ---- how far it reaches ---- */

START_TEST(a_region_that_is_replaced_doubles)
{
	pin_first_two();
	pindown_put(cross(0, 4));
	ck_assert_uint_eq(stats().regions, 1);
	ck_assert_uint_eq(stats().bytes, 4 * PIECE);
	ck_assert_uint_eq(stats().unpins, 1);
	ck_assert_uint_eq(stats().evictions, 0); /* nothing was short of room */
	ck_assert_uint_eq(stats().pin_failures, 0);
	unmap_segment();
}
END_TEST

/* The union is as much used as the most used of what it replaces, and no more. */
START_TEST(the_uses_of_what_is_replaced_count)
{
	pindown_region *region;

	pin_first_two();
	for (int use = 0; use < _i; use++)
		get_and_put(MAPPING(0), PIECE);
	region = cross(0, 4);
	ck_assert_uint_eq(pdn_brief_of(region)->used, (unsigned)_i);
	pindown_put(region);
	unmap_segment();
}
END_TEST

/* Towards lower addresses, where nothing is mapped behind. */
START_TEST(it_doubles_to_either_side)
{
	map_segment();
	pindown_put(get_over(MAPPING(2), 2 * PIECE, 2, 2));
	pindown_put(cross(0, 4));
	unmap_segment();
}
END_TEST

START_TEST(regions_beside_each_other_become_one_when_a_window_crosses)
{
	map_segment();
	for (unsigned n = 0; n < 4; n++)
		pindown_put(get_over(MAPPING(n), 1, n, 1));
	ck_assert_uint_eq(stats().regions, 4);
	pindown_put(cross(0, 4));
	ck_assert_uint_eq(stats().regions, 1);
	ck_assert_uint_eq(stats().bytes, 4 * PIECE);
	unmap_segment();
}
END_TEST

/* A gap, another device, other memory, and the reservation's end limit it. */
START_TEST(it_reaches_over_mappings_of_its_kind_only)
{
	pin_first_two();
	ck_assert_int_eq(watched_unmap(MAPPING(3), PIECE), FAKE_SUCCESS);
	if (_i == 1) {
		fake_alloc_in(MAPPING(3), PIECE, FAKE_VMM, NULL, 1, NULL);
		pdn_allocated(MAPPING(3), PIECE);
	} else if (_i == 2) {
		watched_alloc(MAPPING(3), PIECE, FAKE_LINEAR);
	} else if (_i == 3) {
		fake_reserved_size = 3 * PIECE;
		watched_alloc(MAPPING(3), PIECE, FAKE_VMM);
	}
	pindown_put(cross(0, 3));
	ck_assert(!is_cached(MAPPING(3), 1));
	if (_i)
		ck_assert_int_eq(watched_unmap(MAPPING(3), PIECE), FAKE_SUCCESS);
	for (unsigned n = 0; n < 3; n++)
		ck_assert_int_eq(watched_unmap(MAPPING(n), PIECE), FAKE_SUCCESS);
}
END_TEST

/*
 * A region over 256 mappings: a comparison by chance asks the driver about each, and so comes at
 * every 160th to 480th hit, where 64 is the usual mean.
 */
START_TEST(a_wide_region_is_compared_less_often)
{
	const unsigned mappings = 256, hits = 6400;

	pdn_hits_for_a_look = 64;
	fake_reserved = SEGMENT;
	fake_reserved_size = mappings * PIECE;
	for (unsigned n = 0; n < mappings; n++)
		watched_alloc(MAPPING(n), PIECE, FAKE_VMM);
	pindown_put(get_over(SEGMENT, mappings * PIECE, 0, mappings));
	get_and_put(SEGMENT, 1);
	uint64_t before = stats().tag_checks;
	for (unsigned n = 0; n < hits; n++)
		get_and_put(SEGMENT + n % mappings * PIECE, 1);
	ck_assert_uint_ge(stats().tag_checks - before, hits / 480);
	ck_assert_uint_le(stats().tag_checks - before, hits / 160 + 1);
	ck_assert_int_eq(watched_unmap(SEGMENT, mappings * PIECE), FAKE_SUCCESS);
}
END_TEST

/* ---- what was replaced unseen ---- */

/*
 * One mapping of a region over several, or of one over itself alone, is another one since, and no
 * call told of that. The request touches all of the region, its end, or its beginning.
 */
START_TEST(a_union_finds_a_mapping_that_was_replaced_unseen)
{
	static const struct {
		unsigned first, count, replaced, from, to;
	} cases[] = {
		{0, 3, 1, 2, 4}, {0, 3, 1, 0, 4}, {0, 2, 1, 0, 3}, {1, 3, 2, 0, 2},
		{1, 1, 1, 0, 2}, {1, 2, 1, 0, 4}, {0, 3, 2, 0, 4},
	};
	const unsigned first = cases[_i].first, from = cases[_i].from;

	map_segment();
	pindown_put(get_over(MAPPING(first), cases[_i].count * PIECE, first, cases[_i].count));
	ck_assert_int_eq(fake_free(MAPPING(cases[_i].replaced)), FAKE_SUCCESS);
	fake_alloc(MAPPING(cases[_i].replaced), PIECE, FAKE_VMM);
	expected_missed = 1;
	pindown_put(must_get(MAPPING(from) + 1, (cases[_i].to - from) * PIECE - 1));
	ck_assert_uint_eq(stats().missed_invalidations, 1);
	ck_assert_uint_eq(stats().distrusted, 1);
	ck_assert_uint_eq(stats().regions, 1);
	unmap_segment();
}
END_TEST

/* ---- what it can't have ---- */

/*
 * The driver refuses the double region, the union, and the request alone, in this order. What was
 * pinned stays until something has taken its place.
 */
START_TEST(a_refused_region_leaves_the_narrower_one)
{
	pin_first_two();
	fake_fail(FAKE_EXPORT, 0, (unsigned)_i, FAKE_UNKNOWN);
	if (_i < 3) {
		static const unsigned first[] = {0, 0, 1}, count[] = {4, 3, 2};

		pindown_put(cross(first[_i], count[_i]));
		ck_assert_uint_eq(stats().pin_failures, 0);
		ck_assert_uint_eq(stats().regions, 1);
	} else {
		must_refuse(MAPPING(2) - MIB(1), MIB(2), PINDOWN_ERR_DRIVER);
		ck_assert_uint_eq(stats().pin_failures, 1);
		ck_assert(is_cached(MAPPING(0), 2 * PIECE));
	}
	ck_assert_uint_eq(stats().lost_races, 0);
	unmap_segment();
}
END_TEST

/* It would be evicted first, as it is older. */
static void pin_the_other(void)
{
	fake_alloc(OTHER, PIECE, FAKE_LINEAR);
	get_and_put(OTHER, PIECE);
}

/* Nothing else is evicted for the double region; the replaced one goes first for the union. */
START_TEST(pin_space_for_the_union_only)
{
	pin_the_other();
	pin_first_two();
	fake_pin_space(4 * PIECE);
	pindown_put(cross(0, 3));
	ck_assert(is_cached(OTHER, PIECE));
	ck_assert_uint_eq(stats().evictions, 1);
	ck_assert_uint_eq(stats().pin_failures, 0);
	unmap_segment();
}
END_TEST

START_TEST(a_budget_for_the_union_only)
{
	setenv("PINDOWN_MAX_BYTES", "8M", 1);
	pin_the_other();
	pin_first_two();
	pindown_put(cross(0, 3));
	ck_assert(is_cached(OTHER, PIECE));
	ck_assert_uint_eq(stats().evictions, 1);
	ck_assert_uint_eq(stats().pin_failures, 0);
	unmap_segment();
}
END_TEST

/* A full budget is no reason to pin the same windows again and again: others have to go. */
START_TEST(a_union_takes_room_from_other_regions)
{
	setenv("PINDOWN_MAX_BYTES", "8M", 1);
	pin_first_two();
	for (unsigned n = 0; n < 2; n++) {
		fake_alloc(BASE + MIB(128) + n * PIECE, PIECE, FAKE_LINEAR);
		get_and_put(BASE + MIB(128) + n * PIECE, PIECE);
	}
	ck_assert_uint_eq(stats().bytes, MIB(8));
	pindown_put(cross(0, 3));
	for (unsigned n = 0; n < 10; n++) {
		ck_assert(is_cached(MAPPING(0), 2 * PIECE));
		ck_assert(is_cached(MAPPING(2) - MIB(1), MIB(2)));
	}
	ck_assert_uint_le(stats().bytes, MIB(8));
	unmap_segment();
}
END_TEST

/* The uses of the replaced region count for the new one: it outlives newcomers. */
START_TEST(a_region_in_use_is_no_newcomer_when_it_grows)
{
	setenv("PINDOWN_MAX_BYTES", "16M", 1);
	pin_first_two();
	get_and_put(MAPPING(0), 1);
	get_and_put(MAPPING(0), 1);
	pindown_put(cross(0, 4));
	for (unsigned n = 0; n < 12; n++) {
		fake_alloc(OTHER + n * PIECE, PIECE, FAKE_LINEAR);
		get_and_put(OTHER + n * PIECE, PIECE);
	}
	ck_assert_uint_ge(stats().evictions, 8);
	ck_assert(is_cached(MAPPING(0), 4 * PIECE));
	unmap_segment();
}
END_TEST

/* The held region stays pinned, so there is room for the request alone, or not even for that. */
START_TEST(a_held_region_and_no_room_for_a_union)
{
	map_segment();
	pindown_region *held = get_over(MAPPING(0), 2 * PIECE, 0, 2);
	fake_pin_space(MIB(5));
	must_refuse(MAPPING(2) - MIB(1), MIB(2), PINDOWN_ERR_NO_SPACE);
	ck_assert(is_cached(MAPPING(0), 2 * PIECE));
	ck_assert(pindown_region_is_live(held));
	fake_pin_space(MIB(8));
	pindown_put(cross(1, 2));
	ck_assert_uint_eq(stats().kept_bytes, 2 * PIECE);
	ck_assert(!pindown_region_is_live(held));
	pindown_put(held);
	ck_assert_uint_eq(stats().kept_bytes, 0);
	unmap_segment();
}
END_TEST

/* No room for the mappings of the request, but for a part of them: an unmap of either ends it. */
START_TEST(a_held_region_and_room_for_a_window)
{
	map_segment();
	pindown_region *held = get_over(MAPPING(0), 2 * PIECE, 0, 2);
	fake_pin_space(MIB(6));
	get_and_put(MAPPING(2) - MIB(1), MIB(2));
	ck_assert_uint_eq(stats().bytes, MIB(6));
	ck_assert_uint_eq(stats().kept_bytes, 2 * PIECE);
	ck_assert(is_cached(MAPPING(2) - MIB(1), MIB(2)));
	ck_assert(!is_cached(MAPPING(0), 1));
	ck_assert_int_eq(watched_unmap(MAPPING(1 + _i), PIECE), FAKE_SUCCESS);
	ck_assert(!is_cached(MAPPING(2) - 1, 1));
	ck_assert(!is_cached(MAPPING(2), 1));
	pindown_put(held);
	ck_assert_uint_eq(stats().bytes, 0);
	ck_assert_uint_eq(fake_open_exports(), 0);
	for (unsigned n = 0; n < 4; n++)
		if (n != 1 + (unsigned)_i)
			watched_unmap(MAPPING(n), PIECE);
}
END_TEST

/* ---- frees meanwhile ---- */

static int result_in_callback;
static uint64_t reached_in_callback;

static void get_the_window(const struct pindown_invalidation *what, void *arg)
{
	pindown_region *region;

	(void)arg;
	if (what->reason != PINDOWN_REASON_FREED)
		return;
	result_in_callback = pindown_get(MAPPING(2) - MIB(1), MIB(2), 0, &region);
	if (result_in_callback != PINDOWN_OK)
		return;
	reached_in_callback = pindown_region_length(region);
	pindown_put(region);
}

/*
 * The last mapping is about to be unmapped by this same thread: a region over it would be refused,
 * or never be there at all.
 */
START_TEST(a_get_in_a_subscriber_does_not_reach_what_ends)
{
	pin_first_two();
	pindown_put(get_over(MAPPING(3), 1, 3, 1));
	ck_assert_int_gt(pindown_subscribe(get_the_window, NULL), 0);
	ck_assert_int_eq(watched_unmap(MAPPING(3), PIECE), FAKE_SUCCESS);
	ck_assert_int_eq(result_in_callback, PINDOWN_OK);
	ck_assert_uint_eq(reached_in_callback, 3 * PIECE);
	ck_assert(is_cached(MAPPING(0), 3 * PIECE));
	for (unsigned n = 0; n < 3; n++)
		watched_unmap(MAPPING(n), PIECE);
}
END_TEST

static struct gate begun, may_end;

static void unmap_last_slowly(void *arg)
{
	(void)arg;
	pdn_guard guard = pdn_end_range(MAPPING(3), PIECE);

	gate_open(&begun);
	gate_wait(&may_end);
	ck_assert_int_eq(fake_free(MAPPING(3)), FAKE_SUCCESS);
	pdn_ended(guard);
}

/* Another thread's unmap may take long: a get of other mappings does not wait for it. */
START_TEST(a_get_does_not_wait_for_a_free_beside_it)
{
	struct worker worker;

	gate_init(&begun);
	gate_init(&may_end);
	pin_first_two();
	worker_start(&worker, unmap_last_slowly, NULL);
	gate_wait(&begun);
	pindown_put(cross(0, 3));
	gate_open(&may_end);
	worker_join(&worker);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	for (unsigned n = 0; n < 3; n++)
		watched_unmap(MAPPING(n), PIECE);
}
END_TEST

/* ---- windows of one allocation, of 16 MiB where 8 can be pinned ---- */

/* Half of a window fits, and is pinned. */
START_TEST(a_window_shrinks_by_half_for_space)
{
	pindown_region *held, *half;

	pin_two_windows();
	ck_assert_int_eq(pindown_invalidate(OTHER + MIB(7), 1), 1);
	held = must_get(OTHER + MIB(4), 1);
	fake_pin_space(MIB(1) + KIB(512));
	half = must_get(OTHER + MIB(9), 1);
	ck_assert_uint_eq(pindown_region_base(half), OTHER + MIB(9));
	ck_assert_uint_eq(pindown_region_length(half), KIB(512));
	pindown_put(half);
	pindown_put(held);
}
END_TEST

/* A new allocation in the place of one that was freed unseen: its windows are found there. */
START_TEST(windows_of_memory_that_is_gone_are_found_stale)
{
	pin_two_windows();
	ck_assert_int_eq(fake_free(OTHER), FAKE_SUCCESS);
	fake_alloc(OTHER, MIB(16), FAKE_LINEAR);
	get_and_put(OTHER + MIB(7) - 1, 2);
	ck_assert_uint_eq(stats().missed_invalidations, 1);
	expected_missed = 1;
	get_and_put(OTHER + MIB(4), 1); /* each hit is checked from now on */
	ck_assert_uint_eq(stats().missed_invalidations, 2);
	expected_missed = 2;
	ck_assert_int_eq(watched_free(OTHER), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

/* Pools pin from the beginning of a piece: no windows there. */
START_TEST(pool_memory_has_no_windows)
{
	fake_alloc(OTHER, MIB(16), FAKE_POOL);
	fake_pin_space(MIB(8));
	must_refuse(OTHER + MIB(4), 1, PINDOWN_ERR_NO_SPACE);
	ck_assert_uint_eq(stats().pin_failures, 1);
	watched_free(OTHER);
}
END_TEST

/*
 * A region of memory that was freed unseen tells less than the end of what is there by now. The
 * free that is seen ends all windows of that all the same.
 */
START_TEST(a_free_ends_windows_behind_a_region_that_is_stale)
{
	setenv("PINDOWN_MAX_BYTES", "4M", 1);
	fake_alloc(OTHER, MIB(1), FAKE_LINEAR);
	get_and_put(OTHER, MIB(1));
	ck_assert_int_eq(fake_free(OTHER), FAKE_SUCCESS); /* unseen */
	fake_alloc(OTHER, MIB(32), FAKE_LINEAR);
	get_and_put(OTHER + MIB(16), 1);
	ck_assert_uint_eq(stats().regions, 2);
	ck_assert_int_eq(watched_free(OTHER), FAKE_SUCCESS);
	ck_assert(!is_cached(OTHER + MIB(16), 1));
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: how far a pin reaches");
	TCase *tc = cache_case(suite, "how far a pin reaches");

	tcase_add_test(tc, a_region_that_is_replaced_doubles);
	tcase_add_loop_test(tc, the_uses_of_what_is_replaced_count, 0, PDN_MAX_USES + 1);
	tcase_add_test(tc, it_doubles_to_either_side);
	tcase_add_test(tc, regions_beside_each_other_become_one_when_a_window_crosses);
	tcase_add_loop_test(tc, it_reaches_over_mappings_of_its_kind_only, 0, 4);
	tcase_add_test(tc, a_wide_region_is_compared_less_often);
	tc = cache_case(suite, "what was replaced unseen");
	tcase_add_loop_test(tc, a_union_finds_a_mapping_that_was_replaced_unseen, 0, 7);
	tc = cache_case(suite, "what it can't have");
	tcase_add_loop_test(tc, a_refused_region_leaves_the_narrower_one, 0, 4);
	tcase_add_test(tc, pin_space_for_the_union_only);
	tcase_add_test(tc, a_budget_for_the_union_only);
	tcase_add_test(tc, a_union_takes_room_from_other_regions);
	tcase_add_test(tc, a_region_in_use_is_no_newcomer_when_it_grows);
	tcase_add_test(tc, a_held_region_and_no_room_for_a_union);
	tcase_add_loop_test(tc, a_held_region_and_room_for_a_window, 0, 2);
	tc = cache_case(suite, "frees meanwhile");
	tcase_add_test(tc, a_get_in_a_subscriber_does_not_reach_what_ends);
	tcase_add_test(tc, a_get_does_not_wait_for_a_free_beside_it);
	tc = cache_case(suite, "windows");
	tcase_add_test(tc, a_window_shrinks_by_half_for_space);
	tcase_add_test(tc, a_free_ends_windows_behind_a_region_that_is_stale);
	tcase_add_test(tc, windows_of_memory_that_is_gone_are_found_stale);
	tcase_add_test(tc, pool_memory_has_no_windows);
	return run_suite(suite);
}
