/* SPDX-License-Identifier: MIT */
/*
 * How a thread waits for a lock, and whom it wakes. One thread plays all of them: the system call
 * in which it would sleep returns at once. That nobody sleeps for ever is proven by
 * tests/model/lock.pml.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "cache/base/thread/lock.h"
#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/stepping.h"
#include "tests/unit/support/syscalls.h"

static uint32_t *const lock = &pdn_this_process.lock[PDN_LOCK_CACHE];
enum { UNUSED, FREE, TAKEN, AWAITED };

static bool is_played;
static unsigned sleeps, unsaid_sleeps, wakings;

/* In the second sleep the lock becomes free. */
static void sleep_for_the_lock(void)
{
	unsaid_sleeps += *lock != AWAITED;
	if (++sleeps == 1)
		step_to_here();
	else
		*lock = FREE;
}

bool play_syscall(long number, const long args[6], long *result)
{
	if (!is_played || number != SYS_futex || args[0] != (long)lock)
		return false;
	if (args[1] == FUTEX_WAKE_PRIVATE)
		wakings += (unsigned)args[2];
	else
		sleep_for_the_lock();
	*result = 0;
	return true;
}

/* ---- a thread that sleeps twice ---- */

static void take_after_two_sleeps(void)
{
	sleeps = unsaid_sleeps = wakings = 0;
	*lock = TAKEN;
	is_played = true;
	step_from_here();
	pdn_lock();
	ck_assert_uint_eq(*lock, AWAITED); /* others may sleep, too */
	pdn_unlock();
	is_played = false;
	ck_assert_uint_eq(sleeps, 2);
	ck_assert_uint_eq(unsaid_sleeps, 0);
	ck_assert_uint_eq(wakings, 1);
	ck_assert_uint_eq(*lock, FREE);
}

/* Longer than it takes to fall asleep and to be woken: some microseconds each. */
START_TEST(a_thread_spins_before_it_sleeps)
{
	unsigned spun = count_instructions(take_after_two_sleeps);

	printf("instructions before the first sleep: %u\n", spun);
	ck_assert_uint_ge(spun, 3000);
}
END_TEST

START_TEST(nobody_is_woken_for_a_lock_that_nobody_awaits)
{
	wakings = 0;
	is_played = true;
	pdn_lock();
	pdn_unlock();
	is_played = false;
	ck_assert_uint_eq(wakings, 0);
}
END_TEST

/* ---- a lock that is free for a moment, between two steps of another thread's work ---- */

enum { MOMENT = 40 }; /* instructions: some of a look and of the next, and a few between */

static unsigned free_from, left_alone;

static void free_for_a_moment(unsigned instruction)
{
	if (instruction == free_from)
		*lock = FREE;
	if (instruction == free_from + MOMENT) {
		left_alone += *lock == FREE;
		*lock = TAKEN;
	}
}

static void take_now_or_after_two_sleeps(void)
{
	sleeps = 0;
	*lock = TAKEN;
	is_played = true;
	step_from_here();
	pdn_lock();
	step_to_here();
	is_played = false;
	pdn_unlock();
}

/* All moments are before the first sleep, to which it takes some thousand instructions. */
START_TEST(a_thread_that_spins_looks_seldom)
{
	enum { MOMENTS = 40 };

	left_alone = 0;
	for (unsigned i = 0; i < MOMENTS; i++) {
		free_from = 100 + 60 * i;
		look_at_each(take_now_or_after_two_sleeps, free_for_a_moment);
	}
	printf("of %u moments the thread missed %u\n", MOMENTS, left_alone);
	ck_assert_uint_ge(left_alone, MOMENTS / 2);
	ck_assert_uint_lt(left_alone, MOMENTS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: waiting for a lock");
	TCase *tc = cache_case(suite, "waiting");

	tcase_add_test(tc, a_thread_spins_before_it_sleeps);
	tcase_add_test(tc, nobody_is_woken_for_a_lock_that_nobody_awaits);
	tcase_add_test(tc, a_thread_that_spins_looks_seldom);
	return run_stepped_suite(suite);
}
