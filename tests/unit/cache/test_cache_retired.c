/* SPDX-License-Identifier: MIT */
/*
 * Retired addresses, on the simulated driver: the bounds of what is reserved, records that are used
 * again, and threads that end in the middle. What a program sees: tests/verbs/test_verbs_retire.c.
 */
#define _GNU_SOURCE
#include <string.h>

#include "tests/unit/support/retired_test.h"
#include "tests/unit/support/sanitizers.h"

#if UNDER_ASAN
void __asan_handle_no_return(void);
#else
#define __asan_handle_no_return() ((void)0)
#endif

#define MANY 20

static struct retired all[MANY];

static void drop_all(void)
{
	for (unsigned i = 0; i < MANY; i++)
		pindown_detach(all[i].object);
}

/* ---- bounds ---- */

static void retire_many(void)
{
	for (unsigned i = 0; i < MANY; i++)
		all[i] = retire(MIB(4));
}

/* The first ones have gone back to the driver; that is said once, and counted. */
static void last_ones_are_there(unsigned count)
{
	ck_assert_uint_eq(stats().retired, MANY);
	ck_assert_uint_eq(stats().retired_ranges, count);
	ck_assert_uint_eq(stats().retired_bytes, count * MIB(4));
	ck_assert_uint_eq(stats().retired_dropped, MANY - count);
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_GOING), 0);
	for (unsigned i = MANY - count; i < MANY; i++)
		ck_assert(is_reserved(all[i].p, MIB(4)));
	for (unsigned i = 0; i < MANY; i++)
		ck_assert_uint_eq(all[i].registration->ended, 1);
}

START_TEST(the_oldest_range_goes_first)
{
	const char *said;

	pdn_retired_most = 8;
	said = stderr_of(retire_many);
	ck_assert_uint_eq(lines_of(said), 1);
	ck_assert_msg(strstr(said, "(8 ranges, "), "%s", said);
	ck_assert_uint_eq(sim_calls("cuMemAddressFree"), 2 + MANY - 8); /* 2: the probe */
	last_ones_are_there(8);
	drop_all();
}
END_TEST

START_TEST(there_is_a_bound_of_bytes)
{
	const char *said;

	pdn_retired_most_bytes = MIB(20);
	said = stderr_of(retire_many);
	ck_assert_uint_eq(lines_of(said), 1);
	last_ones_are_there(5);
	drop_all();
}
END_TEST

START_TEST(one_that_is_larger_than_the_bound_is_there_alone)
{
	struct retired small, large;

	pdn_retired_most_bytes = MIB(20);
	small = retire(MIB(4));
	large = retire(MIB(64));
	ck_assert_uint_eq(stats().retired_ranges, 1);
	ck_assert_uint_eq(stats().retired_dropped, 1);
	ck_assert(is_reserved(large.p, MIB(64)));
	pindown_detach(small.object);
	pindown_detach(large.object);
}
END_TEST

/* Its number is no range's by then, whoever has its record now. */
START_TEST(one_that_is_dropped_late_touches_no_other)
{
	pdn_retired_most = 2;
	for (unsigned round = 0; round < 3; round++) {
		retire_many();
		for (unsigned i = 0; i < MANY - 2; i++)
			pindown_detach(all[i].object);
		ck_assert_uint_eq(stats().retired_ranges, 2);
		ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_GOING), 0);
		ck_assert(is_reserved(all[MANY - 2].p, MIB(4)));
		ck_assert(is_reserved(all[MANY - 1].p, MIB(4)));
		pindown_detach(all[MANY - 1].object);
		ck_assert_uint_eq(stats().retired_ranges, 1);
		pindown_detach(all[MANY - 2].object);
		ck_assert_uint_eq(stats().retired_ranges, 0);
	}
}
END_TEST

/* A large range makes many others go, and a call of the program's gives back only a few. */
START_TEST(one_that_is_dropped_before_its_range_has_gone)
{
	struct retired large;

	pdn_retired_most_bytes = MANY * MIB(4);
	retire_many();
	large = retire(MANY * MIB(4));
	ck_assert_uint_eq(stats().retired_dropped, MANY);
	ck_assert_uint_gt(pdn_retired_in(PDN_RETIRED_GOING), 4);
	drop_all();
	ck_assert_uint_eq(stats().retired_ranges, 1);
	ck_assert_uint_eq(stats().retired_bytes, MANY * MIB(4));
	for (unsigned i = 0; i < MANY; i++)
		OK(program_free(program_alloc(KIB(4))));
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_GOING), 0);
	for (unsigned i = 0; i < MANY; i++)
		ck_assert(!is_reserved(all[i].p, MIB(4)));
	ck_assert(is_reserved(large.p, MANY * MIB(4)));
	pindown_detach(large.object);
}
END_TEST

/* More than there are records: what finds none is kept. */
START_TEST(where_no_record_is_free_all_is_kept)
{
	enum { RECORDS = (1 << 13) - 1, MORE = 3 };
	static struct retired ones[RECORDS + MORE];

	pdn_retired_most = UINT32_MAX;
	for (unsigned i = 0; i < RECORDS + MORE; i++)
		ones[i] = retire(MIB(2));
	ck_assert_uint_eq(stats().retired_ranges, RECORDS);
	ck_assert_uint_eq(stats().object_kept_regions, MORE);
	ck_assert_uint_eq(stats().unprotected, MORE);
	for (unsigned i = 0; i < RECORDS + MORE; i++)
		pindown_detach(ones[i].object);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	all[0] = retire(MIB(2)); /* gives some back, too late for itself */
	all[1] = retire(MIB(2));
	ck_assert_uint_eq(stats().unprotected, MORE);
	pindown_detach(all[0].object);
	pindown_detach(all[1].object);
}
END_TEST

/* ---- where the driver reserves: last of all in a chunk that it has given up ---- */

static uint64_t reservations(void)
{
	return sim_calls("cuMemAddressReserve");
}

START_TEST(it_is_had_once_the_holes_elsewhere_are_taken)
{
	CUdeviceptr elsewhere, p, neighbour;
	pindown_object *object;
	uint64_t before;

	pindown_detach(retire(MIB(4)).object); /* the driver has been asked whether it reserves */
	elsewhere = program_alloc(MIB(16));
	p = program_alloc(MIB(16));
	neighbour = program_alloc(MIB(16));
	ck_assert_uint_eq(neighbour, p + MIB(16));
	object = hold(p);
	OK(program_free(elsewhere));
	OK(program_free(neighbour));
	before = reservations();
	OK(program_free(p));
	ck_assert_uint_eq(reservations(), before + 2);
	ck_assert(is_reserved(p, MIB(16)));
	ck_assert(!is_reserved(elsewhere, MIB(2)));
	ck_assert_uint_eq(stats().retired_bytes, MIB(16));
	ck_assert_uint_eq(stats().escapes, 0);
	pindown_detach(object);
}
END_TEST

START_TEST(a_hole_that_begins_before_it_is_taken_as_a_whole)
{
	CUdeviceptr rest = program_alloc(MIB(30)); /* of the context's chunk: no hole is left */
	CUdeviceptr before = program_alloc(MIB(4)), p = program_alloc(MIB(8));
	pindown_object *object = hold(p);

	ck_assert_uint_eq(p, before + MIB(4));
	OK(program_free(before));
	OK(program_free(p));
	ck_assert_uint_eq(reservations(), 2 + 2); /* 2: the probe */
	ck_assert(is_reserved(before, MIB(12)));
	ck_assert_uint_eq(stats().retired_bytes, MIB(12));
	ck_assert_uint_eq(stats().escapes, 0);
	pindown_detach(object);
	OK(program_free(rest));
}
END_TEST

/* ---- what happens during a free ---- */

START_TEST(all_is_dropped_while_the_driver_frees)
{
	CUdeviceptr p = program_alloc(MIB(4));
	pindown_object *object = hold(p);
	pdn_guard guard = pdn_end_allocation(p);

	pindown_detach(object);
	OK(cuMemFree_v2(p));
	pdn_ended(guard);
	ck_assert_uint_eq(stats().retired, 1);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	ck_assert(!is_reserved(p, MIB(4)));
}
END_TEST

/* As in a context that a fault has broken. The memory is still there, so nobody has its address. */
START_TEST(the_driver_fails_to_free)
{
	CUdeviceptr p = program_alloc(MIB(4));
	pindown_object *object = hold(p);

	ck_assert_int_eq(sim_fail("cuMemFree_v2:1=CUDA_ERROR_ILLEGAL_ADDRESS"), 0);
	ck_assert_int_eq(program_free(p), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_uint_eq(stats().escapes, 0);
	ck_assert_uint_eq(stats().retired, 0);
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_PENDING), 0);
	pindown_detach(object);
	object = hold(p);
	OK(program_free(p));
	ck_assert_uint_eq(stats().retired_ranges, 1);
	pindown_detach(object);
}
END_TEST

static CUdeviceptr inner;

static void free_inner(const struct registration *unused)
{
	CUdeviceptr p = inner;

	(void)unused;
	inner = 0;
	if (p)
		OK(program_free(p));
}

START_TEST(a_callback_frees_other_memory)
{
	CUdeviceptr p = program_alloc(MIB(4)), q = program_alloc(MIB(8));
	pindown_object *object = hold(p), *other = hold(q);

	inner = q;
	on_end = free_inner;
	OK(program_free(p));
	ck_assert_uint_eq(stats().retired_ranges, 2);
	ck_assert(is_reserved(p, MIB(4)));
	ck_assert(is_reserved(q, MIB(8)));
	pindown_detach(object);
	pindown_detach(other);
}
END_TEST

/* Its hits are checked: nobody knows when such memory ends. */
START_TEST(memory_whose_ends_are_not_seen_is_kept)
{
	CUdeviceptr p = program_alloc(MIB(4));
	pindown_object *object;

	pdn_volatile(p, MIB(4));
	object = hold(p);
	OK(program_free(p));
	ck_assert_uint_eq(stats().retired, 0);
	ck_assert_uint_eq(stats().object_kept_regions, 1);
	pindown_detach(object);
}
END_TEST

/* ---- small allocations ---- */

/* Of each pair in a block, the first one is freed and kept, and then the second one is freed. */
START_TEST(more_blocks_than_are_remembered)
{
	enum { BLOCKS = 70, REMEMBERED = 64 };
	struct retired first[BLOCKS], second[BLOCKS];

	for (unsigned i = 0; i < BLOCKS; i++) {
		first[i].p = program_alloc(MIB(1));
		second[i].p = program_alloc(MIB(1));
		ck_assert_uint_eq(first[i].p / MIB(2), second[i].p / MIB(2));
		first[i].object = hold(first[i].p);
		second[i].object = hold(second[i].p);
	}
	for (unsigned i = 0; i < BLOCKS; i++)
		OK(program_free(first[i].p));
	ck_assert_uint_eq(stats().object_kept_regions, BLOCKS);
	ck_assert_uint_eq(stats().unprotected, BLOCKS);
	for (unsigned i = 0; i < BLOCKS; i++)
		OK(program_free(second[i].p));
	ck_assert_uint_eq(stats().object_kept_regions, BLOCKS - REMEMBERED);
	ck_assert_uint_eq(stats().retired_ranges, BLOCKS);
	for (unsigned i = 0; i < BLOCKS; i++) {
		pindown_detach(first[i].object);
		pindown_detach(second[i].object);
	}
}
END_TEST

/* The region's record is another one's by then, which is kept, too, but for another block. */
START_TEST(a_kept_one_that_was_dropped_is_not_taken_for_another)
{
	CUdeviceptr p = program_alloc(MIB(1)), q = program_alloc(MIB(1));
	CUdeviceptr r = program_alloc(MIB(1)), s = program_alloc(MIB(1));
	pindown_object *object = hold(p), *second = hold(q), *other;
	const pindown_region *region = pindown_object_region(object);
	struct registration *others;

	OK(program_free(p));
	pindown_detach(object);
	other = hold(r);
	ck_assert_ptr_eq(pindown_object_region(other), region);
	others = registration_of(other);
	OK(program_free(r));
	OK(program_free(q)); /* the last one in the first block */
	ck_assert_uint_eq(stats().retired_ranges, 1);
	ck_assert_uint_eq(others->ended, 0);
	pindown_detach(second);
	pindown_detach(other);
	ck_assert_uint_eq(others->ended, 1);
	OK(program_free(s));
}
END_TEST

/* ---- threads that end ---- */

static CUdeviceptr victim;
static CUcontext current;

static void quit(const struct registration *unused)
{
	(void)unused;
	on_end = NULL;
	__asan_handle_no_return();
	pthread_exit(NULL);
}

static void quit_when_told(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	__asan_handle_no_return();
	pthread_exit(NULL);
}

static void *free_victim(void *arg)
{
	OK(cuCtxSetCurrent(current));
	program_free(victim);
	pthread_testcancel();
	return arg;
}

static void *let_a_thread_free(void)
{
	pthread_t thread;
	void *result;

	OK(cuCtxGetCurrent(&current));
	ck_assert_int_eq(pthread_create(&thread, NULL, free_victim, &victim), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	return result;
}

/* The thread never frees the memory: then nothing is to be reserved. */
static void the_thread_is_gone(pindown_object *object)
{
	struct retired other;

	ck_assert_ptr_null(let_a_thread_free());
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_PENDING), 0);
	ck_assert_uint_eq(stats().retired, 0);
	pindown_detach(object);
	OK(program_free(victim));
	other = retire(MIB(4));
	ck_assert_uint_eq(stats().retired_ranges, 1);
	pindown_detach(other.object);
}

START_TEST(a_destroy_callback_ends_its_thread)
{
	pindown_object *object;

	victim = program_alloc(MIB(4));
	object = hold(victim);
	on_end = quit;
	the_thread_is_gone(object);
}
END_TEST

/* Behind the driver's free, when the block is reserved. Others do not wait for the thread. */
START_TEST(a_destroy_callback_of_a_small_one_ends_its_thread)
{
	pindown_object *object;

	pindown_detach(retire(MIB(4)).object);
	victim = program_alloc(KIB(64));
	object = hold(victim);
	on_end = quit;
	ck_assert_ptr_null(let_a_thread_free());
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_PENDING), 0);
	pindown_detach(object);
	pindown_detach(retire(MIB(4)).object);
	OK(program_free(program_alloc(MIB(4))));
}
END_TEST

/* The region that it was told of stays pinned, and so does its memory. */
START_TEST(a_subscriber_ends_its_thread)
{
	victim = program_alloc(MIB(4));
	hold(victim);
	ck_assert_int_gt(pindown_subscribe(quit_when_told, NULL), 0);
	ck_assert_ptr_null(let_a_thread_free());
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_PENDING), 0);
	ck_assert_uint_eq(stats().retired, 0);
}
END_TEST

static void cancel_this(const struct registration *unused)
{
	(void)unused;
	pthread_cancel(pthread_self());
	pthread_testcancel();
}

START_TEST(a_thread_is_cancelled_in_a_destroy_callback)
{
	pindown_object *object;

	victim = program_alloc(MIB(4));
	object = hold(victim);
	on_end = cancel_this;
	ck_assert_ptr_eq(let_a_thread_free(), PTHREAD_CANCELED);
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_PENDING), 0);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	ck_assert(is_reserved(victim, MIB(4)));
	pindown_detach(object);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: retired addresses");
	TCase *tc = retired_case(suite, "bounds");

	tcase_add_test(tc, the_oldest_range_goes_first);
	tcase_add_test(tc, there_is_a_bound_of_bytes);
	tcase_add_test(tc, one_that_is_larger_than_the_bound_is_there_alone);
	tcase_add_test(tc, one_that_is_dropped_late_touches_no_other);
	tcase_add_test(tc, one_that_is_dropped_before_its_range_has_gone);
	tcase_add_test(tc, where_no_record_is_free_all_is_kept);
	tc = retired_case(suite, "where the driver reserves");
	tcase_add_test(tc, it_is_had_once_the_holes_elsewhere_are_taken);
	tcase_add_test(tc, a_hole_that_begins_before_it_is_taken_as_a_whole);
	tc = retired_case(suite, "during a free");
	tcase_add_test(tc, all_is_dropped_while_the_driver_frees);
	tcase_add_test(tc, the_driver_fails_to_free);
	tcase_add_test(tc, a_callback_frees_other_memory);
	tcase_add_test(tc, memory_whose_ends_are_not_seen_is_kept);
	tc = retired_case(suite, "small");
	tcase_add_test(tc, more_blocks_than_are_remembered);
	tcase_add_test(tc, a_kept_one_that_was_dropped_is_not_taken_for_another);
	tc = retired_case(suite, "threads that are cancelled");
	tcase_add_test(tc, a_thread_is_cancelled_in_a_destroy_callback);
	tc = suite_case(suite, "threads that end", retired_begin, NULL);
	tcase_add_test(tc, a_destroy_callback_ends_its_thread);
	tcase_add_test(tc, a_destroy_callback_of_a_small_one_ends_its_thread);
	tcase_add_test(tc, a_subscriber_ends_its_thread);
	return run_suite(suite);
}
