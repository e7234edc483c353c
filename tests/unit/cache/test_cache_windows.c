/* SPDX-License-Identifier: MIT */
/*
 * Allocations that can't be pinned as a whole, on the simulated driver with 256 MiB of pin space:
 * they are pinned by windows, parts of the allocation that come and go as regions do.
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "tests/unit/support/sim_test.h"

#define BAR	MIB(256) /* main() */
#define LARGE	GIB(1)
#define STEP	MIB(1)
#define GRANULE (BAR / 8)
#define ROOM	MIB(2) /* at the end of a reservation: then it can be told from its mapping */

static void use(CUdeviceptr begin, uint64_t size, uint64_t step)
{
	for (uint64_t at = 0; at < size; at += step) {
		get_and_put(begin + at, STEP);
		ck_assert_uint_le(stats().bytes, BAR);
	}
}

/* Memory of one mapping, as an allocator makes it that maps its arena at once. */
static CUdeviceptr map(uint64_t size)
{
	CUdeviceptr p;

	OK(cuMemAddressReserve(&p, size + ROOM, 0, 0, 0));
	sim_map_new(p, size);
	return p;
}

static void unmap(CUdeviceptr p, uint64_t size)
{
	sim_unmap(p, size);
	OK(cuMemAddressFree(p, size + ROOM));
}

/* Both kinds of memory, by the number of a loop test. */
static CUdeviceptr make(int kind, uint64_t size)
{
	return kind ? map(size) : alloc(size);
}

static void end(int kind, CUdeviceptr p, uint64_t size)
{
	if (kind)
		unmap(p, size);
	else
		OK(sim_free(p));
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	ck_assert_uint_eq(sim_used_bytes(0), 0);
	ck_assert_uint_eq(stats().bytes, 0);
}

/* ---- window by window ---- */

START_TEST(all_of_a_large_allocation_can_be_used)
{
	start_cuda();
	CUdeviceptr p = make(_i, LARGE);

	use(p, LARGE, STEP);
	ck_assert_uint_le(stats().misses, 2 * 8 * LARGE / BAR);
	ck_assert_uint_eq(stats().pin_failures, 0);
	ck_assert_uint_eq(stats().lost_races, 0);
	ck_assert_uint_gt(stats().evictions, 0);
	end(_i, p, LARGE);
}
END_TEST

/* Ranges that fit together stay pinned: from the second time on all gets hit, in any order. */
START_TEST(ranges_that_fit_together_stay)
{
	start_cuda();
	CUdeviceptr p = make(_i, LARGE);

	for (unsigned n = 0; n < 10; n++)
		for (uint64_t at = 0; at < MIB(128); at += STEP)
			get_and_put(p + MIB(700) + at * 37 % MIB(128), STEP);
	ck_assert_uint_le(stats().misses, 8);
	ck_assert_uint_eq(stats().evictions, 0);
	end(_i, p, LARGE);
}
END_TEST

/* Ranges far from each other, each across a boundary of 32 MiB, and many more than fit at once. */
START_TEST(ranges_across_any_boundary_are_had)
{
	start_cuda();
	CUdeviceptr p = make(_i, LARGE);

	for (unsigned n = 0; n < 3; n++)
		for (uint64_t at = MIB(32); at < LARGE; at += MIB(32)) {
			pindown_region *region = must_get(p + at - MIB(2), MIB(4));

			ck_assert_uint_le(pindown_region_base(region), p + at - MIB(2));
			ck_assert_uint_ge(end_of(region), p + at + MIB(2));
			ck_assert_uint_ge(pindown_region_base(region), p);
			ck_assert_uint_le(end_of(region), p + LARGE);
			pindown_put(region);
			ck_assert_uint_le(stats().bytes, BAR);
		}
	ck_assert_uint_eq(stats().pin_failures, 0);
	end(_i, p, LARGE);
}
END_TEST

/* A few ranges that cross boundaries: they come to share regions, as those of a segment do. */
START_TEST(ranges_across_boundaries_converge)
{
	start_cuda();
	CUdeviceptr p = make(_i, LARGE);

	for (unsigned n = 0; n < 10; n++)
		for (uint64_t at = 0; at + MIB(3) <= MIB(120); at += MIB(3))
			get_and_put(p + MIB(500) + at, MIB(3));
	ck_assert_uint_le(stats().misses, 40);
	ck_assert_uint_le(stats().bytes, BAR);
	end(_i, p, LARGE);
}
END_TEST

/* Two ranges have the granule between them in common, and neither evicts the other. */
START_TEST(ranges_at_both_ends_of_a_granule_converge)
{
	start_cuda();
	CUdeviceptr p = make(_i, LARGE);
	CUdeviceptr boundary = (p + 2 * GRANULE) & -GRANULE;

	for (unsigned n = 0; n < 10; n++) {
		get_and_put(boundary - STEP, 2 * STEP);
		get_and_put(boundary + GRANULE - STEP, 2 * STEP);
	}
	ck_assert_uint_eq(stats().misses, 2);
	ck_assert_uint_eq(stats().regions, 1);
	ck_assert_uint_eq(stats().bytes, 3 * GRANULE);
	end(_i, p, LARGE);
}
END_TEST

START_TEST(a_window_is_the_memory)
{
	start_cuda();
	CUdeviceptr p = make(_i, LARGE);
	uint64_t word;

	for (uint64_t at = MIB(5); at < LARGE; at += MIB(99)) {
		pindown_region *region = must_get(p + at, STEP);

		word = at;
		OK(cuMemcpyHtoD_v2(p + at, &word, sizeof(word)));
		ck_assert_uint_eq(word_at(region, p + at), at);
		ck_assert_uint_ge(pindown_region_pin_base(region), p);
		ck_assert_uint_eq(pindown_region_base(region) % PAGE, 0);
		pindown_put(region);
	}
	end(_i, p, LARGE);
}
END_TEST

/* ---- the end ---- */

/* None is at the beginning of the allocation, which is all that the free names. */
START_TEST(a_free_ends_all_windows)
{
	start_cuda();
	CUdeviceptr other = alloc(MIB(2)), p = make(_i, LARGE), behind = alloc(MIB(2));

	get_and_put(other, 1);
	get_and_put(behind, 1);
	get_and_put(p + MIB(300), STEP);
	get_and_put(p + MIB(800), STEP);
	pindown_region *held = must_get(p + LARGE - STEP, STEP);
	ck_assert_uint_eq(stats().regions, 5);
	OK(sim_free(other));
	ck_assert_uint_eq(stats().regions, 4);
	if (_i)
		unmap(p, LARGE);
	else
		OK(sim_free(p));
	ck_assert(!pindown_region_is_live(held));
	ck_assert(!is_cached(p + MIB(300), 1));
	ck_assert(!is_cached(p + MIB(800), 1));
	ck_assert(is_cached(behind, 1));
	ck_assert_uint_eq(stats().kept_regions, 1);
	ck_assert_uint_eq(stats().regions, 2);
	pindown_put(held);
	ck_assert_uint_eq(stats().regions, 1);
	ck_assert_uint_eq(sim_used_bytes(0), MIB(2));
	OK(sim_free(behind));
	ck_assert_uint_eq(stats().missed_invalidations, 0);
}
END_TEST

START_TEST(a_context_ends_all_windows)
{
	start_cuda();
	CUdeviceptr p = alloc(LARGE);

	use(p, LARGE, MIB(64));
	pdn_guard guard = pdn_end_context(context);

	OK(cuCtxDestroy_v2(context));
	pdn_ended(guard);
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/* It begins behind the address that is freed. */
START_TEST(a_window_of_what_a_stream_frees_later)
{
	start_cuda();
	CUdeviceptr p = alloc(LARGE);
	pindown_region *held;

	get_and_put(p + MIB(300), STEP);
	free_later(p, LARGE);
	held = must_get(p + MIB(800), STEP);
	ck_assert_uint_gt(pindown_region_base(held), p);
	ck_assert(!pindown_region_is_live(held));
	get_and_put(p + MIB(300), STEP);
	ck_assert_uint_eq(stats().regions, 1);
	pindown_put(held);
	ck_assert_uint_eq(stats().bytes, 0);
	take_turn();
	must_refuse(p + MIB(800), STEP, PINDOWN_ERR_NOT_DEVICE);
	ck_assert_uint_eq(sim_used_bytes(0), 0);
}
END_TEST

/* A window of memory that was freed unseen is found at its next check, as any region. */
START_TEST(an_unseen_free_is_noticed)
{
	start_cuda();
	CUdeviceptr p = alloc(LARGE);

	get_and_put(p + MIB(100), STEP);
	get_and_put(p + MIB(400), STEP);
	ck_assert_int_eq(sim_free_unseen(p), CUDA_SUCCESS);
	CUdeviceptr again = alloc(LARGE);

	ck_assert_uint_eq(stats().regions, 0);
	expected_missed = 2;
	OK(sim_free(again));
}
END_TEST

/* ---- room ---- */

/* Idle regions make room, held ones stay; and then the whole of a smaller one can be pinned. */
START_TEST(windows_and_other_regions_share_the_room)
{
	start_cuda();
	CUdeviceptr p = alloc(LARGE), q = alloc(MIB(128)), r = alloc(MIB(64));

	pindown_region *held = must_get(q, 1);
	get_and_put(r, 1);
	use(p, LARGE, STEP);
	ck_assert(pindown_region_is_live(held));
	ck_assert(!is_cached(r, 1));
	get_and_put(r, 1);
	ck_assert(is_cached(r, MIB(64)));
	pindown_put(held);
	get_and_put(q, 1);
	OK(sim_free(q));
	OK(sim_free(r));
	end(0, p, LARGE);
}
END_TEST

/* All of the space but 8 MiB is held: windows of what is left, for memory that is smaller. */
START_TEST(windows_take_what_others_leave)
{
	start_cuda();
	CUdeviceptr q = alloc(BAR - MIB(8)), p = alloc(MIB(64));
	pindown_region *held = must_get(q, 1);

	for (uint64_t at = 0; at < MIB(64); at += STEP)
		get_and_put(p + at, STEP);
	ck_assert_uint_eq(stats().pin_failures, 0);
	must_refuse(p + 1, MIB(9), PINDOWN_ERR_NO_SPACE);
	ck_assert_int_eq(pindown_driver_error(), CUDA_ERROR_OUT_OF_MEMORY);
	pindown_put(held);
	OK(sim_free(q));
	end(0, p, MIB(64));
}
END_TEST

START_TEST(more_than_there_is_can_not_be_had)
{
	start_cuda();
	CUdeviceptr p = make(_i, LARGE);

	use(p, MIB(128), STEP);
	must_refuse(p + MIB(1), BAR + MIB(1), PINDOWN_ERR_NO_SPACE);
	must_refuse(p, LARGE, PINDOWN_ERR_NO_SPACE);
	ck_assert_uint_eq(stats().evictions, 0);
	ck_assert(is_cached(p, STEP));
	end(_i, p, LARGE);
}
END_TEST

START_TEST(the_budget_counts_windows)
{
	setenv("PINDOWN_MAX_BYTES", "32M", 1);
	start_cuda();
	CUdeviceptr p = make(_i, MIB(200));

	for (unsigned n = 0; n < 2; n++)
		for (uint64_t at = 0; at < MIB(200); at += STEP) {
			get_and_put(p + at, STEP);
			ck_assert_uint_le(stats().bytes, MIB(32));
		}
	ck_assert_uint_le(stats().misses, 2 * 2 * 50);
	ck_assert_uint_eq(stats().pin_failures, 0);
	must_refuse(p, MIB(33), PINDOWN_ERR_NO_SPACE);
	get_and_put(p + MIB(1), MIB(30));
	end(_i, p, MIB(200));
}
END_TEST

/* The neighbour in the first page begins where a page does not; each ends by itself. */
START_TEST(windows_end_where_the_allocation_does)
{
	setenv("PINDOWN_MAX_BYTES", "256K", 1);
	start_cuda();
	CUdeviceptr before = alloc(KIB(20)), p = alloc(MIB(1)), behind = alloc(KIB(20));

	get_and_put(before, 1);
	pindown_region *first = must_get(p, 1);
	ck_assert_uint_eq(pindown_region_base(first), p);
	pindown_put(first);
	pindown_region *last = must_get(p + MIB(1) - 1, 1);
	ck_assert_uint_eq(end_of(last), p + MIB(1));
	pindown_put(last);
	get_and_put(behind, 1);
	OK(sim_free(before));
	OK(sim_free(behind));
	ck_assert_uint_eq(stats().regions, 2);
	OK(sim_free(p));
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

/* Forty tensors in a segment of small mappings that is larger than the pin space. */
START_TEST(tensors_in_a_segment_larger_than_the_bar)
{
	start_cuda();
	CUdeviceptr base;
	const uint64_t size = MIB(480), piece = MIB(2);

	OK(cuMemAddressReserve(&base, size + ROOM, 0, 0, 0));
	for (uint64_t at = 0; at < size; at += piece)
		sim_map_new(base + at, piece);
	for (unsigned step = 0; step < 10; step++)
		for (uint64_t n = 0; n < 40; n++)
			get_and_put(base + n * (_i ? MIB(3) : MIB(12)), MIB(3));
	ck_assert_uint_le(stats().misses, 40);
	ck_assert_uint_le(stats().bytes, BAR);
	unmap(base, size);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("cache: allocations that are pinned by windows");
	TCase *tc = sim_case(suite, "window by window");

	(void)argc;
	if (!getenv("SIM_PIN_BYTES")) { /* it is read when the driver is loaded */
		setenv("SIM_PIN_BYTES", "256M", 1);
		execv("/proc/self/exe", argv);
		return 1;
	}
	tcase_add_loop_test(tc, all_of_a_large_allocation_can_be_used, 0, 2);
	tcase_add_loop_test(tc, ranges_that_fit_together_stay, 0, 2);
	tcase_add_loop_test(tc, ranges_across_any_boundary_are_had, 0, 2);
	tcase_add_loop_test(tc, ranges_across_boundaries_converge, 0, 2);
	tcase_add_loop_test(tc, ranges_at_both_ends_of_a_granule_converge, 0, 2);
	tcase_add_loop_test(tc, a_window_is_the_memory, 0, 2);
	tc = sim_case(suite, "the end");
	tcase_add_loop_test(tc, a_free_ends_all_windows, 0, 2);
	tcase_add_test(tc, a_context_ends_all_windows);
	tcase_add_test(tc, an_unseen_free_is_noticed);
	tcase_add_test(tc, a_window_of_what_a_stream_frees_later);
	tc = sim_case(suite, "room");
	tcase_add_test(tc, windows_and_other_regions_share_the_room);
	tcase_add_test(tc, windows_take_what_others_leave);
	tcase_add_loop_test(tc, more_than_there_is_can_not_be_had, 0, 2);
	tcase_add_loop_test(tc, the_budget_counts_windows, 0, 2);
	tcase_add_test(tc, windows_end_where_the_allocation_does);
	tcase_add_loop_test(tc, tensors_in_a_segment_larger_than_the_bar, 0, 2);
	return run_suite(suite);
}
