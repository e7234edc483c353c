/* SPDX-License-Identifier: MIT */
/*
 * Memory of the past (cache/trust/past.h): a checkpoint by another process replaces all memory, and
 * no buffer id tells. The simulated driver does the whole of it (tests/apps/checkpointed.c); here
 * it happens at each edge of each call of the driver, and while other threads have stopped.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>

#include "cache/trust/past.h"
#include "cache/hit/region.h"
#include "cache/trust/trust.h"
#include "tests/unit/support/exports_test.h"
#include "tests/unit/support/syscalls.h"

#define AT(i) (BASE + MIB(16) * (i))

static void past_begins(void *arg)
{
	(void)arg;
	pdn_past_begins();
}

/* ---- what is found and what is kept -------------------------------------------------------- */

START_TEST(no_lookup_finds_it)
{
	fake_alloc(AT(0), SIZE, FAKE_LINEAR);
	fake_alloc(AT(1), SIZE, FAKE_POOL);
	get_and_put(AT(0), 1);
	get_and_put(AT(1), 1);
	pdn_past_begins();
	ck_assert_uint_eq(fake_open_exports(), 2); /* it ends nothing by itself */
	ck_assert(!is_cached(AT(0), 1));
	ck_assert_uint_eq(fake_open_exports(), 0);
	get_and_put(AT(0), 1);
	ck_assert(is_cached(AT(0), 1));
	ck_assert_uint_eq(stats().pins, 3);
	ck_assert_uint_eq(stats().invalidations, 2);
}
END_TEST

START_TEST(a_held_region_is_its_holders)
{
	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	pindown_region *held = must_get(BASE, 1);

	pdn_past_begins();
	ck_assert(!pindown_region_is_live(held));
	pindown_put(must_get(BASE, 1));
	ck_assert_uint_eq(stats().kept_regions, 1);
	pindown_put(held);
	ck_assert_uint_eq(stats().kept_regions, 0);
}
END_TEST

/* A hold that was taken before is dropped before anything has ended. */
START_TEST(a_put_before_it_ends)
{
	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	pindown_region *held = must_get(BASE, 1);

	pdn_past_begins();
	pindown_put(held);
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
}
END_TEST

static int count_live(const struct pindown_region_info *info, void *live)
{
	*(unsigned *)live += info->is_live != 0;
	return 0;
}

START_TEST(it_is_seen_until_it_ends)
{
	unsigned live = 0;

	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	get_and_put(BASE, 1);
	pdn_past_begins();
	ck_assert_int_eq(pindown_each_region(count_live, &live), 1);
	ck_assert_uint_eq(live, 0);
	ck_assert_uint_eq(stats().bytes, SIZE);
	ck_assert_int_eq(pindown_flush(), 1);
	ck_assert_uint_eq(stats().bytes, 0);
}
END_TEST

static unsigned told;

static void notice_at_the_second_time(void)
{
	if (++told == 2)
		pdn_past_is_noticed();
}

/* A program may ask for memory before the driver is there. */
START_TEST(it_is_possible_until_it_is_noticed)
{
	pdn_on_past_is_possible = notice_at_the_second_time;
	must_refuse(BASE, 1, PINDOWN_ERR_NOT_DEVICE);
	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	ck_assert_uint_ne(pdn_export_begins(BASE, SIZE), 0);
	ck_assert_uint_eq(told, 2);
	get_and_put(BASE, 1);
	ck_assert_uint_eq(told, 2);
}
END_TEST

/* ---- other threads, stopped anywhere ---- */

/* CRIU runs the thread of libcuda alone: the one that has the lock has been stopped. */
START_TEST(it_waits_for_no_lock)
{
	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	get_and_put(BASE, 1);
	pdn_lock();
	in_other_thread(past_begins, NULL);
	pdn_unlock();
	ck_assert(!is_cached(BASE, 1));
}
END_TEST

/* The same while that thread is about to make a region live again, as evictions do. */
START_TEST(a_region_that_goes_live_under_the_lock)
{
	uint32_t number;

	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	get_and_put(BASE, 1);
	number = pdn_index_find(BASE);
	pdn_lock();
	__atomic_store_n(&pdn_briefs[number].state, PDN_DYING, __ATOMIC_SEQ_CST);
	in_other_thread(past_begins, NULL);
	pdn_region_set_checked(number, pdn_regions[number].flags);
	pdn_unlock();
	ck_assert_int_eq(pdn_briefs[number].state, PDN_PAST);
	ck_assert(!is_cached(BASE, 1));
}
END_TEST

START_TEST(distrust_makes_nothing_live)
{
	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	get_and_put(BASE, 1);
	pdn_past_begins();
	pdn_distrust("a test wants it");
	ck_assert(!is_cached(BASE, 1));
}
END_TEST

/* ---- at each edge ---- */

static const enum fake_kind kinds[] = {FAKE_LINEAR, FAKE_POOL, FAKE_VMM};

/* What a get returns was exported since. */
static bool get_during_which_it_begins(unsigned edge)
{
	pindown_region *region;
	bool met;

	fake_at_edge(FAKE_CALLS, edge, past_begins, NULL);
	region = must_get(BASE, 1);
	met = fake_edge_met();
	fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
	ck_assert_msg(pindown_region_is_live(region), "edge %u", edge);
	pindown_put(region);
	ck_assert_msg(is_cached(BASE, 1), "edge %u", edge);
	ck_assert_msg(fake_open_exports() == 1, "edge %u", edge);
	return met;
}

START_TEST(a_pin_under_way_loses)
{
	unsigned edges = 0;

	fake_alloc(BASE, SIZE, kinds[_i]);
	while (get_during_which_it_begins(edges)) {
		ck_assert_int_eq(pindown_flush(), 1);
		edges++;
	}
	ck_assert_uint_gt(edges, 8);
}
END_TEST

/* Also while the driver is asked about a hit, whose answer is as before. */
START_TEST(a_hit_that_is_compared_loses)
{
	unsigned edges = 0;

	fake_alloc(BASE, SIZE, kinds[_i]);
	get_and_put(BASE, 1);
	pdn_distrust("a test wants it");
	while (get_during_which_it_begins(edges))
		edges++;
	ck_assert_uint_ge(edges, 2);
}
END_TEST

static void get_it(void *arg)
{
	(void)arg;
	get_and_put(BASE, 1);
}

/* Another thread pins the same, and later it begins. */
static void pin_it_and_go_on(void *more)
{
	in_other_thread(get_it, NULL);
	fake_at_edge(FAKE_CALLS, *(unsigned *)more, past_begins, NULL);
}

START_TEST(what_another_thread_has_pinned_meanwhile)
{
	unsigned more = 0;
	bool met = true;

	fake_alloc(BASE, SIZE, kinds[_i]);
	for (; met; more++) {
		fake_at_edge(FAKE_CALLS, 1, pin_it_and_go_on, &more);
		pindown_region *region = must_get(BASE, 1);

		met = fake_edge_met();
		fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
		ck_assert_msg(pindown_region_is_live(region), "edge %u", more);
		pindown_put(region);
		pindown_flush();
	}
	ck_assert_uint_gt(more, 2);
}
END_TEST

static int result_without_waiting;

static void get_without_waiting(void *arg)
{
	pindown_region *region;

	(void)arg;
	result_without_waiting = pindown_get(AT(1), 1, PINDOWN_GET_NOWAIT, &region);
	if (result_without_waiting == PINDOWN_OK)
		pindown_put(region);
}

static void begins_while_this_pins(void *arg)
{
	past_begins(arg);
	in_other_thread(get_without_waiting, NULL);
}

/* The pin of this thread would have to be waited for. */
START_TEST(a_get_that_must_not_wait)
{
	fake_alloc(AT(0), SIZE, FAKE_LINEAR);
	fake_alloc(AT(1), SIZE, FAKE_LINEAR);
	get_and_put(AT(1), 1);
	fake_at_edge(FAKE_EXPORT, FAKE_ENTERING(0), begins_while_this_pins, NULL);
	get_and_put(AT(0), 1);
	ck_assert_int_eq(result_without_waiting, PINDOWN_ERR_WOULD_WAIT);
	get_without_waiting(NULL);
	ck_assert_int_eq(result_without_waiting, PINDOWN_OK);
}
END_TEST

/* ---- the program's own dma-bufs ---- */

START_TEST(a_dmabuf_of_before_is_not_known)
{
	int fd = export_new(BASE);

	ck_assert(is_known(fd, 0, SIZE));
	pdn_past_begins();
	ck_assert(!is_known(fd, 0, SIZE));
	ck_assert(!any_remembered());
}
END_TEST

/* Of what was exported before it, and is remembered after it, nothing is known. */
START_TEST(a_dmabuf_that_is_made_meanwhile)
{
	uint64_t before;
	int fd = a_file();

	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	before = pdn_export_begins(BASE, SIZE);
	pdn_past_begins();
	pdn_past_end();
	pdn_exported(BASE, SIZE, 0, fd, before, NULL);
	ck_assert(!is_known(fd, 0, SIZE));
}
END_TEST

static void past_comes_and_goes(void *arg)
{
	(void)arg;
	pdn_past_begins();
	pdn_past_end();
}

static bool comes_at_the_file;

bool play_syscall(long number, const long args[6], long *result)
{
	(void)args, (void)result;
	if (number == SYS_fstat && comes_at_the_file) {
		comes_at_the_file = false;
		past_comes_and_goes(NULL);
	}
	return false;
}

/* Behind the last question to the driver. */
START_TEST(a_dmabuf_whose_file_is_looked_at)
{
	uint64_t before;
	int fd = a_file();

	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	before = pdn_export_begins(BASE, SIZE);
	comes_at_the_file = true;
	pdn_exported(BASE, SIZE, 0, fd, before, NULL);
	ck_assert(!comes_at_the_file);
	ck_assert(!is_known(fd, 0, SIZE));
}
END_TEST

START_TEST(a_dmabuf_at_each_edge)
{
	bool met = true;

	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	for (unsigned edge = 0; met; edge++) {
		uint64_t before = pdn_export_begins(BASE, SIZE);
		int fd = a_file();

		fake_at_edge(FAKE_CALLS, edge, past_comes_and_goes, NULL);
		pdn_exported(BASE, SIZE, 0, fd, before, NULL);
		met = fake_edge_met();
		fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
		ck_assert_msg(is_known(fd, 0, SIZE) != met, "edge %u", edge);
	}
}
END_TEST

START_TEST(a_dmabuf_that_is_looked_up_meanwhile)
{
	struct pdn_exported part;
	bool met = true;

	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	for (unsigned edge = 0; met; edge++) {
		int fd = a_file();
		bool found;

		pdn_past_look(); /* as each watched call does */
		export_as(fd, BASE, SIZE);
		fake_at_edge(FAKE_CALLS, edge, past_begins, NULL);
		found = pdn_export_find(fd, 0, SIZE, &part);
		met = fake_edge_met();
		fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
		ck_assert_msg(found != met, "edge %u", edge);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: memory of the past");
	TCase *found = cache_case(suite, "what is found");
	const int every = sizeof(kinds) / sizeof(kinds[0]);

	tcase_add_test(found, no_lookup_finds_it);
	tcase_add_test(found, a_held_region_is_its_holders);
	tcase_add_test(found, a_put_before_it_ends);
	tcase_add_test(found, it_is_seen_until_it_ends);
	tcase_add_test(found, it_is_possible_until_it_is_noticed);
	TCase *others = cache_case(suite, "other threads");
	tcase_add_test(others, it_waits_for_no_lock);
	tcase_add_test(others, a_region_that_goes_live_under_the_lock);
	tcase_add_test(others, distrust_makes_nothing_live);
	TCase *edges = cache_case(suite, "at each edge");
	tcase_add_loop_test(edges, a_pin_under_way_loses, 0, every);
	tcase_add_loop_test(edges, a_hit_that_is_compared_loses, 0, every);
	tcase_add_loop_test(edges, what_another_thread_has_pinned_meanwhile, 0, every);
	tcase_add_test(edges, a_get_that_must_not_wait);
	TCase *exports = cache_case(suite, "dma-bufs");
	tcase_add_test(exports, a_dmabuf_of_before_is_not_known);
	tcase_add_test(exports, a_dmabuf_that_is_made_meanwhile);
	tcase_add_test(exports, a_dmabuf_at_each_edge);
	tcase_add_test(exports, a_dmabuf_whose_file_is_looked_at);
	tcase_add_test(exports, a_dmabuf_that_is_looked_up_meanwhile);
	return run_suite(suite);
}
