/* SPDX-License-Identifier: MIT */
/*
 * Segments that are mapped piece by piece, as PyTorch's expandable segments are, on the simulated
 * driver: windows over adjacent mappings come to share few regions, whose bytes are those of the
 * memory.
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "tests/unit/support/sim_test.h"

/* ---- a segment ---- */

#define PIECE MIB(2)
#define ROOM  MIB(256) /* the reservation */

struct segment {
	CUdeviceptr base;
	size_t size; /* mapped, from the base on */
};

/* hook/'s part: the mapping is there, and then pindown is notified. */
static void extend(struct segment *segment, size_t size)
{
	for (size_t end = segment->size + size; segment->size < end; segment->size += PIECE)
		sim_map_new(segment->base + segment->size, PIECE);
}

static struct segment segment_of(size_t size)
{
	struct segment segment = {0};

	OK(cuMemAddressReserve(&segment.base, ROOM, 0, 0, 0));
	extend(&segment, size);
	return segment;
}

static void end_segment(const struct segment *segment)
{
	for (size_t at = 0; at < segment->size; at += PIECE)
		sim_unmap(segment->base + at, PIECE); /* succeeds where there is a hole, too */
	OK(cuMemAddressFree(segment->base, ROOM));
}

static void write_word(CUdeviceptr addr, uint64_t word)
{
	OK(cuMemcpyHtoD_v2(addr, &word, sizeof(word)));
}

/* ---- windows ---- */

#define TENSORS 40
#define STEPS	10
#define TENSOR	MIB(3)

START_TEST(forty_tensors_miss_forty_times_at_most)
{
	start_cuda();
	struct segment segment = segment_of(TENSORS * TENSOR);

	for (unsigned step = 0; step < STEPS; step++)
		for (unsigned i = 0; i < TENSORS; i++)
			get_and_put(segment.base + i * TENSOR, TENSOR);
	ck_assert_uint_le(stats().misses, TENSORS);
	ck_assert_uint_ge(stats().hits, (STEPS - 1) * TENSORS);
	ck_assert_uint_eq(stats().bytes, segment.size);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
	end_segment(&segment);
	ck_assert_uint_eq(stats().bytes, 0);
}
END_TEST

/* Backwards and in a random order, too. */
START_TEST(the_order_of_the_tensors_does_not_matter)
{
	start_cuda();
	struct segment segment = segment_of(TENSORS * TENSOR);

	for (unsigned step = 0; step < STEPS; step++)
		for (unsigned i = 0; i < TENSORS; i++) {
			unsigned n = _i ? i * 17 % TENSORS : TENSORS - 1 - i;

			get_and_put(segment.base + n * TENSOR, TENSOR);
		}
	ck_assert_uint_le(stats().misses, TENSORS);
	ck_assert_uint_eq(stats().bytes, segment.size);
	end_segment(&segment);
}
END_TEST

/* Each get is held to the end: replaced regions are kept, and together are no larger than these. */
START_TEST(held_windows_do_not_pile_up)
{
	pindown_region *held[64];
	unsigned n;

	start_cuda();
	struct segment segment = segment_of(MIB(8));

	for (n = 0; n < 64; n++)
		held[n] = must_get(segment.base + n % 6 * MIB(1), TENSOR);
	ck_assert_uint_le(stats().bytes, 2 * segment.size);
	ck_assert_uint_eq(stats().bytes - stats().kept_bytes, segment.size);
	while (n)
		pindown_put(held[--n]);
	ck_assert_uint_eq(stats().bytes, segment.size);
	ck_assert_uint_eq(stats().kept_bytes, 0);
	end_segment(&segment);
}
END_TEST

/*
 * The same over many mappings, with windows that each cross one boundary: each region is twice as
 * large as those that it replaces, or is the segment.
 */
START_TEST(regions_that_are_replaced_grow_twofold)
{
	pindown_region *held[100];
	unsigned windows = 0;

	start_cuda();
	struct segment segment = segment_of(MIB(200));

	for (uint64_t at = MIB(1); at + PIECE <= segment.size; at += PIECE)
		held[windows++] = must_get(segment.base + at, PIECE);
	ck_assert_uint_le(stats().bytes, 3 * segment.size);
	ck_assert_uint_le(stats().misses, 9);
	while (windows)
		pindown_put(held[--windows]);
	ck_assert_uint_eq(stats().bytes, segment.size);
	end_segment(&segment);
}
END_TEST

/* ---- a segment that grows, shrinks, and is held ---- */

START_TEST(a_region_follows_the_segment)
{
	start_cuda();
	struct segment segment = segment_of(MIB(4));

	get_and_put(segment.base, MIB(4));
	for (unsigned n = 0; n < 10; n++) {
		extend(&segment, PIECE);
		/* The new mapping alone touches no region; a window across the boundary does. */
		get_and_put(segment.base + segment.size - 1, 1);
		ck_assert(is_cached(segment.base, segment.size - PIECE));
		pindown_region *all = must_get(segment.base + segment.size - MIB(3), MIB(3));
		ck_assert_uint_eq(pindown_region_base(all), segment.base);
		ck_assert_uint_eq(end_of(all), segment.base + segment.size);
		pindown_put(all);
		ck_assert_uint_eq(stats().regions, 1);
		ck_assert_uint_eq(stats().bytes, segment.size);
	}
	end_segment(&segment);
}
END_TEST

/* What was held before the region grew shows the memory, to the last put. */
START_TEST(held_regions_stay_right_while_the_segment_grows)
{
	start_cuda();
	struct segment segment = segment_of(MIB(4));

	pindown_region *before = must_get(segment.base, MIB(4));
	write_word(segment.base + MIB(3), 11);
	extend(&segment, MIB(4));
	write_word(segment.base + MIB(5), 22);
	pindown_region *after = must_get(segment.base + MIB(3), MIB(3));
	ck_assert_ptr_ne(before, after);
	ck_assert_uint_eq(pindown_region_base(after), segment.base);
	ck_assert_uint_eq(pindown_region_base(before), segment.base);
	ck_assert_uint_eq(pindown_region_length(before), MIB(4));
	ck_assert_uint_eq(word_at(before, segment.base + MIB(3)), 11);
	ck_assert_uint_eq(word_at(after, segment.base + MIB(3)), 11);
	ck_assert_uint_eq(word_at(after, segment.base + MIB(5)), 22);
	write_word(segment.base + MIB(3), 33);
	ck_assert_uint_eq(word_at(before, segment.base + MIB(3)), 33);
	ck_assert_uint_eq(word_at(after, segment.base + MIB(3)), 33);
	ck_assert(!pindown_region_is_live(before));
	ck_assert(pindown_region_is_live(after));
	pindown_put(before);
	ck_assert_uint_eq(stats().bytes, pindown_region_length(after));
	pindown_put(after);
	end_segment(&segment);
}
END_TEST

/* Regions beside the unmapped range stay, to the byte; the one that it touches ends. */
START_TEST(a_partial_unmap_ends_exactly_what_it_touches)
{
	start_cuda();
	struct segment segment = segment_of(MIB(12));
	uint64_t before = sim_used_bytes(0);

	get_and_put(segment.base, MIB(4));
	get_and_put(segment.base + MIB(4), MIB(4));
	get_and_put(segment.base + MIB(8), MIB(4));
	ck_assert_uint_eq(stats().regions, 3);
	sim_unmap(segment.base + MIB(4), PIECE);
	ck_assert_uint_eq(sim_used_bytes(0), before - PIECE);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	ck_assert(is_cached(segment.base, MIB(4)));
	ck_assert(is_cached(segment.base + MIB(8), MIB(4)));
	ck_assert(!is_cached(segment.base + MIB(6), 1));
	ck_assert_uint_eq(stats().bytes, MIB(8));

	/* Its other mapping is pinned again with its neighbours, up to the hole. */
	pindown_region *rest = must_get(segment.base + MIB(7), MIB(2));
	ck_assert_uint_eq(pindown_region_base(rest), segment.base + MIB(6));
	ck_assert_uint_eq(end_of(rest), segment.base + MIB(12));
	pindown_put(rest);
	must_refuse(segment.base + MIB(3), MIB(2), PINDOWN_ERR_RANGE);
	ck_assert(is_cached(segment.base, MIB(4)));
	end_segment(&segment);
}
END_TEST

/*
 * The hole is filled again: the region of the freed memory is not found, and the next one spans.
 * (The simulated driver can't bring memory together that is exported at two places, so nothing is
 * held meanwhile.)
 */
START_TEST(a_hole_that_is_mapped_again_is_other_memory)
{
	start_cuda();
	struct segment segment = segment_of(MIB(8));

	get_and_put(segment.base, MIB(8));
	for (unsigned n = 1; n < 20; n++) {
		sim_unmap(segment.base + MIB(4), PIECE);
		ck_assert(!is_cached(segment.base, 1));
		sim_map_new(segment.base + MIB(4), PIECE);
		write_word(segment.base + MIB(5), n);
		pindown_region *region = must_get(segment.base + MIB(3), MIB(4));
		ck_assert_uint_eq(word_at(region, segment.base + MIB(5)), n);
		pindown_put(region);
		get_and_put(segment.base + MIB(1), MIB(3));
		ck_assert_uint_eq(stats().regions, 1);
		ck_assert_uint_eq(stats().bytes, MIB(8));
	}
	ck_assert_uint_eq(stats().missed_invalidations, 0);
	end_segment(&segment);
}
END_TEST

/* ---- limits ---- */

/* A region never reaches beyond its reservation by itself. */
START_TEST(growth_stays_in_its_reservation)
{
	start_cuda();
	CUdeviceptr both;

	OK(cuMemAddressReserve(&both, 2 * MIB(8), 0, 0, 0));
	OK(cuMemAddressFree(both, 2 * MIB(8)));
	CUdeviceptr low, high;

	OK(cuMemAddressReserve(&low, MIB(8), 0, both, 0));
	OK(cuMemAddressReserve(&high, MIB(8), 0, both + MIB(8), 0));
	ck_assert_uint_eq(high, low + MIB(8));
	for (uint64_t at = 0; at < MIB(16); at += PIECE)
		sim_map_new(low + at, PIECE);
	for (uint64_t at = MIB(1); at + PIECE <= MIB(8); at += PIECE)
		get_and_put(low + at, PIECE);
	ck_assert_uint_eq(stats().bytes, MIB(8));
	ck_assert(!is_cached(high, 1));
	sim_unmap(low, MIB(8));
	sim_unmap(high, MIB(8));
	OK(cuMemAddressFree(low, MIB(8)));
	OK(cuMemAddressFree(high, MIB(8)));
}
END_TEST

/* Pin space for a part of the segment only: every get works, as it would in a smaller segment. */
START_TEST(growth_yields_to_pin_space)
{
	setenv("PINDOWN_MAX_BYTES", "8M", 1);
	start_cuda();
	struct segment segment = segment_of(MIB(32));

	for (unsigned step = 0; step < 3; step++)
		for (uint64_t at = 0; at + TENSOR <= segment.size; at += TENSOR) {
			get_and_put(segment.base + at, TENSOR);
			ck_assert_uint_le(stats().bytes, MIB(8));
		}
	ck_assert_uint_eq(stats().pin_failures, 0);
	end_segment(&segment);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: segments mapped piece by piece");
	TCase *tc = sim_case(suite, "windows");

	tcase_add_test(tc, forty_tensors_miss_forty_times_at_most);
	tcase_add_loop_test(tc, the_order_of_the_tensors_does_not_matter, 0, 2);
	tcase_add_test(tc, held_windows_do_not_pile_up);
	tcase_add_test(tc, regions_that_are_replaced_grow_twofold);
	tc = sim_case(suite, "growing and shrinking");
	tcase_add_test(tc, a_region_follows_the_segment);
	tcase_add_test(tc, held_regions_stay_right_while_the_segment_grows);
	tcase_add_test(tc, a_partial_unmap_ends_exactly_what_it_touches);
	tcase_add_test(tc, a_hole_that_is_mapped_again_is_other_memory);
	tc = sim_case(suite, "limits");
	tcase_add_test(tc, growth_stays_in_its_reservation);
	tcase_add_test(tc, growth_yields_to_pin_space);
	return run_suite(suite);
}
