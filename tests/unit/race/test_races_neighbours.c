/* SPDX-License-Identifier: MIT */
/*
 * A free and a question to the driver wait for each other where they are about different memory
 * in the same pages; and what a free does when it has waited for too long.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/hook_events.h"
#include "cache/end/work.h"
#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/freer.h"

/* ---- a free whose time is over -------------------------------------------------------------- */

static bool waits_on; /* PINDOWN_DEBUG */
static unsigned times_over;

bool __real_pdn_free_waits_on(uint32_t tid, const char *what);
bool __wrap_pdn_free_waits_on(uint32_t tid, const char *what);

bool __wrap_pdn_free_waits_on(uint32_t tid, const char *what)
{
	bool waits = __real_pdn_free_waits_on(tid, what);

	__atomic_add_fetch(&times_over, 1, __ATOMIC_SEQ_CST);
	return waits;
}

static void out_of_time(void *arg)
{
	(void)arg;
	freer_starts(free_it, AT(0), false);
	if (waits_on) {
		wait_until(__atomic_load_n(&times_over, __ATOMIC_SEQ_CST) >= 3);
		ck_assert(!__atomic_load_n(&freer.is_in_driver, __ATOMIC_SEQ_CST));
	} else {
		gate_wait(&freer.inside);
	}
}

static void free_for_too_long(void)
{
	pindown_region *region = NULL;

	pdn_race_wait_ns = 1000000;
	fake_at_edge(FAKE_QUERY, 1, out_of_time, NULL);
	pindown_get(AT(0) + PAGE, 1, 0, &region);
	ck_assert(fake_edge_met());
	freer_ends();
}

START_TEST(a_free_whose_time_is_over)
{
	char who[40];
	const char *said;

	waits_on = _i;
	fake_overlaps_allowed = true;
	setenv("PINDOWN_DEBUG", waits_on ? "1" : "0", 1);
	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	said = stderr_of(free_for_too_long);
	snprintf(who, sizeof(who), "for thread %u's pin", pdn_my_tid());
	ck_assert_msg(strstr(said, who), "%s", said);
	ck_assert_msg(strstr(said, waits_on ? "goes on waiting" : "proceeds"), "%s", said);
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

/* ---- what lies beside the memory in its pages ---------------------------------------------- */

#define SMALL 8192

static void free_the_neighbour(void *arg)
{
	(void)arg;
	freer_starts(free_it, AT(0), false);
	worker_wait_idle(&freer.worker);
	ck_assert(!__atomic_load_n(&freer.is_in_driver, __ATOMIC_SEQ_CST));
}

static void two_in_a_page(void)
{
	fake_alloc(AT(0), SMALL, FAKE_LINEAR);
	fake_alloc(AT(0) + SMALL, SMALL, FAKE_LINEAR);
}

/* The driver exports whole pages, and looks up what begins there. */
START_TEST(a_free_waits_for_an_export_that_reaches_over_it)
{
	two_in_a_page();
	fake_at_edge(FAKE_EXPORT, (unsigned)_i, free_the_neighbour, NULL);
	get_and_put(AT(0) + SMALL, SMALL);
	ck_assert(fake_edge_met());
	freer_ends();
	ck_assert_int_eq(watched_free(AT(0) + SMALL), FAKE_SUCCESS);
}
END_TEST

static void get_the_second(void *arg)
{
	(void)arg;
	get_and_put(AT(0) + SMALL, SMALL);
}

START_TEST(an_export_waits_for_a_free_that_it_reaches_over)
{
	pindown_region *region = NULL;
	struct worker worker;

	two_in_a_page();
	freer_stops_in_driver(free_it, AT(0));
	ck_assert_int_eq(pindown_get(AT(0) + SMALL, 1, PINDOWN_GET_NOWAIT, &region),
			 PINDOWN_ERR_WOULD_WAIT);
	worker_start(&worker, get_the_second, NULL);
	worker_wait_idle(&worker);
	ck_assert(!worker_is_done(&worker));
	ck_assert_uint_eq(fake_count(FAKE_EXPORT), 0);
	freer_ends();
	worker_join(&worker);
	ck_assert_uint_eq(stats().pins, 1);
	ck_assert_int_eq(watched_free(AT(0) + SMALL), FAKE_SUCCESS);
}
END_TEST

/* A region of the second one in the page, held, whose descriptor is closed. */
static pindown_region *closed_one(void)
{
	pindown_region *region = must_get(AT(0) + SMALL, SMALL);

	pindown_region_close_dmabuf(region);
	ck_assert_uint_eq(fake_open_exports(), 0);
	return region;
}

static int open_it(pindown_region *region)
{
	uint64_t offset;
	int fd;

	return pindown_region_dmabuf(region, AT(0) + SMALL, &fd, &offset);
}

static void over_with(pindown_region *region)
{
	pindown_put(region);
	ck_assert_int_eq(watched_free(AT(0) + SMALL), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports(), 0);
}

START_TEST(a_free_waits_for_a_descriptor_that_is_opened_again)
{
	pindown_region *region;

	two_in_a_page();
	region = closed_one();
	fake_at_edge(FAKE_EXPORT, (unsigned)_i, free_the_neighbour, NULL);
	ck_assert_int_eq(open_it(region), PINDOWN_OK);
	ck_assert(fake_edge_met());
	freer_ends();
	over_with(region);
}
END_TEST

static void open_again(void *region)
{
	ck_assert_int_eq(open_it(region), PINDOWN_OK);
}

START_TEST(a_descriptor_is_opened_again_when_a_free_beside_it_is_over)
{
	pindown_region *region;
	struct worker worker;
	unsigned exports;

	two_in_a_page();
	region = closed_one();
	exports = fake_count(FAKE_EXPORT);
	freer_stops_in_driver(free_it, AT(0));
	worker_start(&worker, open_again, region);
	worker_wait_idle(&worker);
	ck_assert(!worker_is_done(&worker));
	ck_assert_uint_eq(fake_count(FAKE_EXPORT), exports);
	freer_ends();
	worker_join(&worker);
	over_with(region);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: neighbours");
	TCase *tc = cache_case(suite, "time is over");

	tcase_add_loop_test(tc, a_free_whose_time_is_over, 0, 2);
	tc = cache_case(suite, "neighbours");
	tcase_add_loop_test(tc, a_free_waits_for_an_export_that_reaches_over_it, 0, 2);
	tcase_add_test(tc, an_export_waits_for_a_free_that_it_reaches_over);
	tcase_add_loop_test(tc, a_free_waits_for_a_descriptor_that_is_opened_again, 0, 2);
	tcase_add_test(tc, a_descriptor_is_opened_again_when_a_free_beside_it_is_over);
	return run_suite(suite);
}
