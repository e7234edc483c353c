/* SPDX-License-Identifier: MIT */
/*
 * The driver is not asked about memory while another thread frees it: libcuda may crash then (see
 * "What pindown asks the driver" in docs/internals/how-it-works.md). A free waits for answers, and
 * a question for a free that is under way.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache/base/thread/barrier.h"
#include "cache/driver/driver.h"
#include "cache/dmabuf/foreign_dmabufs.h"
#include "cache/hook_events.h"
#include "cache/end/work.h"
#include "cache/trust/recheck.h"
#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/freer.h"

/* ---- a free waits for answers -------------------------------------------------------------- */

static int which;
#define DESTROYS_CONTEXT 3 /* of `ends` */

/*
 * At an edge of a question: the free must not reach the driver before the question is over. Its
 * wait has an end, which cache_case() sets so far away that a slow machine doesn't reach it.
 */
static void free_meanwhile(void *arg)
{
	(void)arg;
	freer_starts(ends[which], AT(0), false);
	worker_wait_idle(&freer.worker);
	ck_assert(!__atomic_load_n(&freer.is_in_driver, __ATOMIC_SEQ_CST));
}

static void sweep(void (*ask)(void))
{
	for (unsigned edge = 0;; edge++) {
		bool met;

		fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
		fake_at_edge(FAKE_QUERY, edge, free_meanwhile, NULL);
		ask();
		met = fake_edge_met();
		fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
		if (met) {
			freer_ends();
		} else {
			ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
			ck_assert_uint_ge(edge, 2);
			return;
		}
		ck_assert_uint_eq(stats().regions, 0);
	}
}

static void get_it(void)
{
	pindown_region *region = NULL;

	if (pindown_get(AT(0) + PAGE, 1, 0, &region) == PINDOWN_OK)
		pindown_put(region);
}

START_TEST(an_end_waits_for_the_answers_to_a_pin)
{
	which = _i;
	sweep(get_it);
}
END_TEST

/* The program frees its memory as it likes, while pindown looks at all regions. */
START_TEST(an_end_waits_for_the_answers_to_a_recheck)
{
	which = _i;
	for (unsigned edge = 0; edge < 2; edge++) {
		fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
		get_and_put(AT(0), LENGTH);
		fake_at_edge(FAKE_QUERY, edge, free_meanwhile, NULL);
		pdn_recheck(NULL);
		ck_assert(fake_edge_met());
		freer_ends();
		ck_assert_uint_eq(stats().regions, 0);
	}
}
END_TEST

static int a_file(void)
{
	int fd = memfd_create("buffer", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* The program exports it, and registers it by that descriptor. */
static void export_it(void)
{
	struct pdn_exported part;
	int fd = a_file();

	pdn_exported(AT(0), LENGTH, 0, fd, pdn_export_begins(AT(0), LENGTH), NULL);
	if (pdn_export_find(fd, 0, LENGTH, &part))
		pdn_export_is_still_there(&part);
	close(fd);
}

START_TEST(an_end_waits_for_the_answers_about_an_export)
{
	which = _i;
	sweep(export_it);
}
END_TEST

/* Two mappings, with one region over both, of which each hit is checked. */
static void map_two(void)
{
	fake_reserved = AT(0);
	fake_reserved_size = 2 * LENGTH;
	pdn_is_mapped = fake_is_mapped;
	fake_alloc(AT(0), LENGTH, FAKE_VMM);
	fake_alloc(AT(1), LENGTH, FAKE_VMM);
	pdn_volatile(AT(0), 2 * LENGTH);
	get_and_put(AT(0), 2 * LENGTH);
}

static void unmap_the_second(void *arg)
{
	(void)arg;
	freer_starts(unmap_it, AT(1), false);
	worker_wait_idle(&freer.worker);
	ck_assert(!__atomic_load_n(&freer.is_in_driver, __ATOMIC_SEQ_CST));
}

/* A hit in the one mapping is compared with the other one, too, which the program may unmap. */
START_TEST(an_unmap_waits_for_the_answers_to_a_hit_beside_it)
{
	pindown_region *region;

	map_two();
	fake_at_edge(FAKE_QUERY, (unsigned)_i, unmap_the_second, NULL);
	if (pindown_get(AT(0), LENGTH, 0, &region) == PINDOWN_OK)
		pindown_put(region);
	ck_assert(fake_edge_met());
	freer_ends();
	get_and_put(AT(0), LENGTH);
	ck_assert_int_eq(watched_unmap(AT(0), LENGTH), FAKE_SUCCESS);
}
END_TEST

/* Each hit of it is compared, outside of any flight: the program may free what it looks up. */
START_TEST(an_end_waits_for_the_answer_to_a_hit)
{
	pindown_region *region;

	which = _i;
	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	pdn_volatile(AT(0), LENGTH);
	get_and_put(AT(0), LENGTH);
	fake_at_edge(FAKE_QUERY, 0, free_meanwhile, NULL);
	if (pindown_get(AT(0) + PAGE, 1, 0, &region) == PINDOWN_OK)
		pindown_put(region);
	ck_assert(fake_edge_met());
	freer_ends();
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

/* Memory of no context, as the region is, whose place memory of a context has taken unseen. */
static void is_replaced_unseen(void)
{
	ck_assert_int_eq(fake_free_unseen(AT(0)), FAKE_SUCCESS);
	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
}

static void cache_what_is_replaced(void)
{
	fake_alloc(AT(0), LENGTH, FAKE_POOL);
	pdn_volatile(AT(0), LENGTH);
	get_and_put(AT(0), LENGTH);
	is_replaced_unseen();
}

/* The end of the context does not find the region, which is of no context. */
START_TEST(an_end_of_a_context_waits_for_the_answer_to_any_hit)
{
	pindown_region *region;

	which = DESTROYS_CONTEXT;
	cache_what_is_replaced();
	fake_at_edge(FAKE_QUERY, 0, free_meanwhile, NULL);
	if (pindown_get(AT(0) + PAGE, 1, 0, &region) == PINDOWN_OK)
		pindown_put(region);
	ck_assert(fake_edge_met());
	freer_ends();
}
END_TEST

static void replace_and_free_meanwhile(void *arg)
{
	is_replaced_unseen();
	free_meanwhile(arg);
}

/* Between two questions of a pin the memory may be replaced, by memory of another context. */
START_TEST(an_end_of_a_context_waits_for_the_answers_to_any_pin)
{
	bool met = true;

	which = DESTROYS_CONTEXT;
	for (unsigned edge = 0; met; edge++) {
		fake_alloc(AT(0), LENGTH, FAKE_POOL);
		pdn_volatile(AT(0), LENGTH);
		fake_at_edge(FAKE_QUERY, edge, replace_and_free_meanwhile, NULL);
		get_it();
		met = fake_edge_met();
		fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
		if (met)
			freer_ends();
		else
			ck_assert_uint_ge(edge, 4);
	}
}
END_TEST

static void get_without_waiting(void *result)
{
	*(int *)result = pindown_get(AT(1), 1, PINDOWN_GET_NOWAIT, &(pindown_region *){NULL});
}

/* In the middle of a question: a free begins, and waits; behind it another question begins. */
static void free_and_ask_meanwhile(void *result)
{
	struct worker other;

	free_meanwhile(NULL);
	fake_watch_questions(AT(0), AT(2));
	worker_start(&other, get_without_waiting, result);
	worker_join(&other);
	ck_assert_uint_eq(fake_watched_questions(), 0);
	ck_assert(!__atomic_load_n(&freer.is_in_driver, __ATOMIC_SEQ_CST));
}

/*
 * Threads that get memory all the time must not keep another one from freeing: a question that
 * begins when the guard is up is not asked.
 */
START_TEST(a_free_does_not_wait_for_questions_that_begin_after_it)
{
	int result = PINDOWN_OK;

	which = 0;
	fake_alloc(AT(0), 2 * LENGTH, FAKE_LINEAR);
	fake_at_edge(FAKE_QUERY, 0, free_and_ask_meanwhile, &result);
	get_it();
	ck_assert_int_eq(result, PINDOWN_ERR_WOULD_WAIT);
	freer_ends();
}
END_TEST

/* ---- a question waits for a free ----------------------------------------------------------- */

START_TEST(a_pin_waits_for_the_end_under_way_of_its_memory)
{
	pindown_region *region = NULL;

	pdn_race_wait_ns = 50000000;
	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	freer_stops_in_driver(_i == 0 ? free_it : _i == 1 ? free_in_order : unmap_it, AT(0));
	fake_watch_questions(AT(0), AT(1));
	ck_assert_int_eq(pindown_get(AT(0), LENGTH, 0, &region), PINDOWN_ERR_TIMED_OUT);
	ck_assert_int_eq(pindown_get(AT(0), 1, PINDOWN_GET_NOWAIT, &region),
			 PINDOWN_ERR_WOULD_WAIT);
	ck_assert_uint_eq(fake_watched_questions(), 0);
	freer_ends();
	ck_assert_int_eq(pindown_get(AT(0), LENGTH, 0, &region), PINDOWN_ERR_NOT_DEVICE);
}
END_TEST

static void get_behind(void *arg)
{
	*(int *)arg = pindown_get(AT(0) + PAGE, 1, 0, &(pindown_region *){NULL});
}

/* From the first flight on a free says how far its memory reaches; before, it may be anything. */
static void begin_a_flight(void)
{
	must_refuse(AT(9), 1, PINDOWN_ERR_NOT_DEVICE);
}

/* A thread's first free of all asks all the same. */
static pdn_guard free_two(uint64_t base)
{
	pdn_ended(pdn_end_range(AT(9), 0));
	return pdn_end_range(base, 0);
}

/* However long it takes. */
START_TEST(a_pin_waits_for_a_free_of_what_begins_before_it)
{
	struct worker getter;
	int result = 1;

	if (_i)
		begin_a_flight();
	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	freer_stops_in_driver(free_two, AT(0));
	fake_watch_questions(AT(0), AT(1));
	worker_start(&getter, get_behind, &result);
	worker_wait_idle(&getter);
	ck_assert(!worker_is_done(&getter));
	ck_assert_uint_eq(fake_watched_questions(), 0);
	freer_ends();
	worker_join(&getter);
	ck_assert_int_eq(result, PINDOWN_ERR_NOT_DEVICE);
}
END_TEST

/* It may last for as long as the device works. */
START_TEST(a_pin_does_not_wait_for_ends_elsewhere)
{
	const unsigned kind = (unsigned)_i / 2, at = _i % 2 ? 2 : 0;
	pindown_region *region;

	begin_a_flight();
	fake_alloc(AT(1), LENGTH, FAKE_LINEAR);
	fake_alloc(AT(at), LENGTH, kind == 2 ? FAKE_VMM : FAKE_LINEAR);
	freer_stops_in_driver(ends[kind], AT(at));
	ck_assert_int_eq(pindown_get(AT(1), LENGTH, PINDOWN_GET_NOWAIT, &region), PINDOWN_OK);
	pindown_put(region);
	ck_assert_uint_eq(stats().lost_races, 0);
	freer_ends();
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
}
END_TEST

START_TEST(a_first_pin_waits_for_frees_before_it)
{
	pindown_region *region;

	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	fake_alloc(AT(1), LENGTH, FAKE_LINEAR);
	freer_stops_in_driver(free_two, AT(0));
	ck_assert_int_eq(pindown_get(AT(1), LENGTH, PINDOWN_GET_NOWAIT, &region),
			 PINDOWN_ERR_WOULD_WAIT);
	freer_ends();
	get_and_put(AT(1), LENGTH);
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
}
END_TEST

/* ---- a free of memory that a region is over ------------------------------------------------ */

/* A region whose hits are checked may be of memory that has ended; what is there may be larger. */
START_TEST(a_pin_waits_for_a_free_of_a_region_that_is_checked)
{
	struct worker getter;
	int result = 1;

	if (_i)
		pdn_distrust("a test says so");
	else
		pdn_volatile(AT(0), LENGTH);
	fake_alloc(AT(0), PAGE, FAKE_LINEAR);
	get_and_put(AT(0), PAGE);
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS); /* unseen, as expected there */
	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	freer_stops_in_driver(free_it, AT(0));
	fake_watch_questions(AT(0), AT(1));
	worker_start(&getter, get_behind, &result);
	worker_wait_idle(&getter);
	ck_assert(!worker_is_done(&getter));
	ck_assert_uint_eq(fake_watched_questions(), 0);
	freer_ends();
	worker_join(&getter);
	ck_assert_int_eq(result, PINDOWN_ERR_NOT_DEVICE);
}
END_TEST

/* Its own memory was of no context; what has replaced it ends with one. */
START_TEST(a_hit_is_not_compared_while_a_context_ends)
{
	int result = PINDOWN_OK;

	cache_what_is_replaced();
	freer_stops_in_driver(destroy_its_context, AT(0));
	fake_watch_questions(AT(0), AT(1));
	result = pindown_get(AT(0), 1, PINDOWN_GET_NOWAIT, &(pindown_region *){NULL});
	ck_assert_int_eq(result, PINDOWN_ERR_WOULD_WAIT);
	ck_assert_uint_eq(fake_watched_questions(), 0);
	freer_ends();
}
END_TEST

/* Nor does such a free wait for the answers about memory behind it. */
static void free_before_meanwhile(void *arg)
{
	(void)arg;
	freer_starts(free_it, AT(0), false);
	worker_wait_idle(&freer.worker);
	ck_assert(__atomic_load_n(&freer.is_in_driver, __ATOMIC_SEQ_CST));
}

START_TEST(a_free_of_a_region_does_not_wait_for_answers_about_what_is_behind_it)
{
	restore_wait_limit();
	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	fake_alloc(AT(1), LENGTH, FAKE_LINEAR);
	get_and_put(AT(0), LENGTH);
	fake_at_edge(FAKE_QUERY, 1, free_before_meanwhile, NULL);
	get_and_put(AT(1), LENGTH);
	ck_assert(fake_edge_met());
	freer_ends();
	ck_assert_uint_eq(stats().regions, 1);
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
}
END_TEST

START_TEST(an_export_is_not_asked_about_while_it_ends)
{
	struct pdn_exported part;
	int fd = a_file();

	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	pdn_exported(AT(0), LENGTH, 0, fd, pdn_export_begins(AT(0), LENGTH), NULL);
	ck_assert(pdn_export_find(fd, 0, LENGTH, &part));
	ck_assert(pdn_export_is_still_there(&part));
	freer_stops_in_driver(ends[_i], AT(0));
	fake_watch_questions(AT(0), AT(1));
	ck_assert(!pdn_export_is_still_there(&part));
	ck_assert_uint_eq(fake_watched_questions(), 0);
	freer_ends();
	ck_assert(!pdn_export_find(fd, 0, LENGTH, &part));
	close(fd);
}
END_TEST

static bool is_open(void)
{
	return pdn_buffer_is_still_there(AT(0), fake_id(AT(0)));
}

static pdn_guard end_its_device(uint64_t base)
{
	(void)base;
	return pdn_end_device(0);
}

/* It is memory of another process: which context it is open in is not known. */
START_TEST(open_memory_is_not_asked_about_while_it_ends)
{
	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	ck_assert(is_open());
	freer_stops_in_driver(_i < ENDS ? ends[_i] : end_its_device, AT(0));
	fake_watch_questions(AT(0), AT(1));
	ck_assert(!is_open());
	ck_assert_uint_eq(fake_watched_questions(), 0);
	freer_ends();
	ck_assert(!is_open());
}
END_TEST

/* Nothing need have been pinned for an end in another thread to be seen: a plain store. */
START_TEST(a_first_question_has_a_barrier)
{
	ck_assert_ptr_null(pdn_self_tls);
	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	errno = EDOM;
	ck_assert(_i ? is_open() : pdn_export_begins(AT(0), LENGTH) != 0);
	ck_assert_int_eq(errno, EDOM);
	ck_assert(pdn_barrier_is_registered());
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
}
END_TEST

/* Of an export whose memory was not known when it was made, nothing can be known later. */
START_TEST(an_export_of_unknown_memory_is_not_asked_about)
{
	struct pdn_exported part;
	int fd = a_file();

	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	pdn_exported(AT(0), LENGTH, 0, fd, 0, NULL);
	fake_watch_questions(AT(0), AT(1));
	ck_assert(!pdn_export_find(fd, 0, LENGTH, &part));
	ck_assert_uint_eq(fake_watched_questions(), 0);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	close(fd);
}
END_TEST

/* Which memory it is remains unknown. */
START_TEST(what_ends_is_not_asked_about_for_an_export)
{
	pdn_race_wait_ns = 50000000;
	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	freer_stops_in_driver(_i == 0 ? free_it : _i == 1 ? free_in_order : unmap_it, AT(0));
	fake_watch_questions(AT(0), AT(1));
	ck_assert_uint_eq(pdn_export_begins(AT(0), LENGTH), 0);
	ck_assert_uint_eq(fake_watched_questions(), 0);
	freer_ends();
}
END_TEST

/* Everything ends, with this memory or not: for longer than an export should last. */
START_TEST(an_export_does_not_wait_for_ever)
{
	begin_a_flight();
	pdn_race_wait_ns = 50000000;
	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	fake_alloc(AT(1), LENGTH, FAKE_LINEAR);
	freer_stops_in_driver(_i ? end_everything : free_it, AT(0));
	ck_assert_int_eq(pdn_export_begins(AT(1), LENGTH) == 0, _i);
	freer_ends();
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
}
END_TEST

/*
 * A pin that takes in the mappings beside its request asks about memory that the program does not
 * get, and may be unmapping just now.
 */
START_TEST(a_pin_does_not_reach_for_what_is_being_unmapped)
{
	bool is_unmapped = _i;

	fake_reserved = AT(0);
	fake_reserved_size = 4 * LENGTH;
	fake_alloc(AT(0), 2 * LENGTH, FAKE_VMM);
	fake_alloc(AT(2), LENGTH, FAKE_VMM);
	fake_alloc(AT(3), LENGTH, FAKE_VMM);
	get_and_put(AT(0), LENGTH);
	fake_watch_questions(AT(3), AT(4));
	if (is_unmapped)
		freer_stops_in_driver(unmap_it, AT(3));
	get_and_put(AT(1), 2 * LENGTH);
	/* Without the unmap it does reach for it. */
	ck_assert_int_eq(fake_watched_questions() == 0, is_unmapped);
	ck_assert_int_eq(is_cached(AT(3), 1), !is_unmapped);
	ck_assert(is_cached(AT(1), 2 * LENGTH));
	if (is_unmapped)
		freer_ends();
	else
		ck_assert_int_eq(watched_unmap(AT(3), LENGTH), FAKE_SUCCESS);
	ck_assert_int_eq(watched_unmap(AT(2), LENGTH), FAKE_SUCCESS);
	ck_assert_int_eq(watched_unmap(AT(0), 2 * LENGTH), FAKE_SUCCESS);
}
END_TEST

/* Its own guard does not keep a thread from asking: its call is not in the driver. */
START_TEST(a_thread_that_frees_may_ask)
{
	pindown_region *region;
	pdn_guard guard;

	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	fake_alloc(AT(1), LENGTH, FAKE_LINEAR);
	guard = pdn_end_range(AT(0), 0);
	ck_assert_int_eq(pindown_get(AT(1), LENGTH, PINDOWN_GET_NOWAIT, &region), PINDOWN_OK);
	pindown_put(region);
	ck_assert_int_eq(pindown_get(AT(0), LENGTH, 0, &region), PINDOWN_ERR_BUSY);
	fake_free(AT(0));
	pdn_ended(guard);
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
}
END_TEST

/* Its own guard must not hide that of another thread, which is in the driver with that memory. */
START_TEST(a_thread_that_frees_does_not_ask_about_what_another_frees)
{
	const struct pdn_scope all = {.kind = PDN_GUARD_ALL};
	uint64_t id;
	pdn_guard own;

	fake_alloc(AT(0), LENGTH, FAKE_LINEAR);
	id = fake_id(AT(0));
	own = pdn_guard_up(&all);
	ck_assert_int_eq(pdn_compare_memory(AT(0), AT(1), id, 0), PDN_TRUE);
	freer_stops_in_driver(free_it, AT(0));
	fake_watch_questions(AT(0), AT(1));
	ck_assert_int_eq(pdn_compare_memory(AT(0), AT(1), id, 0), PDN_UNKNOWN);
	ck_assert_uint_eq(fake_watched_questions(), 0);
	freer_ends();
	ck_assert_int_eq(pdn_compare_memory(AT(0), AT(1), id, 0), PDN_FALSE);
	pdn_ended(own);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: questions");
	TCase *tc = cache_case(suite, "an end waits for answers");

	tcase_add_loop_test(tc, an_end_waits_for_the_answers_to_a_pin, 0, ENDS);
	tcase_add_loop_test(tc, an_end_waits_for_the_answers_to_a_recheck, 0, ENDS);
	tcase_add_loop_test(tc, an_end_waits_for_the_answers_about_an_export, 0, ENDS);
	tcase_add_loop_test(tc, an_unmap_waits_for_the_answers_to_a_hit_beside_it, 0, 6);
	tcase_add_loop_test(tc, an_end_waits_for_the_answer_to_a_hit, 0, ENDS);
	tcase_add_test(tc, an_end_of_a_context_waits_for_the_answer_to_any_hit);
	tcase_add_test(tc, an_end_of_a_context_waits_for_the_answers_to_any_pin);
	tcase_add_test(tc, a_free_does_not_wait_for_questions_that_begin_after_it);
	tc = cache_case(suite, "a question waits for an end");
	tcase_add_loop_test(tc, a_pin_waits_for_the_end_under_way_of_its_memory, 0, 3);
	tcase_add_loop_test(tc, a_pin_waits_for_a_free_of_what_begins_before_it, 0, 2);
	tcase_add_loop_test(tc, a_pin_does_not_wait_for_ends_elsewhere, 0, 6);
	tcase_add_test(tc, a_first_pin_waits_for_frees_before_it);
	tcase_add_loop_test(tc, a_pin_waits_for_a_free_of_a_region_that_is_checked, 0, 2);
	tcase_add_test(tc, a_hit_is_not_compared_while_a_context_ends);
	tcase_add_test(tc, a_free_of_a_region_does_not_wait_for_answers_about_what_is_behind_it);
	tcase_add_loop_test(tc, an_export_is_not_asked_about_while_it_ends, 0, ENDS);
	tcase_add_loop_test(tc, open_memory_is_not_asked_about_while_it_ends, 0, ENDS + 1);
	tcase_add_loop_test(tc, a_first_question_has_a_barrier, 0, 2);
	tcase_add_test(tc, an_export_of_unknown_memory_is_not_asked_about);
	tcase_add_loop_test(tc, what_ends_is_not_asked_about_for_an_export, 0, 3);
	tcase_add_loop_test(tc, an_export_does_not_wait_for_ever, 0, 2);
	tcase_add_loop_test(tc, a_pin_does_not_reach_for_what_is_being_unmapped, 0, 2);
	tcase_add_test(tc, a_thread_that_frees_may_ask);
	tcase_add_test(tc, a_thread_that_frees_does_not_ask_about_what_another_frees);
	return run_suite(suite);
}
