/* SPDX-License-Identifier: MIT */
/*
 * Memory ends: frees, contexts, devices, everything; and memory whose end can't be seen. Scenarios
 * marked [UCX] and [libfabric] are known from those projects' suites.
 */
#define _GNU_SOURCE
#include "cache/end/work.h"
#include "cache/hit/index.h"
#include "cache/room/queues.h"
#include "tests/unit/support/cache_test.h"

#define OTHER_CONTEXT ((void *)0xc1)
#define POOL	      ((void *)0xb1)
#define AT(i)	      (BASE + MIB(16) * (i))

/* [UCX] put then invalidate. */
START_TEST(invalidating_an_idle_region_unpins_it_at_once)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	ck_assert_int_eq(pindown_invalidate(BASE, MIB(2)), 1);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert(!is_cached(BASE, 1));
	ck_assert_int_eq(pindown_invalidate(BASE, MIB(2)), 0);
	get_and_put(BASE, 1);
	ck_assert_uint_eq(stats().pins, 2);
}
END_TEST

/* [UCX] invalidate while in use. */
START_TEST(invalidating_a_region_in_use_unlinks_it_till_the_last_put)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *old = must_get(BASE, 1);
	ck_assert_ptr_eq(must_get(BASE, 1), old);
	ck_assert_int_eq(pindown_invalidate(BASE, 0), 1);
	ck_assert(!is_cached(BASE, 1));
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert_int_eq(pindown_invalidate(BASE, 0), 0);

	pindown_region *new = must_get(BASE, 1);
	ck_assert_ptr_ne(new, old);
	ck_assert_uint_eq(fake_open_exports(), 2);
	pindown_put(old);
	ck_assert_uint_eq(fake_open_exports(), 2);
	pindown_put(old);
	ck_assert_uint_eq(fake_open_exports(), 1);
	pindown_put(new);
	ck_assert(is_cached(BASE, 1));
}
END_TEST

START_TEST(an_idle_region_is_unpinned_before_the_free)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);

	pdn_guard guard = pdn_end_range(BASE, 0);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert(!is_cached(BASE, 1));
	ck_assert_int_eq(fake_free(BASE), FAKE_SUCCESS);
	pdn_ended(guard);
	must_refuse(BASE, 1, PINDOWN_ERR_NOT_DEVICE);
	ck_assert_uint_eq(stats().invalidations, 1);
}
END_TEST

/* It does not matter which thread holds it, nor in which order the holds are put. */
START_TEST(a_region_in_use_outlives_the_free_and_is_counted)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	ck_assert_ptr_eq(must_get(BASE, 1), region);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);

	ck_assert_int_eq(pindown_region_is_live(region), 0);
	ck_assert_uint_eq(pindown_region_base(region), BASE);
	struct pindown_stats s = stats();
	ck_assert_uint_eq(s.regions, 1);
	ck_assert_uint_eq(s.bytes, MIB(2));
	ck_assert_uint_eq(s.kept_regions, 1);
	ck_assert_uint_eq(s.kept_bytes, MIB(2));
	ck_assert_uint_eq(s.invalidations, 1);
	ck_assert_int_eq(pindown_flush(), 0);

	pindown_put(region);
	ck_assert_uint_eq(fake_open_exports(), 1);
	pindown_put(region);
	ck_assert_uint_eq(fake_open_exports(), 0);
	s = stats();
	ck_assert_uint_eq(s.regions | s.bytes | s.kept_regions | s.kept_bytes, 0);
}
END_TEST

START_TEST(a_free_by_an_inner_address_ends_the_allocation)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	pdn_ended(pdn_end_range(BASE + MIB(1) + 5, 0));
	ck_assert(!is_cached(BASE, 1));
}
END_TEST

/*
 * [UCX] failed free. The driver refuses it: the memory lives on, and is registered again at its
 * next use.
 */
START_TEST(after_a_failed_free_the_region_is_registered_again)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *held = must_get(BASE, 1);
	uint64_t id = pindown_region_buffer_id(held);
	ck_assert_int_eq(watched_free(BASE + MIB(1)), FAKE_INVALID_VALUE);

	pindown_region *again = must_get(BASE, 1);
	ck_assert_uint_eq(pindown_region_buffer_id(again), id);
	pindown_put(again);
	pindown_put(held);
	ck_assert(is_cached(BASE, 1));
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_int_eq(watched_free(BASE), FAKE_INVALID_VALUE);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
}
END_TEST

START_TEST(a_free_of_nothing_registered_only_asks_how_far_it_reaches)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	get_and_put(AT(1), 1);
	unsigned before = fake_count(FAKE_CALLS), asked = fake_count(FAKE_QUERY);
	pdn_ended(pdn_end_range(BASE, 0));
	pdn_ended(pdn_end_range(BASE, MIB(2)));
	pdn_ended(pdn_end_range(0, 0));
	pdn_ended(pdn_end_range(UINT64_MAX, 0));
	pdn_ended(pdn_end_range(UINT64_MAX - 4, 100));
	asked = fake_count(FAKE_QUERY) - asked;
	/* How far it reaches, in two ways, where no memory is there and no length is given. */
	ck_assert_uint_eq(asked, 6);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), before + asked);
	ck_assert(is_cached(AT(1), 1));
	ck_assert_uint_eq(stats().invalidations, 0);
}
END_TEST

START_TEST(a_range_ends_all_that_overlaps_it_and_no_more)
{
	for (unsigned i = 0; i < 5; i++) {
		fake_alloc(BASE + MIB(2) * i, MIB(2), FAKE_LINEAR);
		get_and_put(BASE + MIB(2) * i, 1);
	}
	pdn_ended(pdn_end_range(BASE + MIB(4) - 1, MIB(2) + 2));
	ck_assert(is_cached(BASE, 1));
	for (unsigned i = 1; i < 4; i++)
		ck_assert(!is_cached(BASE + MIB(2) * i, 1));
	ck_assert(is_cached(BASE + MIB(8), 1));
	ck_assert_uint_eq(stats().invalidations, 3);

	ck_assert_int_eq(pindown_invalidate(BASE - MIB(100), GIB(100)), 2);
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

/*
 * Side by side: alone in blocks and beyond, side by side in a block, sharing pages, on two devices,
 * pinned in any order. Each is ended once, whichever call ends them all.
 */
static const struct {
	uint64_t at, size;
} mixture[] = {
	{MIB(1), MIB(4)},
	{MIB(5), PAGE},
	{MIB(5) + PAGE, PAGE},
	{MIB(5) + 2 * PAGE, 512},
	{MIB(5) + 2 * PAGE + 512, PAGE},
	{MIB(6), MIB(2) + PAGE},
	{MIB(10), MIB(2)},
	{MIB(12), 3 * PAGE},
	{MIB(12) + 4 * PAGE, PAGE},
	{GIB(5) + MIB(1), MIB(2)},
	{GIB(5) + MIB(3), 20 * PAGE},
};
#define MIXED (sizeof(mixture) / sizeof(mixture[0]))

static void pin_mixture(unsigned step)
{
	for (unsigned i = 0; i < MIXED; i++) {
		unsigned n = i * step % MIXED;

		fake_alloc_in(BASE + mixture[n].at, mixture[n].size, FAKE_LINEAR, FAKE_CONTEXT,
			      (int)(n / 4 % 2), NULL);
		get_and_put(BASE + mixture[n].at, 1);
	}
	ck_assert_uint_eq(stats().regions, MIXED);
}

static int end_mixture(unsigned how)
{
	switch (how) {
	case 0:
		return pindown_invalidate(BASE, GIB(6));
	case 1:
		return pindown_invalidate(BASE + MIB(3), GIB(5) - MIB(2) + MIB(3));
	case 2:
		return pindown_invalidate_context(FAKE_CONTEXT);
	default:
		return pindown_flush();
	}
}

START_TEST(many_end_at_once_and_each_of_them_once)
{
	const unsigned how = (unsigned)_i % 4, steps[] = {1, MIXED - 1, 4};

	for (unsigned turn = 0; turn < 3; turn++) {
		pin_mixture(steps[(unsigned)_i / 4]);
		ck_assert_int_eq(end_mixture(how), MIXED);
		for (unsigned i = 0; i < MIXED; i++) {
			ck_assert(!is_cached(BASE + mixture[i].at, 1));
			fake_free(BASE + mixture[i].at);
		}
		ck_assert_uint_eq(stats().regions, 0);
		ck_assert_uint_eq(stats().bytes, 0);
		ck_assert_uint_eq(device_stats(0).regions + device_stats(1).regions, 0);
		ck_assert_uint_eq(stats().unpins, (turn + 1) * MIXED);
		ck_assert_uint_eq(pdn_occupied, 0);
		ck_assert(!pdn_works_any());
		ck_assert_uint_eq(pdn_queues_first(), 0);
	}
}
END_TEST

START_TEST(many_end_at_once_but_for_those_in_use)
{
	pindown_region *held[MIXED] = {NULL};
	uint64_t bytes;

	pin_mixture(1);
	bytes = stats().bytes;
	for (unsigned i = 0; i < MIXED; i += 2)
		held[i] = must_get(BASE + mixture[i].at, 1);
	ck_assert_int_eq(end_mixture((unsigned)_i), _i == 3 ? MIXED / 2 : MIXED);
	ck_assert_uint_eq(stats().regions, MIXED - MIXED / 2);
	ck_assert_uint_eq(stats().kept_regions, _i == 3 ? 0 : MIXED - MIXED / 2);
	ck_assert_uint_lt(stats().bytes, bytes);
	for (unsigned i = 0; i < MIXED; i += 2)
		pindown_put(held[i]);
	pindown_flush();
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(stats().bytes, 0);
	ck_assert(!pdn_works_any());
}
END_TEST

/* The range counts in bytes, not in pages. */
START_TEST(a_range_spares_neighbours_in_its_pages)
{
	for (unsigned i = 0; i < 3; i++) {
		fake_alloc(BASE + 512 * i, 512, FAKE_LINEAR);
		get_and_put(BASE + 512 * i, 512);
	}
	ck_assert_int_eq(pindown_invalidate(BASE + 512, 512), 1);
	ck_assert(is_cached(BASE, 512));
	ck_assert(is_cached(BASE + 1024, 512));
	ck_assert_int_eq(pindown_invalidate(BASE + 511, 2), 1);
	ck_assert_int_eq(pindown_invalidate(BASE, PAGE), 1);
}
END_TEST

/* ---- contexts, devices, everything ---- */

static void one_of_each(void)
{
	fake_alloc_in(AT(0), MIB(1), FAKE_LINEAR, FAKE_CONTEXT, 0, NULL);
	fake_alloc_in(AT(1), MIB(1), FAKE_LINEAR, OTHER_CONTEXT, 0, NULL);
	fake_alloc_in(AT(2), MIB(1), FAKE_POOL, NULL, 0, POOL);
	fake_alloc_in(AT(3), MIB(1), FAKE_VMM, NULL, 0, NULL);
	fake_alloc_in(AT(4), MIB(1), FAKE_LINEAR, (void *)0xd1, 1, NULL);
	for (unsigned i = 0; i < 5; i++)
		get_and_put(AT(i), 1);
}

static void assert_cached(const char *which)
{
	for (unsigned i = 0; which[i]; i++)
		ck_assert_msg(is_cached(AT(i), 1) == (which[i] == '1'),
			      "region %u is%s cached; expected %s", i,
			      which[i] == '1' ? " not" : "", which);
}

START_TEST(a_context_takes_its_own_linear_memory_only)
{
	one_of_each();
	watched_context_destroy(OTHER_CONTEXT);
	assert_cached("10111");
	ck_assert_uint_eq(fake_open_exports(), 4);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	ck_assert_uint_eq(stats().invalidations, 1);
	watched_context_destroy((void *)0xfeed);
	assert_cached("10111");
	ck_assert_int_eq(pindown_invalidate_context(FAKE_CONTEXT), 1);
	assert_cached("00111");
	ck_assert_int_eq(pindown_invalidate_context(FAKE_CONTEXT), 0);
}
END_TEST

START_TEST(no_context_owns_pool_and_mapped_memory)
{
	one_of_each();
	ck_assert_int_le(pindown_invalidate_context(NULL), 0);
	pdn_ended(pdn_end_context(NULL));
	assert_cached("11111");
}
END_TEST

START_TEST(a_context_ends_while_its_region_is_in_use)
{
	one_of_each();
	pindown_region *held = must_get(AT(0), 1);
	watched_context_destroy(FAKE_CONTEXT);
	ck_assert_int_eq(pindown_region_is_live(held), 0);
	ck_assert_uint_eq(stats().kept_regions, 1);
	assert_cached("01111");
	pindown_put(held);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
}
END_TEST

START_TEST(a_device_takes_the_memory_of_its_contexts)
{
	one_of_each();
	pdn_ended(pdn_end_device(1));
	assert_cached("11110");
	ck_assert_uint_eq(device_stats(1).invalidations, 1);
	ck_assert_uint_eq(device_stats(0).invalidations, 0);
	pdn_ended(pdn_end_device(0));
	ck_assert(!is_cached(AT(0), 1));
}
END_TEST

START_TEST(everything_ends_at_a_checkpoint)
{
	one_of_each();
	pindown_region *held = must_get(AT(3), 1);
	pdn_guard guard = pdn_end_all();
	assert_cached("00000");
	ck_assert_uint_eq(fake_open_exports(), 1);
	pdn_ended(guard);
	pindown_put(held);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_uint_eq(stats().invalidations, 5);
	get_and_put(AT(0), 1);
}
END_TEST

/* ---- memory whose end can't be seen ---- */

START_TEST(a_volatile_region_is_checked_at_each_hit)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	get_and_put(AT(1), 1);
	pdn_volatile(BASE, MIB(2));

	unsigned before = fake_count(FAKE_QUERY);
	pindown_region *region = must_get(BASE, 1);
	ck_assert_int_eq(pindown_region_is_volatile(region), 1);
	pindown_put(region);
	get_and_put(BASE, 1);
	ck_assert_uint_eq(fake_count(FAKE_QUERY) - before, 2);
	ck_assert_uint_eq(stats().tag_checks, 2);

	before = fake_count(FAKE_QUERY);
	region = must_get(AT(1), 1);
	ck_assert_int_eq(pindown_region_is_volatile(region), 0);
	pindown_put(region);
	ck_assert_uint_eq(fake_count(FAKE_QUERY), before);
}
END_TEST

START_TEST(volatile_memory_may_be_replaced_unseen)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	pdn_volatile(BASE, MIB(2));
	for (unsigned round = 0; round < 10; round++) {
		pindown_region *held = must_get(BASE, 1);
		ck_assert_int_eq(fake_free(BASE), FAKE_SUCCESS);
		if (round % 2)
			must_refuse(BASE, 1, PINDOWN_ERR_NOT_DEVICE);
		fake_alloc(BASE, MIB(2), FAKE_LINEAR);
		pindown_region *region = must_get(BASE, 1);
		ck_assert_uint_eq(pindown_region_buffer_id(region), fake_id(BASE));
		ck_assert_ptr_ne(region, held);
		ck_assert_int_eq(pindown_region_is_live(held), 0);
		pindown_put(held);
		ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
		pindown_put(region);
	}
	ck_assert_uint_eq(stats().missed_invalidations, 0);
}
END_TEST

START_TEST(volatile_before_the_pin_counts_as_well)
{
	pdn_volatile(BASE, MIB(8));
	fake_alloc(BASE + MIB(2), MIB(2), FAKE_LINEAR);
	get_and_put(BASE + MIB(2), 1);
	pindown_region *region = must_get(BASE + MIB(2), 1);
	ck_assert_int_eq(pindown_region_is_volatile(region), 1);
	pindown_put(region);
	ck_assert_uint_eq(stats().tag_checks, 1);
}
END_TEST

START_TEST(a_region_that_is_partly_volatile_is_checked)
{
	fake_alloc(BASE, MIB(4), FAKE_LINEAR);
	get_and_put(BASE, 1);
	pdn_volatile(BASE + MIB(4) - 1, MIB(2));
	get_and_put(BASE, 1);
	ck_assert_uint_eq(stats().tag_checks, 1);
}
END_TEST

START_TEST(trusted_memory_is_no_longer_checked)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	pdn_volatile(BASE, MIB(2));
	get_and_put(BASE, 1);
	ck_assert_uint_eq(stats().tag_checks, 1);
	pdn_allocated(BASE, MIB(2));
	unsigned before = fake_count(FAKE_CALLS);
	pindown_region *region = must_get(BASE, 1);
	ck_assert_int_eq(pindown_region_is_volatile(region), 0);
	pindown_put(region);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), before);
	ck_assert_uint_eq(stats().tag_checks, 1);
	pindown_flush();
	get_and_put(BASE, 1);
	get_and_put(BASE, 1);
	ck_assert_uint_eq(stats().tag_checks, 1);
}
END_TEST

/*
 * Memory is trusted from now on. A region whose memory died unseen before must not be found any
 * more.
 */
START_TEST(trusted_memory_is_compared_first)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pdn_volatile(BASE, MIB(2));
	get_and_put(BASE, 1);
	ck_assert_int_eq(fake_free(BASE), FAKE_SUCCESS);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pdn_allocated(BASE, MIB(2));
	ck_assert(!is_cached(BASE, 1));
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	get_and_put(BASE, 1);
	ck_assert_uint_eq(stats().tag_checks, 0);
}
END_TEST

/*
 * A part that is trusted, by an explicit call or because the driver has handed it out again, says
 * nothing about the rest.
 */
START_TEST(trust_in_a_part_leaves_the_rest_volatile)
{
	pdn_volatile(BASE, MIB(8));
	for (unsigned i = 0; i < 4; i++)
		fake_alloc(BASE + MIB(2) * i, MIB(2), FAKE_LINEAR);
	pdn_allocated(BASE + MIB(2), MIB(2));
	pdn_allocated(BASE + MIB(6), MIB(1));
	for (unsigned i = 0; i < 4; i++)
		get_and_put(BASE + MIB(2) * i, 1);
	for (unsigned i = 0; i < 4; i++) {
		pindown_region *region = must_get(BASE + MIB(2) * i, 1);
		ck_assert_int_eq(pindown_region_is_volatile(region), i != 1);
		pindown_put(region);
	}
	ck_assert_uint_eq(stats().tag_checks, 3);
}
END_TEST

/*
 * A pool's memory comes and goes, in part, for days. It must not fill the list of volatile ranges,
 * or all memory would be volatile.
 */
START_TEST(memory_that_is_volatile_again_takes_no_more_room)
{
	for (unsigned i = 0; i < 6000; i++) {
		pdn_volatile(BASE, MIB(2));
		pdn_allocated(BASE, PAGE);
	}
	fake_alloc(BASE + MIB(2), PAGE, FAKE_LINEAR);
	get_and_put(BASE + MIB(2), 1);
	get_and_put(BASE + MIB(2), 1);
	ck_assert_uint_eq(stats().tag_checks, 0);
	fake_alloc(BASE + PAGE, PAGE, FAKE_LINEAR);
	get_and_put(BASE + PAGE, 1);
	get_and_put(BASE + PAGE, 1);
	ck_assert_uint_eq(stats().tag_checks, 1);
}
END_TEST

START_TEST(many_volatile_ranges)
{
	const unsigned n = 6000; /* more than are remembered one by one */

	for (unsigned i = 0; i < n; i++)
		pdn_volatile(BASE + PAGE * 2 * i, PAGE);
	fake_alloc(BASE, PAGE, FAKE_LINEAR);
	fake_alloc(BASE + PAGE * 2 * (n - 1), PAGE, FAKE_LINEAR);
	for (unsigned round = 0; round < 2; round++) {
		get_and_put(BASE, 1);
		get_and_put(BASE + PAGE * 2 * (n - 1), 1);
	}
	ck_assert_uint_eq(stats().tag_checks, 2);
}
END_TEST

/* ---- a free that bypassed pindown ---- */

START_TEST(an_allocation_where_a_region_lives_shows_a_missed_free)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	uint64_t old = fake_id(BASE);
	ck_assert_int_eq(fake_free(BASE), FAKE_SUCCESS);

	watched_alloc(BASE + MIB(1), MIB(2), FAKE_LINEAR);
	expected_missed = 1;
	ck_assert_uint_eq(stats().missed_invalidations, 1);
	ck_assert(!is_cached(BASE, 1));
	ck_assert(!is_cached(BASE + MIB(1), 1));
	ck_assert_uint_eq(fake_open_exports_of(old), 0);
	get_and_put(BASE + MIB(1), 1);
}
END_TEST

/* The order of their pins is not that of their addresses in the page that they share. */
START_TEST(an_allocation_over_two_regions_shows_two_missed_frees)
{
	fake_alloc(BASE + KIB(8), KIB(4), FAKE_LINEAR);
	get_and_put(BASE + KIB(8), 1);
	fake_alloc(BASE + KIB(4), KIB(4), FAKE_LINEAR);
	get_and_put(BASE + KIB(4), 1);
	ck_assert_int_eq(fake_free(BASE + KIB(4)), FAKE_SUCCESS);
	ck_assert_int_eq(fake_free(BASE + KIB(8)), FAKE_SUCCESS);

	watched_alloc(BASE, KIB(16), FAKE_LINEAR);
	expected_missed = 2;
	ck_assert_uint_eq(stats().missed_invalidations, 2);
	ck_assert(!is_cached(BASE + KIB(4), 1));
	ck_assert(!is_cached(BASE + KIB(8), 1));
}
END_TEST

START_TEST(a_missed_free_of_a_region_in_use_keeps_it_till_the_put)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *held = must_get(BASE, 1);
	ck_assert_int_eq(fake_free(BASE), FAKE_SUCCESS);
	watched_alloc(BASE, MIB(2), FAKE_LINEAR);
	expected_missed = 1;
	ck_assert_int_eq(pindown_region_is_live(held), 0);
	ck_assert_uint_eq(stats().missed_invalidations, 1);
	ck_assert_uint_eq(stats().kept_regions, 1);
	pindown_put(held);
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

START_TEST(an_allocation_beside_a_region_is_no_missed_free)
{
	fake_alloc(BASE, 512, FAKE_LINEAR);
	get_and_put(BASE, 1);
	watched_alloc(BASE + 512, 512, FAKE_LINEAR);
	watched_alloc(BASE - 512, 512, FAKE_LINEAR);
	ck_assert(is_cached(BASE, 512));
	ck_assert_uint_eq(stats().missed_invalidations, 0);
}
END_TEST

START_TEST(a_recheck_of_a_pool_drops_what_has_gone)
{
	fake_alloc_in(AT(0), MIB(1), FAKE_POOL, NULL, 0, POOL);
	fake_alloc_in(AT(1), MIB(1), FAKE_POOL, NULL, 0, POOL);
	fake_alloc_in(AT(2), MIB(1), FAKE_POOL, NULL, 0, (void *)0xb2);
	fake_alloc_in(AT(3), MIB(1), FAKE_LINEAR, FAKE_CONTEXT, 0, NULL);
	for (unsigned i = 0; i < 4; i++)
		get_and_put(AT(i), 1);
	pdn_recheck(POOL);
	assert_cached("1111");
	ck_assert_uint_eq(stats().missed_invalidations, 0);

	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(fake_free(AT(i)), FAKE_SUCCESS);
	fake_alloc_in(AT(1), MIB(1), FAKE_POOL, NULL, 0, POOL);
	pdn_recheck(POOL);
	ck_assert_uint_eq(stats().regions, 2);
	pdn_recheck(NULL);
	ck_assert_uint_eq(stats().regions, 0);
	assert_cached("0000");
	ck_assert_uint_eq(fake_open_exports(), 0);
	expected_missed = 4;
}
END_TEST

START_TEST(a_recheck_spares_what_is_alive)
{
	one_of_each();
	pdn_recheck(NULL);
	assert_cached("11111");
	ck_assert_uint_eq(stats().invalidations, 0);
}
END_TEST

/* After CUDA has shut down, or may have: the cache calls nothing of it, and does no harm. */
START_TEST(at_exit_the_driver_is_left_alone)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *held = must_get(BASE, 1);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	get_and_put(AT(1), 1);
	pdn_exiting();
	unsigned before = fake_count(FAKE_CALLS);

	fake_alloc(AT(2), MIB(2), FAKE_LINEAR);
	must_refuse(AT(2), 1, PINDOWN_ERR_NO_CUDA);
	pdn_ended(pdn_end_range(AT(1), 0));
	pdn_recheck(NULL);
	pdn_ended(pdn_end_all());
	pindown_put(held);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), before);
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: invalidation");
	TCase *tc = cache_case(suite, "idle and in use");

	tcase_add_test(tc, invalidating_an_idle_region_unpins_it_at_once);
	tcase_add_test(tc, invalidating_a_region_in_use_unlinks_it_till_the_last_put);
	tcase_add_test(tc, an_idle_region_is_unpinned_before_the_free);
	tcase_add_test(tc, a_region_in_use_outlives_the_free_and_is_counted);
	tcase_add_test(tc, a_free_by_an_inner_address_ends_the_allocation);
	tcase_add_test(tc, after_a_failed_free_the_region_is_registered_again);
	tcase_add_test(tc, a_free_of_nothing_registered_only_asks_how_far_it_reaches);
	tcase_add_test(tc, a_range_ends_all_that_overlaps_it_and_no_more);
	tcase_add_test(tc, a_range_spares_neighbours_in_its_pages);
	tcase_add_loop_test(tc, many_end_at_once_and_each_of_them_once, 0, 12);
	tcase_add_loop_test(tc, many_end_at_once_but_for_those_in_use, 0, 4);
	tc = cache_case(suite, "contexts, devices, everything");
	tcase_add_test(tc, a_context_takes_its_own_linear_memory_only);
	tcase_add_test(tc, no_context_owns_pool_and_mapped_memory);
	tcase_add_test(tc, a_context_ends_while_its_region_is_in_use);
	tcase_add_test(tc, a_device_takes_the_memory_of_its_contexts);
	tcase_add_test(tc, everything_ends_at_a_checkpoint);
	tcase_add_test(tc, at_exit_the_driver_is_left_alone);
	tc = cache_case(suite, "volatile memory");
	tcase_add_test(tc, a_volatile_region_is_checked_at_each_hit);
	tcase_add_test(tc, volatile_memory_may_be_replaced_unseen);
	tcase_add_test(tc, volatile_before_the_pin_counts_as_well);
	tcase_add_test(tc, a_region_that_is_partly_volatile_is_checked);
	tcase_add_test(tc, trusted_memory_is_no_longer_checked);
	tcase_add_test(tc, trusted_memory_is_compared_first);
	tcase_add_test(tc, trust_in_a_part_leaves_the_rest_volatile);
	tcase_add_test(tc, memory_that_is_volatile_again_takes_no_more_room);
	tcase_add_test(tc, many_volatile_ranges);
	tc = cache_case(suite, "frees that bypassed pindown");
	tcase_add_test(tc, an_allocation_where_a_region_lives_shows_a_missed_free);
	tcase_add_test(tc, an_allocation_over_two_regions_shows_two_missed_frees);
	tcase_add_test(tc, a_missed_free_of_a_region_in_use_keeps_it_till_the_put);
	tcase_add_test(tc, an_allocation_beside_a_region_is_no_missed_free);
	tcase_add_test(tc, a_recheck_of_a_pool_drops_what_has_gone);
	tcase_add_test(tc, a_recheck_spares_what_is_alive);
	return run_suite(suite);
}
