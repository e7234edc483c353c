/* SPDX-License-Identifier: MIT */
/*
 * Threads that can get no record, as there is no memory for more: their pins and frees are told
 * apart all the same.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/end/work.h"
#include "tests/unit/support/edges_test.h"
#include "tests/unit/support/refuse.h"

/* ---- threads that can get no record ---- */

#define RECORDS_AT_HAND 64 /* of the first block: the others need memory */
static struct gate has_record, may_end, memory_is_short;
static struct rlimit usual;

static void take_record_and_stay(void *arg)
{
	(void)arg;
	ck_assert_ptr_nonnull(pdn_self());
	gate_open(&has_record);
	gate_wait(&may_end);
}

static void sweep_without_record(void *arg)
{
	(void)arg;
	gate_wait(&memory_is_short);
	ck_assert_ptr_null(pdn_self());
	sweep_losing(free_it, FAKE_LINEAR);
}

static void do_nothing(void *arg)
{
	(void)arg;
}

/* No more is mapped from here on. A thread gets the stack of one that has ended. */
static void map_no_more(void)
{
	struct rlimit none;

	ck_assert_int_eq(getrlimit(RLIMIT_AS, &usual), 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = usual.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
}

/* In a thread that gets no record, as all that need no memory are taken. */
static void run_without_record(void (*fn)(void *))
{
	static struct worker stays[RECORDS_AT_HAND - 1];
	struct worker without, ends;

	if (emulator_lacks("limits of address space"))
		return;
	gate_init(&has_record);
	gate_init(&may_end);
	gate_init(&memory_is_short);
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	get_and_put(BASE, 1); /* the tables */
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	for (unsigned i = 0; i < RECORDS_AT_HAND - 1; i++) {
		worker_start(&stays[i], take_record_and_stay, NULL);
		gate_wait(&has_record);
	}
	worker_start(&without, fn, NULL);
	worker_start(&ends, do_nothing, NULL);
	worker_join(&ends);
	map_no_more();
	gate_open(&memory_is_short);
	worker_join(&without);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &usual), 0);
	for (unsigned i = 0; i < RECORDS_AT_HAND - 1; i++)
		gate_open(&may_end);
	for (unsigned i = 0; i < RECORDS_AT_HAND - 1; i++)
		worker_join(&stays[i]);
}

/* Neither the pinning thread nor the one that frees has a record: they are two all the same. */
START_TEST(a_pin_loses_against_a_free_and_no_thread_has_a_record)
{
	run_without_record(sweep_without_record);
}
END_TEST

/* In the child nothing is being freed, also when the free of the parent's has returned there. */
static void fork_in_a_free(void *arg)
{
	pindown_region *region;
	pdn_guard guard;
	pid_t child;
	int status;

	(void)arg;
	gate_wait(&memory_is_short);
	ck_assert_ptr_null(pdn_self());
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	guard = pdn_end_range(BASE + LENGTH, 0);
	child = fork();
	if (child == 0) {
		pdn_fork_child();
		setrlimit(RLIMIT_AS, &usual);
		pdn_ended(guard);
		if (pindown_get(BASE, 1, 0, &region) != PINDOWN_ERR_NO_CUDA)
			_exit(1);
		_exit(pdn_thread_recordless ? 2 : 0);
	}
	pdn_ended(guard);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	get_and_put(BASE, 1);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
}

static bool frees_again;

/* Nothing is known of what it frees. Its end is the end of its frees. */
static void be_cancelled_in_two_frees(void *arg)
{
	(void)arg;
	gate_wait(&memory_is_short);
	ck_assert_ptr_null(pdn_self());
	pdn_end_range(BASE + LENGTH, 0);
	pdn_end_range(BASE + 2 * LENGTH, 0);
	if (frees_again)
		pdn_ended(pdn_end_range(BASE + 3 * LENGTH, 0));
	setrlimit(RLIMIT_AS, &usual); /* for the C library, which loads what it needs */
	pthread_cancel(pthread_self());
	pthread_testcancel();
	ck_abort();
}

START_TEST(a_thread_without_a_record_is_cancelled_in_its_free)
{
	pindown_region *region;

	frees_again = _i;
	run_without_record(be_cancelled_in_two_frees);
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	ck_assert_int_eq(pindown_get(BASE, 1, PINDOWN_GET_NOWAIT, &region), PINDOWN_OK);
	pindown_put(region);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
}
END_TEST

START_TEST(a_child_forked_in_a_free_by_a_thread_without_a_record)
{
	run_without_record(fork_in_a_free);
}
END_TEST

int main(void)
{
	Suite *suite;
	TCase *tc;

	if (!CAN_REFUSE_MEMORY) {
		puts("a sanitizer maps memory all the time");
		return 77;
	}
	suite = suite_create("races: threads without a record");
	tc = cache_case(suite, "against the end of the memory");
	tcase_add_test(tc, a_pin_loses_against_a_free_and_no_thread_has_a_record);
	tcase_add_test(tc, a_child_forked_in_a_free_by_a_thread_without_a_record);
	tcase_add_loop_test(tc, a_thread_without_a_record_is_cancelled_in_its_free, 0, 2);
	return run_suite(suite);
}
