/* SPDX-License-Identifier: MIT */
/*
 * Where regions lie: rounding, neighbours in one page, one address used again and again, adjacent
 * mappings. Scenarios marked [UCX], [libfabric] and [gdrcopy] are known from those projects'
 * suites.
 */
#define _GNU_SOURCE
#include <string.h>

#include "cache/driver/driver.h"
#include "tests/unit/support/cache_test.h"

#define NEIGHBOURS 3
static const struct {
	uint64_t base, size;
} neighbour[NEIGHBOURS] = {
	/* as the driver packs them: 512 bytes apart, in one 64 KiB page */
	{BASE, 100},
	{BASE + 0x200, 100},
	{BASE + 0x400, MIB(1)},
};

static void alloc_neighbour(unsigned i)
{
	watched_alloc(neighbour[i].base, neighbour[i].size, FAKE_LINEAR);
}

static bool neighbour_cached(unsigned i)
{
	return is_cached(neighbour[i].base, neighbour[i].size);
}

START_TEST(a_pin_covers_whole_pages)
{
	fake_alloc(BASE + 0x200, 100, FAKE_LINEAR);
	pindown_region *region = must_get(BASE + 0x210, 1);
	ck_assert_uint_eq(pindown_region_base(region), BASE + 0x200);
	ck_assert_uint_eq(pindown_region_length(region), 100);
	ck_assert_uint_eq(pindown_region_pin_base(region), BASE);
	ck_assert_uint_eq(pindown_region_pin_length(region), PAGE);
	ck_assert_uint_eq(stats().bytes, PAGE);
	pindown_put(region);
}
END_TEST

START_TEST(a_pin_covers_both_ends_of_an_odd_allocation)
{
	fake_alloc(BASE + 0x400, MIB(3) + 777, FAKE_LINEAR);
	pindown_region *region = must_get(BASE + MIB(2), 1);
	ck_assert_uint_eq(pindown_region_length(region), MIB(3) + 777);
	ck_assert_uint_eq(pindown_region_pin_base(region), BASE);
	ck_assert_uint_eq(pindown_region_pin_length(region), MIB(3) + PAGE);
	pindown_put(region);
}
END_TEST

/* [gdrcopy] two buffers in one GPU page. */
START_TEST(neighbours_are_regions_of_their_own)
{
	pindown_region *regions[NEIGHBOURS];

	for (unsigned i = 0; i < NEIGHBOURS; i++)
		alloc_neighbour(i);
	for (unsigned i = 0; i < NEIGHBOURS; i++) {
		regions[i] = must_get(neighbour[i].base, neighbour[i].size);
		ck_assert_uint_eq(pindown_region_base(regions[i]), neighbour[i].base);
		ck_assert_uint_eq(pindown_region_length(regions[i]), neighbour[i].size);
		ck_assert_uint_eq(pindown_region_buffer_id(regions[i]), fake_id(neighbour[i].base));
	}
	ck_assert_uint_eq(stats().regions, NEIGHBOURS);
	must_refuse(neighbour[0].base + 100, 1, PINDOWN_ERR_NOT_DEVICE);
	must_refuse(neighbour[0].base, 0x201, PINDOWN_ERR_RANGE);
	for (unsigned i = 0; i < NEIGHBOURS; i++)
		pindown_put(regions[i]);
}
END_TEST

/* Whichever goes first, the others stay, and it comes back as a new region. */
START_TEST(each_neighbour_comes_and_goes)
{
	for (unsigned i = 0; i < NEIGHBOURS; i++)
		alloc_neighbour(i);
	for (unsigned gone = 0; gone < NEIGHBOURS; gone++) {
		for (unsigned i = 0; i < NEIGHBOURS; i++)
			get_and_put(neighbour[i].base, neighbour[i].size);
		uint64_t pins = stats().pins, old = fake_id(neighbour[gone].base);

		ck_assert_int_eq(watched_free(neighbour[gone].base), FAKE_SUCCESS);
		for (unsigned i = 0; i < NEIGHBOURS; i++)
			ck_assert_int_eq(neighbour_cached(i), i != gone);
		ck_assert_uint_eq(fake_open_exports_of(old), 0);
		must_refuse(neighbour[gone].base, 1, PINDOWN_ERR_NOT_DEVICE);

		alloc_neighbour(gone);
		for (unsigned i = 0; i < NEIGHBOURS; i++)
			ck_assert_int_eq(neighbour_cached(i), i != gone);
		pindown_region *region = must_get(neighbour[gone].base, 1);
		ck_assert_uint_ne(pindown_region_buffer_id(region), old);
		pindown_put(region);
		ck_assert_uint_eq(stats().pins, pins + 1);
	}
}
END_TEST

/* Many regions share one page: they are told apart by their bytes, not by their page. */
START_TEST(a_page_full_of_neighbours)
{
	const unsigned n = PAGE / 512;

	for (unsigned i = 0; i < n; i++) {
		fake_alloc(BASE + i * 512, 512, FAKE_LINEAR);
		get_and_put(BASE + i * 512, 512);
	}
	ck_assert_uint_eq(stats().regions, n);
	for (unsigned i = 0; i < n; i += 2)
		ck_assert_int_eq(watched_free(BASE + i * 512), FAKE_SUCCESS);
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(is_cached(BASE + i * 512 + 511, 1), i % 2);
	ck_assert_uint_eq(stats().regions, n / 2);
	ck_assert_uint_eq(fake_open_exports(), n / 2);
}
END_TEST

/* [libfabric] same-VA reuse. */
START_TEST(a_reused_address_is_another_region)
{
	uint64_t last = 0;

	for (int round = 0; round < 50; round++) {
		watched_alloc(BASE, MIB(2), FAKE_LINEAR);
		pindown_region *region = must_get(BASE, MIB(2));
		ck_assert_uint_eq(pindown_region_buffer_id(region), fake_id(BASE));
		ck_assert_uint_ne(pindown_region_buffer_id(region), last);
		last = pindown_region_buffer_id(region);
		pindown_put(region);
		ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
		ck_assert_uint_eq(fake_open_exports(), 0);
	}
	ck_assert_uint_eq(stats().invalidations, 50);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
}
END_TEST

/* [libfabric] encapsulated, overlapping: a new allocation inside, around, and across an old one. */
START_TEST(new_allocations_overlap_old_ones_in_every_way)
{
	static const struct {
		uint64_t at, size;
	} shapes[] = {
		{0, MIB(8)},	{MIB(2), MIB(2)}, {0, MIB(4)}, {MIB(2), MIB(6)},
		{MIB(1), PAGE}, {512, MIB(7)},	  {0, 512},    {MIB(7), 2 * MIB(1)},
	};
	const unsigned n = sizeof(shapes) / sizeof(shapes[0]);

	for (unsigned a = 0; a < n; a++) {
		for (unsigned b = 0; b < n; b++) {
			watched_alloc(BASE + shapes[a].at, shapes[a].size, FAKE_LINEAR);
			get_and_put(BASE + shapes[a].at, shapes[a].size);
			ck_assert_int_eq(watched_free(BASE + shapes[a].at), FAKE_SUCCESS);

			watched_alloc(BASE + shapes[b].at, shapes[b].size, FAKE_LINEAR);
			ck_assert(!is_cached(BASE + shapes[b].at, 1));
			pindown_region *region = must_get(BASE + shapes[b].at, shapes[b].size);
			ck_assert_uint_eq(pindown_region_length(region), shapes[b].size);
			pindown_put(region);
			ck_assert_int_eq(watched_free(BASE + shapes[b].at), FAKE_SUCCESS);
			ck_assert_uint_eq(stats().regions, 0);
		}
	}
}
END_TEST

/* The old region is still held (unlinked) while a new one at its address comes and goes. */
START_TEST(old_and_new_region_of_one_address_are_separate)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *old = must_get(BASE, MIB(2));
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);

	watched_alloc(BASE, MIB(4), FAKE_LINEAR);
	pindown_region *new = must_get(BASE, MIB(4));
	ck_assert_ptr_ne(old, new);
	ck_assert_int_eq(pindown_region_is_live(old), 0);
	ck_assert_int_eq(pindown_region_is_live(new), 1);
	ck_assert_uint_eq(pindown_region_length(old), MIB(2));
	ck_assert_uint_eq(stats().regions, 2);
	ck_assert_uint_eq(stats().kept_regions, 1);
	ck_assert_uint_eq(stats().kept_bytes, MIB(2));

	pindown_put(old);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert(is_cached(BASE, MIB(4)));
	pindown_put(new);
	ck_assert(is_cached(BASE, MIB(4)));
}
END_TEST

START_TEST(one_region_holds_a_huge_allocation)
{
	fake_alloc(BASE, GIB(141), FAKE_LINEAR);
	get_and_put(BASE + GIB(70), GIB(71));
	ck_assert(is_cached(BASE, 1));
	ck_assert(is_cached(BASE + GIB(141) - 1, 1));
	ck_assert_uint_eq(stats().bytes, GIB(141));
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert(!is_cached(BASE + GIB(141) - 1, 1));
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

/* Far apart, so that a lookup walks every level of the index. */
START_TEST(regions_anywhere_in_the_address_space)
{
	uint64_t at[47];

	for (unsigned bit = 0; bit < 30; bit++) {
		at[bit] = UINT64_C(1) << (17 + bit);
		fake_alloc(at[bit], PAGE, FAKE_LINEAR);
		get_and_put(at[bit], PAGE);
	}
	for (unsigned bit = 0; bit < 30; bit++) {
		ck_assert(is_cached(at[bit] + PAGE - 1, 1));
		ck_assert(!is_cached(at[bit] + PAGE, 1));
		ck_assert_int_eq(watched_free(at[bit]), FAKE_SUCCESS);
		ck_assert(!is_cached(at[bit], 1));
	}
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

/* ---- adjacent mappings (VMM) ---- */

static void map_pair(void)
{
	watched_alloc(BASE, MIB(2), FAKE_VMM);
	watched_alloc(BASE + MIB(2), MIB(2), FAKE_VMM);
}

START_TEST(a_range_may_span_adjacent_mappings)
{
	map_pair();
	pindown_region *region = must_get(BASE + MIB(1), MIB(2));
	int fd;
	uint64_t offset;
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE + MIB(3) - 1, &fd, &offset),
			 PINDOWN_OK);
	ck_assert_uint_eq(offset, BASE + MIB(3) - 1 - pindown_region_pin_base(region));
	pindown_put(region);
	ck_assert(is_cached(BASE + MIB(1), MIB(2)));
}
END_TEST

/* Memory of another kind at the next address does not count as a mapping. */
START_TEST(a_range_must_not_run_out_of_its_mappings)
{
	map_pair();
	must_refuse(BASE, MIB(4) + 1, PINDOWN_ERR_RANGE);
	fake_alloc(BASE + MIB(4), MIB(2), FAKE_LINEAR);
	must_refuse(BASE, MIB(5), PINDOWN_ERR_RANGE);
	get_and_put(BASE, MIB(4));
	must_refuse(BASE, MIB(4) + 1, PINDOWN_ERR_RANGE);
}
END_TEST

/*
 * Where cuMemMap is not watched, the driver's range for an address shows a mapping: it is the
 * reservation. A mapping that fills its reservation may as well be a graph's memory, and such
 * mappings must not be pinned together.
 */
START_TEST(without_hooks_a_reservation_shows_that_memory_is_mapped)
{
	pdn_is_mapped = NULL;
	map_pair();
	must_refuse(BASE + MIB(1), MIB(2), PINDOWN_ERR_RANGE);
	get_and_put(BASE, MIB(2));

	fake_reserved = BASE;
	fake_reserved_size = MIB(8);
	get_and_put(BASE + MIB(1), MIB(2));
	ck_assert(is_cached(BASE, MIB(4)));
	must_refuse(BASE, MIB(4) + 1, PINDOWN_ERR_RANGE);
}
END_TEST

/* The id says which mapping is meant: another one was at the same address. */
static uint64_t known_id;

static bool knows_one(uint64_t base, uint64_t id)
{
	(void)base;
	return id == known_id;
}

START_TEST(each_part_must_be_known_as_mapped)
{
	map_pair();
	pdn_is_mapped = knows_one;
	known_id = fake_id(BASE);
	must_refuse(BASE, MIB(4), PINDOWN_ERR_RANGE);
	known_id = fake_id(BASE + MIB(2));
	must_refuse(BASE, MIB(4), PINDOWN_ERR_RANGE);
	pdn_is_mapped = fake_is_mapped;
	get_and_put(BASE, MIB(4));
}
END_TEST

/*
 * Either unmap ends the region that spans both mappings, and the other mapping is registered again.
 */
START_TEST(unmapping_either_half_ends_the_spanning_region)
{
	for (unsigned half = 0; half < 2; half++) {
		uint64_t gone = BASE + half * MIB(2), stays = BASE + (1 - half) * MIB(2);

		map_pair();
		get_and_put(BASE, MIB(4));
		ck_assert_int_eq(watched_unmap(gone, MIB(2)), FAKE_SUCCESS);
		ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
		must_refuse(BASE, MIB(4), half ? PINDOWN_ERR_RANGE : PINDOWN_ERR_NOT_DEVICE);
		must_refuse(gone, 1, PINDOWN_ERR_NOT_DEVICE);
		get_and_put(stays, MIB(2));
		ck_assert_int_eq(watched_unmap(stays, MIB(2)), FAKE_SUCCESS);
		ck_assert_uint_eq(fake_open_exports(), 0);
	}
}
END_TEST

/* One half is cached already when the whole is asked for, and the other way round. */
START_TEST(spanning_and_single_regions_live_together)
{
	for (unsigned half = 0; half < 2; half++) {
		map_pair();
		pindown_region *one = must_get(BASE + half * MIB(2), MIB(2));
		pindown_region *both = must_get(BASE, MIB(4));
		pindown_region *again = must_get(BASE + half * MIB(2), 1);
		ck_assert(again == one || again == both);
		pindown_put(again);
		pindown_put(one);
		ck_assert(is_cached(BASE, MIB(4)));
		pindown_put(both);
		ck_assert_int_eq(watched_unmap(BASE + half * MIB(2), MIB(2)), FAKE_SUCCESS);
		ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
		ck_assert(!is_cached(BASE + half * MIB(2), 1));
		ck_assert_int_eq(watched_unmap(BASE + (1 - half) * MIB(2), MIB(2)), FAKE_SUCCESS);
		ck_assert_uint_eq(fake_open_exports(), 0);
	}
}
END_TEST

/* Ranges over different pairs of mappings share a region, which is no missed free. */
START_TEST(overlapping_ranges_come_to_share_a_region)
{
	map_pair();
	watched_alloc(BASE + MIB(4), MIB(2), FAKE_VMM);
	pindown_region *low = must_get(BASE, MIB(4));
	pindown_region *high = must_get(BASE + MIB(2), MIB(4));
	ck_assert_ptr_ne(low, high);
	ck_assert_uint_eq(pindown_region_length(high), MIB(6));
	pindown_put(low);
	for (unsigned round = 0; round < 4; round++) {
		low = must_get(BASE, MIB(4));
		ck_assert_ptr_eq(low, high);
		pindown_put(low);
	}
	pindown_put(high);
	ck_assert_uint_eq(stats().misses, 2);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
	ck_assert_int_eq(watched_unmap(BASE + MIB(2), MIB(2)), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
}
END_TEST

/*
 * Each new mapping in a range has a new buffer id; a second mapping under a spanning region counts,
 * too.
 */
START_TEST(remapping_the_second_half_is_noticed_without_a_guard)
{
	pdn_set_intercepting(false);
	map_pair();
	get_and_put(BASE, MIB(4));
	ck_assert_int_eq(fake_free(BASE + MIB(2)), FAKE_SUCCESS);
	fake_alloc(BASE + MIB(2), MIB(2), FAKE_VMM);
	get_and_put(BASE, MIB(4));
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	expected_missed = stats().missed_invalidations;
}
END_TEST

START_TEST(a_second_half_mapped_again_shows_a_missed_unmap)
{
	map_pair();
	get_and_put(BASE, MIB(4));
	ck_assert_int_eq(fake_free(BASE + MIB(2)), FAKE_SUCCESS);
	watched_alloc(BASE + MIB(2), MIB(2), FAKE_VMM);
	ck_assert(!is_cached(BASE, MIB(4)));
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	expected_missed = 1;
}
END_TEST

/*
 * A thread may ask for a mapping that the driver has already made, a moment before pindown knows
 * that it is one. Another thread that comes in between knows it, and pins the mapping together with
 * its neighbour.
 */
static void get_both(void *arg)
{
	(void)arg;
	get_and_put(BASE, MIB(4));
}

static bool known_a_moment_later(uint64_t base, uint64_t id)
{
	pdn_is_mapped = fake_is_mapped;
	ck_assert(fake_is_mapped(base, id));
	in_other_thread(get_both, NULL);
	return false;
}

START_TEST(a_mapping_not_yet_known_is_no_missed_free)
{
	map_pair();
	pdn_is_mapped = known_a_moment_later;
	pindown_region *region = must_get(BASE + MIB(2), MIB(2));
	ck_assert_ptr_eq(pdn_is_mapped, fake_is_mapped);
	ck_assert_uint_eq(pindown_region_base(region), BASE);
	ck_assert_uint_eq(pindown_region_length(region), MIB(4));
	pindown_put(region);
	ck_assert_uint_eq(stats().pins, 1);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
	ck_assert_uint_eq(stats().distrusted, 0);
}
END_TEST

/* Memory that reaches beyond the spanning region can't be one of its mappings. */
START_TEST(other_memory_in_place_of_the_second_half_shows_a_missed_unmap)
{
	map_pair();
	get_and_put(BASE, MIB(4));
	ck_assert_int_eq(fake_free(BASE + MIB(2)), FAKE_SUCCESS);
	fake_alloc(BASE + MIB(2), MIB(4), FAKE_LINEAR);
	get_and_put(BASE + MIB(2), MIB(4));
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	ck_assert_uint_eq(stats().distrusted, 1);
	expected_missed = 1;
}
END_TEST

START_TEST(a_recheck_looks_at_every_mapping)
{
	map_pair();
	get_and_put(BASE, MIB(4));
	pdn_recheck(NULL);
	ck_assert(is_cached(BASE, MIB(4)));
	ck_assert_int_eq(fake_free(BASE + MIB(2)), FAKE_SUCCESS);
	fake_alloc(BASE + MIB(2), MIB(2), FAKE_VMM);
	pdn_recheck(NULL);
	ck_assert(!is_cached(BASE, MIB(4)));
	expected_missed = 1;
}
END_TEST

/*
 * A thread without a context is told nothing about the extent of the mappings, and each of the
 * questions can fail for another reason: the memory is there all the same.
 */
static void compare_without_a_context(void *unused)
{
	(void)unused;
	fake_no_current_context();
	pdn_recheck(NULL);
}

START_TEST(errors_about_other_things_are_no_miss)
{
	map_pair();
	get_and_put(BASE, MIB(4));
	in_other_thread(compare_without_a_context, NULL);
	for (unsigned nth = 0; nth < 5; nth++) {
		fake_fail(FAKE_QUERY, nth, 2, FAKE_INVALID_CONTEXT);
		pdn_recheck(NULL);
	}
	fake_fail(FAKE_QUERY, 0, 0, 0);
	ck_assert_uint_eq(stats().distrusted, 0);
	ck_assert(is_cached(BASE, MIB(4)));
}
END_TEST

/* Then it is pinned like any other allocation. */
START_TEST(pool_memory_of_an_unknown_piece)
{
	pindown_region *region;

	fake_hides_pieces = true;
	fake_alloc(BASE, MIB(2), FAKE_POOL);
	region = must_get(BASE + KIB(128), 1);
	ck_assert_uint_eq(pindown_region_pin_base(region), BASE);
	ck_assert_uint_eq(pindown_region_pin_length(region), MIB(2));
	pindown_put(region);
}
END_TEST

/* Whatever the record had before, of an attempt that reached further. */
START_TEST(one_allocation_has_no_others)
{
	struct pdn_allocation what;
	int error;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	fake_alloc(BASE + MIB(4), MIB(2), FAKE_VMM);
	for (unsigned i = 0; i < 2; i++) {
		memset(&what, 0x5a, sizeof(what));
		ck_assert_int_eq(pdn_driver_describe(BASE + MIB(4) * i, 1, &what, &error),
				 PINDOWN_OK);
		ck_assert_uint_eq(what.mappings_hash, 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: where regions lie");
	TCase *tc = cache_case(suite, "rounding and neighbours");

	tcase_add_test(tc, pool_memory_of_an_unknown_piece);
	tcase_add_test(tc, errors_about_other_things_are_no_miss);
	tcase_add_test(tc, a_pin_covers_whole_pages);
	tcase_add_test(tc, a_pin_covers_both_ends_of_an_odd_allocation);
	tcase_add_test(tc, neighbours_are_regions_of_their_own);
	tcase_add_test(tc, each_neighbour_comes_and_goes);
	tcase_add_test(tc, a_page_full_of_neighbours);
	tc = cache_case(suite, "addresses used again");
	tcase_add_test(tc, a_reused_address_is_another_region);
	tcase_add_test(tc, new_allocations_overlap_old_ones_in_every_way);
	tcase_add_test(tc, old_and_new_region_of_one_address_are_separate);
	tc = cache_case(suite, "the whole address space");
	tcase_add_test(tc, one_region_holds_a_huge_allocation);
	tcase_add_test(tc, regions_anywhere_in_the_address_space);
	tc = cache_case(suite, "mappings side by side");
	tcase_add_test(tc, one_allocation_has_no_others);
	tcase_add_test(tc, a_range_may_span_adjacent_mappings);
	tcase_add_test(tc, a_range_must_not_run_out_of_its_mappings);
	tcase_add_test(tc, without_hooks_a_reservation_shows_that_memory_is_mapped);
	tcase_add_test(tc, each_part_must_be_known_as_mapped);
	tcase_add_test(tc, unmapping_either_half_ends_the_spanning_region);
	tcase_add_test(tc, spanning_and_single_regions_live_together);
	tcase_add_test(tc, overlapping_ranges_come_to_share_a_region);
	tcase_add_test(tc, remapping_the_second_half_is_noticed_without_a_guard);
	tcase_add_test(tc, a_second_half_mapped_again_shows_a_missed_unmap);
	tcase_add_test(tc, a_mapping_not_yet_known_is_no_missed_free);
	tcase_add_test(tc, other_memory_in_place_of_the_second_half_shows_a_missed_unmap);
	tcase_add_test(tc, a_recheck_looks_at_every_mapping);
	return run_suite(suite);
}
