/* SPDX-License-Identifier: MIT */
/*
 * Retired addresses that the driver does not reserve, on the simulated driver: nobody gets them
 * while the program holds their registrations. See cache/retire/handed_out.h.
 */
#define _GNU_SOURCE
#include <string.h>

#include "tests/unit/support/retired_test.h"

#define EVER 1000000 /* hints that are lost: all of a test's */

static CUdeviceptr p;
static pindown_object *object;

/* Of this size at p, held; it was freed, and the driver did not reserve it. */
static void watched(uint64_t size)
{
	struct retired retired;

	pindown_detach(retire(MIB(4)).object); /* the driver has been asked whether it reserves */
	OK(program_free(program_alloc(MIB(4))));
	sim_lose_hints(EVER);
	retired = retire(size);
	sim_lose_hints(0);
	p = retired.p;
	object = retired.object;
	ck_assert_uint_eq(retired.registration->ended, 1);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_WATCHED), 1);
	ck_assert(!is_reserved(p, size));
}

static CUdeviceptr driver_alloc(uint64_t size)
{
	CUdeviceptr got;

	OK(cuMemAlloc_v2(&got, size));
	return got;
}

/* Anybody may have it now. */
static void is_free_again(uint64_t size)
{
	CUdeviceptr got;

	ck_assert_uint_eq(stats().retired_ranges, 0);
	OK(program_free(program_alloc(KIB(4)))); /* gives back what is going */
	OK(cuMemAddressReserve(&got, size, 0, p, 0));
	ck_assert_uint_eq(got, p);
	OK(cuMemAddressFree(got, size));
}

START_TEST(an_allocation_gets_another_one)
{
	CUdeviceptr q[3];
	uint64_t live;

	watched(MIB(4));
	live = sim_live_allocations();
	for (int i = 0; i < 3; i++) {
		q[i] = program_alloc(MIB(4));
		ck_assert_uint_ne(q[i], p);
	}
	ck_assert_uint_eq(sim_live_allocations(), live + 3);
	for (int i = 0; i < 3; i++)
		OK(program_free(q[i]));
	ck_assert_uint_eq(stats().escapes, 0);
	pindown_detach(object);
	is_free_again(MIB(4));
}
END_TEST

START_TEST(small_ones_get_another_block)
{
	CUdeviceptr q;

	watched(MIB(2));
	for (int i = 0; i < 3; i++) {
		q = program_alloc(KIB(256));
		ck_assert_uint_ne(q / MIB(2), p / MIB(2));
	}
	ck_assert_uint_eq(stats().escapes, 0);
	pindown_detach(object);
	OK(program_free(program_alloc(KIB(4))));
	ck_assert_uint_eq(stats().retired_ranges, 0);
}
END_TEST

/* There would be room for 32 768 of the smallest. */
START_TEST(small_ones_are_not_cut_from_a_large_one)
{
	static const uint64_t sizes[] = {512, KIB(64), MIB(2)};
	CUdeviceptr q[3];
	uint64_t live;

	watched(MIB(16));
	live = sim_live_allocations();
	for (int i = 0; i < 3; i++) {
		q[i] = program_alloc(sizes[i]);
		ck_assert(q[i] + sizes[i] <= p || q[i] >= p + MIB(16));
	}
	ck_assert_uint_eq(stats().escapes, 0);
	ck_assert_uint_eq(sim_live_allocations(), live + 3);
	for (int i = 0; i < 3; i++)
		OK(program_free(q[i]));
	pindown_detach(object);
	is_free_again(MIB(16));
}
END_TEST

START_TEST(the_next_such_free_reserves_it)
{
	struct retired other;

	watched(MIB(4));
	other = retire(MIB(8));
	ck_assert(is_reserved(p, MIB(4)));
	ck_assert(is_reserved(other.p, MIB(8)));
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_WATCHED), 0);
	ck_assert_uint_eq(stats().retired, 3);
	ck_assert_uint_eq(stats().retired_bytes, MIB(12));
	pindown_detach(other.object);
	pindown_detach(object);
	is_free_again(MIB(4));
}
END_TEST

/* The program asks for any addresses, and the driver has answered with those. */
static void reserve_elsewhere(void)
{
	struct pdn_aside aside = {.are_reservations = true};
	CUdeviceptr got, other;

	OK(cuMemAddressReserve(&got, MIB(4), 0, p, 0));
	ck_assert_uint_eq(got, p);
	ck_assert(pdn_retired_again(&aside, got, MIB(4)));
	ck_assert(is_reserved(p, MIB(4)));
	OK(cuMemAddressReserve(&other, MIB(4), 0, 0, 0));
	ck_assert(!pdn_retired_again(&aside, other, MIB(4)));
	ck_assert(!is_reserved(p, MIB(4)));
	OK(cuMemAddressFree(other, MIB(4)));
}

/* Not for ever: that is slow. It is tried again once the driver has handed it out. */
START_TEST(that_is_tried_a_few_times)
{
	enum { TRIES = 4 };
	struct retired others[TRIES + 2];
	CUdeviceptr stays[TRIES + 2];
	uint64_t calls;

	for (int i = 0; i < TRIES + 2; i++) {
		others[i].p = program_alloc(MIB(8));
		others[i].object = hold(others[i].p);
		stays[i] = program_alloc(MIB(8)); /* the driver gives up none of these chunks */
	}
	watched(MIB(4));
	for (int i = 0; i < TRIES; i++) {
		sim_fail("cuMemAddressReserve:2=CUDA_ERROR_OUT_OF_MEMORY");
		OK(program_free(others[i].p));
	}
	calls = sim_calls("cuMemAddressReserve");
	OK(program_free(others[TRIES].p));
	ck_assert_uint_eq(sim_calls("cuMemAddressReserve"), calls + 1);
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_WATCHED), 1);
	reserve_elsewhere();
	OK(program_free(others[TRIES + 1].p));
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_WATCHED), 0);
	for (int i = 0; i < TRIES + 2; i++) {
		pindown_detach(others[i].object);
		OK(program_free(stays[i]));
	}
	pindown_detach(object);
}
END_TEST

START_TEST(what_comes_by_another_road_has_escaped)
{
	CUdeviceptr q;

	watched(MIB(4));
	q = alloc(MIB(4));
	ck_assert_uint_eq(q, p);
	ck_assert_uint_eq(stats().escapes, 1);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	OK(program_free(q));
	ck_assert_uint_eq(program_alloc(MIB(4)), p);
	ck_assert_uint_eq(stats().escapes, 1);
	pindown_detach(object);
}
END_TEST

/* The other memory is given back, and then there is room. */
START_TEST(no_memory_is_left_beside_it)
{
	struct pdn_aside aside = {0};

	watched(MIB(4));
	ck_assert_uint_eq(driver_alloc(MIB(4)), p);
	ck_assert(pdn_retired_again(&aside, p, MIB(4)));
	ck_assert_uint_eq(sim_live_allocations(), 1);
	ck_assert(pdn_retired_again(&aside, 0, MIB(4)));
	ck_assert_uint_eq(sim_live_allocations(), 0);
	ck_assert_uint_eq(driver_alloc(MIB(4)), p);
	ck_assert(!pdn_retired_again(&aside, p, MIB(4)));
	pdn_allocated(p, MIB(4));
	ck_assert_uint_eq(stats().escapes, 1);
	pindown_detach(object);
}
END_TEST

/* Nothing was put aside: the error is the program's. */
START_TEST(an_error_is_handed_on)
{
	struct pdn_aside aside = {0};

	watched(MIB(4));
	ck_assert(!pdn_retired_again(&aside, 0, MIB(4)));
	pindown_detach(object);
}
END_TEST

START_TEST(a_reservation_of_the_programs_is_elsewhere)
{
	watched(MIB(4));
	reserve_elsewhere();
	ck_assert_uint_eq(stats().escapes, 0);
	pindown_detach(object);
}
END_TEST

START_TEST(the_program_asks_for_this_address)
{
	watched(MIB(4));
	pdn_retired_yield(p, MIB(2));
	ck_assert_uint_eq(stats().retired_ranges, 0);
	ck_assert_uint_eq(stats().retired_dropped, 1);
	ck_assert_uint_eq(program_alloc(MIB(4)), p);
	ck_assert_uint_eq(stats().escapes, 0);
	pindown_detach(object);
}
END_TEST

static struct retired many[20];

static void retire_in_vain(void)
{
	for (unsigned i = 0; i < 20; i++)
		many[i] = retire(MIB(4));
}

/* It is said, and all is kept from then on. */
START_TEST(a_driver_that_stops_reserving)
{
	const char *said;

	pindown_detach(retire(MIB(4)).object);
	sim_lose_hints(EVER);
	said = stderr_of(retire_in_vain);
	ck_assert_ptr_nonnull(strstr(said, "does not reserve addresses as it is asked to"));
	ck_assert_uint_eq(stats().retired_ranges, 16);
	ck_assert_uint_eq(stats().object_kept_regions, 4);
	for (unsigned i = 0; i < 20; i++)
		for (unsigned j = 0; j < i && j < 16; j++)
			ck_assert_uint_ne(many[i].p, many[j].p);
	for (unsigned i = 0; i < 20; i++)
		pindown_detach(many[i].object);
	ck_assert_uint_eq(stats().escapes, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: addresses that are handed out");
	TCase *tc = retired_case(suite, "not reserved");

	tcase_add_test(tc, an_allocation_gets_another_one);
	tcase_add_test(tc, small_ones_get_another_block);
	tcase_add_test(tc, small_ones_are_not_cut_from_a_large_one);
	tcase_add_test(tc, the_next_such_free_reserves_it);
	tcase_add_test(tc, that_is_tried_a_few_times);
	tcase_add_test(tc, what_comes_by_another_road_has_escaped);
	tcase_add_test(tc, no_memory_is_left_beside_it);
	tcase_add_test(tc, an_error_is_handed_on);
	tcase_add_test(tc, a_reservation_of_the_programs_is_elsewhere);
	tcase_add_test(tc, the_program_asks_for_this_address);
	tcase_add_test(tc, a_driver_that_stops_reserving);
	return run_suite(suite);
}
