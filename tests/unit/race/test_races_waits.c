/* SPDX-License-Identifier: MIT */
/*
 * How long a thread waits for another one (cache/base/thread/lock.c). The test plays the kernel's
 * clock and the sleeping, so nothing here takes time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#include "cache/base/thread/lock.h"
#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/syscalls.h"

#define MS(n) ((uint64_t)(n)*1000000u)
#define S(n)  MS((n)*1000)

static bool is_played, is_refused;
static uint64_t clock_ns = S(5000), passes_at_once; /* in a sleep; 0: as long as it is to last */
static unsigned sleeps;
static int ends_with = -ETIMEDOUT;

static uint64_t
	late_by; /* another thread looks at the clock so much later, but is first to count */

static void another_looks(void)
{
	uint64_t now = clock_ns;

	clock_ns += late_by;
	late_by = 0;
	pdn_deadline(0);
	clock_ns = now;
}

static long tell_the_time(struct timespec *now)
{
	if (is_refused)
		return -EPERM;
	now->tv_sec = (time_t)(clock_ns / S(1));
	now->tv_nsec = (long)(clock_ns % S(1));
	if (late_by)
		another_looks();
	return 0;
}

static long sleep_at_most(const struct timespec *most)
{
	uint64_t asked = (uint64_t)most->tv_sec * S(1) + (uint64_t)most->tv_nsec;

	sleeps++;
	clock_ns += passes_at_once ? passes_at_once : asked;
	return ends_with;
}

bool play_syscall(long number, const long args[6], long *result)
{
	if (!is_played)
		return false;
	if (number == SYS_clock_gettime)
		*result = tell_the_time((struct timespec *)args[1]);
	else if (number == SYS_futex && args[1] == FUTEX_WAIT_PRIVATE)
		*result = sleep_at_most((const struct timespec *)args[3]);
	else
		return false;
	return true;
}

static bool wait_for(uint64_t ns)
{
	uint64_t deadline;
	bool in_time;

	sleeps = 0;
	is_played = true;
	pdn_deadline(0); /* now is the first look at the clock */
	deadline = pdn_deadline(ns);
	pdn_lock();
	in_time = pdn_wait_for_work(deadline);
	pdn_unlock();
	is_played = false;
	return in_time;
}

START_TEST(a_wait_ends_when_its_time_is_over)
{
	uint64_t begin = clock_ns;

	ck_assert(!wait_for(S(2)));
	ck_assert_uint_eq(clock_ns - begin, S(2));
	ck_assert_uint_gt(sleeps, 1);
	ck_assert(!wait_for(0));
	ck_assert_uint_eq(sleeps, 0);
}
END_TEST

START_TEST(a_wait_ends_when_something_settles)
{
	ends_with = 0;
	ck_assert(wait_for(S(2)));
	ck_assert_uint_eq(sleeps, 1);
}
END_TEST

/* Each sleep is one in which the process was stopped for three seconds. */
START_TEST(time_in_which_the_process_is_stopped_does_not_count)
{
	passes_at_once = S(3);
	ck_assert(!wait_for(S(2)));
	ck_assert_uint_ge(sleeps, 20);
}
END_TEST

START_TEST(a_clock_that_goes_back_ends_no_wait)
{
	uint64_t before;

	is_played = true;
	before = pdn_deadline(0);
	clock_ns -= S(1000);
	ck_assert_uint_eq(pdn_deadline(0), before);
	clock_ns += MS(10);
	ck_assert_uint_eq(pdn_deadline(0), before + MS(10));
	is_played = false;
}
END_TEST

START_TEST(no_time_is_counted_twice)
{
	uint64_t before;

	is_played = true;
	before = pdn_deadline(0);
	clock_ns += MS(10);
	late_by = MS(50);
	ck_assert_uint_eq(pdn_deadline(0), before + MS(60));
	clock_ns += MS(70);
	ck_assert_uint_eq(pdn_deadline(0), before + MS(80));
	is_played = false;
}
END_TEST

START_TEST(without_a_clock_a_wait_ends_all_the_same)
{
	is_refused = true;
	ck_assert(!wait_for(S(2)));
	ck_assert_uint_gt(sleeps, 20);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: how long a wait lasts");
	TCase *tc = cache_case(suite, "waits");

	tcase_add_test(tc, a_wait_ends_when_its_time_is_over);
	tcase_add_test(tc, a_wait_ends_when_something_settles);
	tcase_add_test(tc, time_in_which_the_process_is_stopped_does_not_count);
	tcase_add_test(tc, a_clock_that_goes_back_ends_no_wait);
	tcase_add_test(tc, no_time_is_counted_twice);
	tcase_add_test(tc, without_a_clock_a_wait_ends_all_the_same);
	return run_suite(suite);
}
