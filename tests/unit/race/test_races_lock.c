/* SPDX-License-Identifier: MIT */
/*
 * How few threads are woken for a lock that many want: who says when that the lock is awaited, and
 * who wakes whom. One thread plays all of them: the system call in which it would sleep returns at
 * once. That nobody sleeps for ever is proven by tests/model/lock.pml.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "cache/base/lock.h"
#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/stepping.h"
#include "tests/unit/support/syscalls.h"

static uint32_t *const lock = &pdn_here.lock[PDN_LOCK_CACHE];
static uint32_t *const awaited = &pdn_here.awaited[PDN_LOCK_CACHE];
static uint32_t *const turns = &pdn_here.turns[PDN_LOCK_CACHE];

static bool is_played, steps_before_sleep;
static int error_of_first_sleep;
static unsigned sleeps, unsaid_sleeps;

/* As the thread does that lets go of the lock. */
static void wake(void)
{
	unsaid_sleeps += !*awaited;
	*awaited = false;
	++*turns;
}

/* Steps to the first sleep, or from its end to the second one, in which the lock becomes free. */
static long sleep_for_the_lock(void)
{
	if (++sleeps == 1 || !steps_before_sleep)
		step_to_here();
	if (sleeps == 1) {
		wake();
		if (!steps_before_sleep)
			step_from_here();
		return -error_of_first_sleep;
	}
	wake();
	*lock = 0;
	return 0;
}

bool play_syscall(long number, const long args[6], long *result)
{
	if (!is_played || number != SYS_futex || args[0] != (long)turns ||
	    args[1] != FUTEX_WAIT_PRIVATE)
		return false;
	*result = sleep_for_the_lock();
	return true;
}

/* ---- a thread that sleeps twice ---- */

static void take_after_two_sleeps(void)
{
	bool says_for_others;

	sleeps = unsaid_sleeps = 0;
	*lock = 1;
	is_played = true;
	if (steps_before_sleep)
		step_from_here();
	pdn_lock();
	is_played = false;
	says_for_others = *awaited;
	pdn_unlock();
	ck_assert_uint_eq(sleeps, 2);
	ck_assert_uint_eq(unsaid_sleeps, 0);
	ck_assert(says_for_others);
}

static unsigned looks, unsaid;

static void look(void)
{
	looks++;
	unsaid += !*awaited;
}

static void nothing(void)
{
}

/* Nobody wakes another thread while this one tries to take the lock. */
START_TEST(a_woken_thread_tries_before_it_says_that_the_lock_is_awaited)
{
	static const struct race race = {nothing, take_after_two_sleeps, look, nothing};

	error_of_first_sleep = 0;
	looks = unsaid = 0;
	run_race_in_handler("a woken thread, which tries to take the lock", &race, 100);
	printf("stopped %u times, and it had not said so %u times\n", looks, unsaid);
	ck_assert_uint_ge(looks, 90);
	/* The spins after it has said so, before it sleeps again, are fewer. */
	ck_assert_uint_gt(unsaid * 2, looks);
}
END_TEST

/* Longer than it takes to fall asleep and to be woken: some microseconds each. */
START_TEST(a_thread_spins_before_it_sleeps)
{
	unsigned spun;

	error_of_first_sleep = 0;
	steps_before_sleep = true;
	spun = count_instructions(take_after_two_sleeps);
	printf("instructions before the first sleep: %u\n", spun);
	ck_assert_uint_ge(spun, 3000);
}
END_TEST

/* As many may look at the lock again after each millisecond. */
START_TEST(a_thread_that_looks_again_spins_for_less)
{
	unsigned woken, not_woken;

	error_of_first_sleep = 0;
	woken = count_instructions(take_after_two_sleeps);
	error_of_first_sleep = ETIMEDOUT;
	not_woken = count_instructions(take_after_two_sleeps);
	printf("instructions between two sleeps: %u when woken, %u else\n", woken, not_woken);
	ck_assert_uint_ge(woken, not_woken + 300);
}
END_TEST

/* ---- a lock that is free for a moment, between two steps of another thread's work ---- */

enum { MOMENT = 40 }; /* instructions: some of a look and of the next, and a few between */

static unsigned free_from, left_alone;

static void free_for_a_moment(unsigned instruction)
{
	if (instruction == free_from)
		*lock = 0;
	if (instruction == free_from + MOMENT) {
		left_alone += !*lock;
		*lock = 1;
	}
}

static void take_now_or_after_two_sleeps(void)
{
	sleeps = 0;
	*lock = 1;
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

	error_of_first_sleep = 0;
	steps_before_sleep = true;
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

/* ---- a lock that is taken again at once ---- */

static bool was_taken;
static uint32_t turns_then;
static unsigned left_to_the_next;

static void take_for_others(void)
{
	was_taken = false;
	pdn_lock();
	*awaited = true;
	turns_then = *turns;
}

static void unlock(void)
{
	step_from_here();
	pdn_unlock();
	step_to_here();
}

static void take_again(void)
{
	was_taken = !*lock && *turns == turns_then;
	*lock = *lock || was_taken;
}

/* Whoever takes the lock will see that it is awaited, or somebody has been woken. */
static void check_who_wakes(void)
{
	bool has_woken = *turns != turns_then;

	ck_assert(has_woken || *awaited);
	ck_assert(has_woken || was_taken);
	left_to_the_next += !has_woken;
	*lock = 0;
	*awaited = false;
}

START_TEST(a_lock_that_is_taken_again_is_left_to_the_next)
{
	static const struct race race = {take_for_others, unlock, take_again, check_who_wakes};

	left_to_the_next = 0;
	run_race_in_handler("an unlocking against the next taking", &race, 200);
	printf("nobody was woken, as the lock was taken again: %u times\n", left_to_the_next);
	ck_assert_uint_ge(left_to_the_next, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: wakings for a lock");
	TCase *tc = cache_case(suite, "wakings");

	tcase_add_test(tc, a_woken_thread_tries_before_it_says_that_the_lock_is_awaited);
	tcase_add_test(tc, a_thread_spins_before_it_sleeps);
	tcase_add_test(tc, a_thread_that_looks_again_spins_for_less);
	tcase_add_test(tc, a_thread_that_spins_looks_seldom);
	tcase_add_test(tc, a_lock_that_is_taken_again_is_left_to_the_next);
	return run_stepped_suite(suite);
}
