/* SPDX-License-Identifier: MIT */
/*
 * Which regions are evicted, for a budget or for pin space: newcomers that nothing used go first;
 * see evict.c. Scenarios marked [UCX] and [libfabric] are known from those projects' suites.
 */
#include <errno.h>

#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/descriptors.h"

#define AT(i) (BASE + MIB(16) * (i))

static void alloc_some(unsigned n, uint64_t size)
{
	for (unsigned i = 0; i < n; i++)
		fake_alloc(AT(i), size, FAKE_LINEAR);
}

static void assert_cached(const char *which)
{
	for (unsigned i = 0; which[i]; i++)
		ck_assert_msg(is_cached(AT(i), 1) == (which[i] == '1'),
			      "region %u is%s cached; expected %s", i,
			      which[i] == '1' ? " not" : "", which);
}

/* [UCX] limits by count. */
START_TEST(count_budget_evicts_newcomers_that_nobody_used)
{
	setenv("PINDOWN_MAX_REGIONS", "3", 1);
	alloc_some(6, MIB(1));
	for (unsigned i = 0; i < 3; i++)
		get_and_put(AT(i), 1);
	get_and_put(AT(0), 1); /* it has been used since its pin */

	get_and_put(AT(3), 1);
	ck_assert_uint_eq(fake_open_exports_of(fake_id(AT(1))), 0);
	get_and_put(AT(4), 1);
	ck_assert_uint_eq(fake_open_exports_of(fake_id(AT(2))), 0);
	get_and_put(AT(5), 1);
	ck_assert_uint_eq(fake_open_exports_of(fake_id(AT(3))), 0);
	assert_cached("100011");
	ck_assert_uint_eq(stats().evictions, 3);
	ck_assert_uint_eq(stats().peak_regions, 3);
	ck_assert_uint_eq(stats().max_regions, 3);
	ck_assert_uint_eq(fake_open_exports(), 3);
	ck_assert_uint_eq(stats().invalidations, 0);
}
END_TEST

/* Uses a region, then pins a scratch region. */
static void use(unsigned i)
{
	get_and_put(AT(i), 1);
	get_and_put(AT(9), 1);
	ck_assert_int_eq(pindown_invalidate(AT(9), 0), 1);
}

static void use_all(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		get_and_put(AT(i), 1);
}

START_TEST(used_regions_survive_a_scan)
{
	setenv("PINDOWN_MAX_REGIONS", "20", 1);
	alloc_some(100, MIB(1));
	use_all(0, 10);
	use_all(0, 10);
	use_all(10, 100); /* each of them once */
	for (unsigned i = 0; i < 10; i++)
		ck_assert_msg(is_cached(AT(i), 1), "region %u", i);
	ck_assert_uint_eq(stats().evictions, 80);
}
END_TEST

START_TEST(a_region_that_comes_back_soon_stays)
{
	setenv("PINDOWN_MAX_REGIONS", "10", 1);
	alloc_some(60, MIB(1));
	use_all(0, 11);
	ck_assert(!is_cached(AT(0), 1));
	get_and_put(AT(0), 1);
	ck_assert_uint_eq(stats().evictions, 2);
	use_all(11, 60);
	ck_assert(is_cached(AT(0), 1));
}
END_TEST

/* A region that was evicted long ago counts as a newcomer again. */
START_TEST(a_region_that_comes_back_late_does_not)
{
	setenv("PINDOWN_MAX_REGIONS", "10", 1);
	alloc_some(60, MIB(1));
	use_all(0, 30);
	get_and_put(AT(0), 1);
	use_all(30, 60);
	ck_assert(!is_cached(AT(0), 1));
}
END_TEST

/* A region that was used much, and is not used any more, does not stay for ever. */
START_TEST(a_region_no_longer_used_goes)
{
	setenv("PINDOWN_MAX_REGIONS", "10", 1);
	alloc_some(24, MIB(1));
	for (unsigned i = 0; i < 100; i++)
		use_all(0, 4);
	for (unsigned i = 0; i < 20; i++)
		use_all(10, 24); /* more than the budget allows, so that they come back as ghosts */
	for (unsigned i = 0; i < 4; i++)
		ck_assert_msg(!is_cached(AT(i), 1), "region %u", i);
}
END_TEST

/* However often all of them were used, one has to go. */
START_TEST(one_eviction_of_many_that_are_used)
{
	setenv("PINDOWN_MAX_REGIONS", "1000", 1);
	alloc_some(1010, PAGE);
	for (unsigned i = 0; i < 5; i++)
		use_all(0, 1000);
	use_all(1000, 1010);
	ck_assert_uint_eq(stats().evictions, 10);
	ck_assert_uint_eq(stats().regions, 1000);
}
END_TEST

/*
 * Its use has moved it in the queue, to the place that it had already: the search must not pass it
 * over.
 */
START_TEST(a_region_used_since_its_pin_is_evicted_before_a_held_one)
{
	setenv("PINDOWN_MAX_REGIONS", "2", 1);
	alloc_some(10, MIB(1));
	get_and_put(AT(0), 1);
	use(9);
	get_and_put(AT(0), 1);
	pindown_region *held = must_get(AT(1), 1);
	get_and_put(AT(2), 1);
	assert_cached("011");
	pindown_put(held);
}
END_TEST

START_TEST(a_region_used_before_the_others_pin_goes_first)
{
	setenv("PINDOWN_MAX_REGIONS", "2", 1);
	alloc_some(10, MIB(1));
	get_and_put(AT(0), 1);
	use(9);
	get_and_put(AT(0), 1);
	get_and_put(AT(1), 1);
	get_and_put(AT(2), 1);
	assert_cached("011");
}
END_TEST

/* [UCX] limits by size. */
START_TEST(byte_budget_evicts_as_many_as_it_takes)
{
	setenv("PINDOWN_MAX_BYTES", "8M", 1);
	alloc_some(4, MIB(2));
	fake_alloc(AT(4), MIB(6), FAKE_LINEAR);
	for (unsigned i = 0; i < 4; i++)
		get_and_put(AT(i), 1);
	ck_assert_uint_eq(stats().evictions, 0);
	ck_assert_uint_eq(stats().max_bytes, MIB(8));

	get_and_put(AT(4), 1);
	assert_cached("00011");
	ck_assert_uint_eq(stats().evictions, 3);
	ck_assert_uint_eq(stats().bytes, MIB(8));
	ck_assert_uint_eq(stats().peak_bytes, MIB(8));
}
END_TEST

/* The budget is of pinned pages, not of what the program asked for. */
START_TEST(byte_budget_counts_whole_pages)
{
	setenv("PINDOWN_MAX_BYTES", "128K", 1);
	alloc_some(3, 100);
	get_and_put(AT(0), 1);
	get_and_put(AT(1), 1);
	ck_assert_uint_eq(stats().evictions, 0);
	get_and_put(AT(2), 1);
	assert_cached("011");
	ck_assert_uint_eq(stats().bytes, 2 * PAGE);
}
END_TEST

/*
 * [UCX] limits with regions in use: these are passed over, and if there are no others, the get
 * fails.
 */
START_TEST(regions_in_use_are_never_evicted)
{
	pindown_region *held[3];

	setenv("PINDOWN_MAX_REGIONS", "3", 1);
	alloc_some(5, MIB(1));
	for (unsigned i = 0; i < 3; i++)
		held[i] = must_get(AT(i), 1);
	must_refuse(AT(3), 1, PINDOWN_ERR_NO_SPACE);
	ck_assert_uint_eq(stats().regions, 3);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(pindown_region_is_live(held[i]), 1);

	pindown_put(held[2]);
	get_and_put(AT(3), 1);
	assert_cached("11010");
	get_and_put(AT(4), 1);
	assert_cached("11001");
	pindown_put(held[0]);
	pindown_put(held[1]);
}
END_TEST

START_TEST(bytes_in_use_are_never_evicted)
{
	setenv("PINDOWN_MAX_BYTES", "4M", 1);
	alloc_some(3, MIB(2));
	pindown_region *held = must_get(AT(0), 1);
	get_and_put(AT(1), 1);
	get_and_put(AT(2), 1);
	assert_cached("101");
	pindown_region *other = must_get(AT(2), 1);
	must_refuse(AT(1), 1, PINDOWN_ERR_NO_SPACE);
	pindown_put(other);
	pindown_put(held);
}
END_TEST

START_TEST(a_range_larger_than_the_budget_is_refused)
{
	setenv("PINDOWN_MAX_BYTES", "4M", 1);
	alloc_some(1, MIB(2));
	fake_alloc(AT(1), MIB(4) + 1, FAKE_LINEAR);
	get_and_put(AT(0), 1);
	must_refuse(AT(1), MIB(4) + 1, PINDOWN_ERR_NO_SPACE);
	ck_assert_uint_eq(fake_exports_made(), 1);
	ck_assert(is_cached(AT(0), 1));
}
END_TEST

/* 4 MiB of 8 are held and 2 are idle, so 5 can't be had. */
START_TEST(a_get_that_idle_regions_cannot_satisfy_leaves_them)
{
	setenv("PINDOWN_MAX_BYTES", "8M", 1);
	alloc_some(2, MIB(4));
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(2), MIB(5), FAKE_LINEAR);
	fake_alloc(AT(3), MIB(4), FAKE_LINEAR);
	pindown_region *held = must_get(AT(0), 1);
	get_and_put(AT(1), 1);
	must_refuse(AT(2), MIB(5), PINDOWN_ERR_NO_SPACE);
	assert_cached("1100");
	ck_assert_uint_eq(stats().evictions, 0);
	get_and_put(AT(3), 1);
	assert_cached("1001");
	pindown_put(held);
}
END_TEST

/* ---- space that goes to another one while room is made ---- */

static pindown_region *taken;
static bool takes_six;

static void take_six(const struct pindown_invalidation *what, void *arg)
{
	(void)arg;
	if (what->reason != PINDOWN_REASON_EVICTED || takes_six)
		return;
	takes_six = true;
	taken = must_get(AT(4), MIB(6));
}

/*
 * At first the budget is short of a region only, and one goes. The get of 6 MiB in its callback
 * takes the place of another. Then it is short of 2 MiB, and the last idle one has 1: that stays.
 */
START_TEST(a_shortage_that_grows_meanwhile_is_looked_at_anew)
{
	setenv("PINDOWN_MAX_REGIONS", "3", 1);
	setenv("PINDOWN_MAX_BYTES", "8M", 1);
	takes_six = false;
	alloc_some(3, MIB(1));
	fake_alloc(AT(3), MIB(3), FAKE_LINEAR);
	fake_alloc(AT(4), MIB(6), FAKE_LINEAR);
	for (unsigned i = 0; i < 3; i++)
		get_and_put(AT(i), 1);
	ck_assert_int_ge(pindown_subscribe(take_six, NULL), 0);
	must_refuse(AT(3), MIB(3), PINDOWN_ERR_NO_SPACE);
	assert_cached("00101");
	ck_assert_uint_eq(stats().evictions, 2);
	pindown_put(taken);
}
END_TEST

/* ---- space that another thread's pin has reserved, and then does not need ---- */

static struct worker other;
static bool other_runs;
static int result_of_other;

static void get_the_second(void *arg)
{
	pindown_region *region = NULL;

	(void)arg;
	result_of_other = pindown_get(AT(1), 1, 0, &region);
	if (result_of_other == PINDOWN_OK)
		pindown_put(region);
}

static void start_the_other(void *arg)
{
	(void)arg;
	worker_start(&other, get_the_second, NULL);
	worker_wait_idle(&other);
	other_runs = true;
}

static void join_the_other(void)
{
	if (other_runs)
		worker_join(&other);
	other_runs = false;
}

static void a_pin_fails_while_another_wants_room(void (*in_the_middle)(void *))
{
	alloc_some(2, MIB(4));
	fake_at_edge(FAKE_EXPORT, FAKE_ENTERING(0), in_the_middle, NULL);
	fake_fail(FAKE_EXPORT, 0, 1, FAKE_UNKNOWN);
	must_refuse(AT(0), 1, PINDOWN_ERR_DRIVER);
	ck_assert(fake_edge_met());
	join_the_other();
}

START_TEST(a_reservation_that_may_yet_be_given_back_is_waited_for)
{
	setenv(_i ? "PINDOWN_MAX_BYTES" : "PINDOWN_MAX_REGIONS", _i ? "6M" : "1", 1);
	a_pin_fails_while_another_wants_room(start_the_other);
	ck_assert_int_eq(result_of_other, PINDOWN_OK);
	assert_cached("01");
}
END_TEST

/*
 * A free of its memory waits for the get that waits for space, so that get must give up. If it did
 * not, this test would exceed its time.
 */
static void free_what_the_other_wants(void *arg)
{
	start_the_other(arg);
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
	join_the_other();
}

START_TEST(a_wait_for_space_gives_way_to_a_free)
{
	pdn_race_wait_ns = 10 * PATIENCE_NS;
	setenv("PINDOWN_MAX_REGIONS", "1", 1);
	a_pin_fails_while_another_wants_room(free_what_the_other_wants);
	ck_assert_int_eq(result_of_other, PINDOWN_ERR_NOT_DEVICE);
}
END_TEST

/*
 * A thread does not wait for a thread that waits itself, nor for its own pin: here a subscriber
 * calls get while its own thread's pin is under way.
 */
static void get_in_callback(const struct pindown_invalidation *what, void *arg)
{
	(void)what;
	(void)arg;
	must_refuse(AT(2), 1, PINDOWN_ERR_NO_SPACE);
}

START_TEST(a_thread_does_not_wait_for_its_own_reservation)
{
	int id;

	pdn_race_wait_ns = 10 * PATIENCE_NS;
	setenv("PINDOWN_MAX_BYTES", "4M", 1);
	alloc_some(3, MIB(2));
	fake_pin_space(MIB(2));
	get_and_put(AT(0), 1);
	pindown_region *held = NULL;
	id = pindown_subscribe(get_in_callback, NULL);
	held = must_get(AT(1), 1);
	pindown_unsubscribe(id);
	assert_cached("010");
	pindown_put(held);
}
END_TEST

/* However small the budget: hits don't evict, and one region is enough to work with. */
START_TEST(a_budget_of_one_region_works)
{
	setenv("PINDOWN_MAX_REGIONS", "1", 1);
	alloc_some(3, MIB(1));
	for (unsigned round = 0; round < 30; round++) {
		pindown_region *region = must_get(AT(round % 3), 1);
		get_and_put(AT(round % 3), 1);
		pindown_put(region);
		ck_assert_uint_eq(stats().regions, 1);
		ck_assert_uint_eq(fake_open_exports(), 1);
	}
	ck_assert_uint_eq(stats().evictions, 29);
}
END_TEST

/* [libfabric] registering fails for lack of space: evict and retry, here as often as it takes. */
START_TEST(a_pin_without_space_evicts_and_retries)
{
	alloc_some(4, MIB(2));
	fake_alloc(AT(4), MIB(6), FAKE_LINEAR);
	fake_pin_space(MIB(8));
	for (unsigned i = 0; i < 4; i++)
		get_and_put(AT(i), 1);
	ck_assert_uint_eq(stats().evictions, 0);

	get_and_put(AT(4), 1);
	assert_cached("00011");
	ck_assert_uint_eq(stats().evictions, 3);
	ck_assert_uint_eq(stats().regions, 2);
}
END_TEST

START_TEST(a_pin_without_space_passes_over_regions_in_use)
{
	alloc_some(4, MIB(2));
	fake_pin_space(MIB(6));
	pindown_region *held = must_get(AT(0), 1);
	get_and_put(AT(1), 1);
	get_and_put(AT(2), 1);
	get_and_put(AT(3), 1);
	assert_cached("1011");
	ck_assert_int_eq(pindown_region_is_live(held), 1);
	pindown_put(held);
}
END_TEST

START_TEST(a_pin_without_space_and_nothing_to_evict_fails)
{
	pindown_region *held[2];

	alloc_some(3, MIB(2));
	fake_pin_space(MIB(4));
	held[0] = must_get(AT(0), 1);
	held[1] = must_get(AT(1), 1);
	must_refuse(AT(2), 1, PINDOWN_ERR_NO_SPACE);
	ck_assert_int_eq(pindown_driver_error(), FAKE_OUT_OF_MEMORY);
	ck_assert_uint_ge(stats().pin_failures, 1);
	pindown_put(held[0]);
	get_and_put(AT(2), 1);
	assert_cached("011");
	pindown_put(held[1]);
}
END_TEST

/*
 * Free space can't be asked for, only tried: 2 MiB that are idle and 4 that are free are less than
 * 12.
 */
START_TEST(a_pin_that_never_fits_evicts_nothing)
{
	alloc_some(2, MIB(2));
	fake_alloc(AT(2), MIB(12), FAKE_LINEAR);
	fake_pin_space(MIB(8));
	get_and_put(AT(0), 1);
	get_and_put(AT(1), 1);
	must_refuse(AT(2), MIB(12), PINDOWN_ERR_NO_SPACE);
	ck_assert_int_eq(pindown_driver_error(), FAKE_OUT_OF_MEMORY);
	assert_cached("110");
	ck_assert_uint_eq(stats().evictions, 0);
	ck_assert_uint_eq(stats().pins, 2);
	ck_assert_uint_eq(fake_open_exports(), 2);
}
END_TEST

/* It fits to the last page. */
START_TEST(a_pin_that_just_fits_evicts)
{
	alloc_some(2, MIB(2));
	fake_alloc(AT(2), MIB(6) + PAGE, FAKE_LINEAR);
	fake_alloc(AT(3), MIB(6), FAKE_LINEAR);
	fake_pin_space(MIB(8));
	pindown_region *held = must_get(AT(0), 1);
	get_and_put(AT(1), 1);
	must_refuse(AT(2), MIB(6) + PAGE, PINDOWN_ERR_NO_SPACE);
	assert_cached("1100");
	get_and_put(AT(3), 1);
	assert_cached("1001");
	ck_assert_uint_eq(stats().evictions, 1);
	pindown_put(held);
}
END_TEST

/* Whatever the reason of the refusal is, it is not the pinned regions. */
START_TEST(a_refusal_that_eviction_does_not_cure_evicts_no_more_than_that)
{
	alloc_some(60, MIB(1));
	fake_alloc(AT(60), MIB(1), FAKE_LINEAR);
	fake_alloc(AT(61), MIB(10), FAKE_LINEAR);
	use_all(0, 60);
	fake_fail(FAKE_EXPORT, 0, 1000, FAKE_OUT_OF_MEMORY);
	must_refuse(AT(60), 1, PINDOWN_ERR_NO_SPACE);
	ck_assert_uint_eq(stats().evictions, 16);
	must_refuse(AT(61), 1, PINDOWN_ERR_NO_SPACE);
	ck_assert_uint_eq(stats().evictions, 16 + 20);
	ck_assert_uint_eq(stats().regions, 60 - 36);
	fake_fail(FAKE_EXPORT, 0, 0, 0);
}
END_TEST

/* A driver error that does not mean a lack of space. */
START_TEST(another_error_evicts_nothing)
{
	static const int errors[] = {FAKE_OPERATING_SYSTEM, FAKE_UNKNOWN, FAKE_NOT_SUPPORTED};

	alloc_some(4, MIB(1));
	use_all(0, 3);
	errno = EMFILE; /* left over from another call */
	fake_fail(FAKE_EXPORT, 0, 1, errors[_i]);
	must_refuse(AT(3), 1, PINDOWN_ERR_DRIVER);
	ck_assert_int_eq(errno, EMFILE);
	ck_assert_int_eq(pindown_driver_error(), errors[_i]);
	ck_assert_uint_eq(stats().evictions, 0);
	assert_cached("1110");
	get_and_put(AT(3), 1);
}
END_TEST

/*
 * A pool's pieces move while other threads use the pool: an H200's driver sometimes refused an
 * export then.
 */
START_TEST(a_refusal_of_a_pools_memory_is_asked_about_again)
{
	fake_alloc(AT(0), MIB(2), FAKE_POOL);
	pdn_allocated(AT(0), MIB(2));
	fake_fail(FAKE_EXPORT, 0, 2, FAKE_INVALID_VALUE);
	get_and_put(AT(0), 1);
	pindown_flush();
	fake_fail(FAKE_EXPORT, 0, 1000, FAKE_INVALID_VALUE);
	must_refuse(AT(0), 1, PINDOWN_ERR_DRIVER);
	ck_assert_int_eq(pindown_driver_error(), FAKE_INVALID_VALUE);
}
END_TEST

/* Regions whose memory was freed while in use take pin space until the last put. */
START_TEST(kept_regions_take_space_until_the_last_put)
{
	alloc_some(2, MIB(2));
	fake_pin_space(MIB(2));
	pindown_region *kept = must_get(AT(0), 1);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	must_refuse(AT(1), 1, PINDOWN_ERR_NO_SPACE);
	pindown_put(kept);
	get_and_put(AT(1), 1);
}
END_TEST

/* Running out of descriptors counts as running out of space. */
START_TEST(running_out_of_descriptors_evicts)
{
	alloc_some(4, MIB(2));
	for (unsigned i = 0; i < 3; i++)
		get_and_put(AT(i), 1);
	allow_descriptors(400);
	take_descriptors_but(1); /* a pipe takes two */
	get_and_put(AT(3), 1);
	ck_assert_uint_ge(stats().evictions, 1);
	ck_assert(is_cached(AT(3), 1));
	ck_assert(!is_cached(AT(0), 1));
	give_descriptors_back();
}
END_TEST

START_TEST(flush_unpins_idle_regions_and_says_how_many)
{
	alloc_some(4, MIB(1));
	for (unsigned i = 0; i < 4; i++)
		get_and_put(AT(i), 1);
	pindown_region *held = must_get(AT(2), 1);
	ck_assert_int_eq(pindown_flush(), 3);
	assert_cached("0010");
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert_uint_eq(stats().evictions, 0);
	ck_assert_int_eq(pindown_flush(), 0);
	pindown_put(held);
	ck_assert(is_cached(AT(2), 1));
	ck_assert_int_eq(pindown_flush(), 1);
	ck_assert_int_eq(pindown_flush(), 0);
}
END_TEST

/* Records and index nodes are used again, in any order, any number of times. */
START_TEST(many_regions_come_and_go)
{
	const unsigned n = 3000;

	setenv("PINDOWN_BACKEND", "none", 1);
	setenv("PINDOWN_MAX_REGIONS", "100000", 1);
	for (unsigned i = 0; i < n; i++)
		fake_alloc(BASE + MIB(2) * i, KIB(64) * (1 + i % 30), FAKE_LINEAR);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < n; i++)
			get_and_put(BASE + MIB(2) * i, 1);
		ck_assert_uint_eq(stats().regions, n);
		for (unsigned i = 0; i < n; i++)
			ck_assert(is_cached(BASE + MIB(2) * ((i * 7919) % n), KIB(64)));
		if (round == 1)
			ck_assert_int_eq(pindown_flush(), n);
		for (unsigned i = 0; round != 1 && i < n; i++)
			ck_assert_int_eq(pindown_invalidate(BASE + MIB(2) * ((i * 7919) % n), 0),
					 1);
		ck_assert_uint_eq(stats().regions, 0);
	}
	ck_assert_uint_eq(stats().pins, 3 * n);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: budgets and pin space");
	TCase *tc = cache_case(suite, "budgets");

	tcase_add_test(tc, count_budget_evicts_newcomers_that_nobody_used);
	tcase_add_test(tc, used_regions_survive_a_scan);
	tcase_add_test(tc, a_region_that_comes_back_soon_stays);
	tcase_add_test(tc, a_region_that_comes_back_late_does_not);
	tcase_add_test(tc, a_region_no_longer_used_goes);
	tcase_add_test(tc, one_eviction_of_many_that_are_used);
	tcase_add_test(tc, a_region_used_since_its_pin_is_evicted_before_a_held_one);
	tcase_add_test(tc, a_region_used_before_the_others_pin_goes_first);
	tcase_add_test(tc, byte_budget_evicts_as_many_as_it_takes);
	tcase_add_test(tc, byte_budget_counts_whole_pages);
	tcase_add_test(tc, regions_in_use_are_never_evicted);
	tcase_add_test(tc, bytes_in_use_are_never_evicted);
	tcase_add_test(tc, a_range_larger_than_the_budget_is_refused);
	tcase_add_test(tc, a_get_that_idle_regions_cannot_satisfy_leaves_them);
	tcase_add_test(tc, a_shortage_that_grows_meanwhile_is_looked_at_anew);
	tcase_add_test(tc, a_budget_of_one_region_works);
	tcase_add_loop_test(tc, a_reservation_that_may_yet_be_given_back_is_waited_for, 0, 2);
	tcase_add_test(tc, a_wait_for_space_gives_way_to_a_free);
	tcase_add_test(tc, a_thread_does_not_wait_for_its_own_reservation);
	tc = cache_case(suite, "pin space");
	tcase_add_test(tc, a_pin_without_space_evicts_and_retries);
	tcase_add_test(tc, a_pin_without_space_passes_over_regions_in_use);
	tcase_add_test(tc, a_pin_without_space_and_nothing_to_evict_fails);
	tcase_add_test(tc, a_pin_that_never_fits_evicts_nothing);
	tcase_add_test(tc, a_pin_that_just_fits_evicts);
	tcase_add_test(tc, a_refusal_that_eviction_does_not_cure_evicts_no_more_than_that);
	tcase_add_loop_test(tc, another_error_evicts_nothing, 0, 3);
	tcase_add_test(tc, a_refusal_of_a_pools_memory_is_asked_about_again);
	tcase_add_test(tc, kept_regions_take_space_until_the_last_put);
	tcase_add_test(tc, running_out_of_descriptors_evicts);
	tc = cache_case(suite, "flush and turnover");
	tcase_add_test(tc, flush_unpins_idle_regions_and_says_how_many);
	tcase_add_test(tc, many_regions_come_and_go);
	return run_suite(suite);
}
