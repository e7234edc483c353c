/* SPDX-License-Identifier: MIT */
/*
 * Forks by a signal handler at the points that the cache is built with here
 * (cache/base/test_point.h).
 *
 * In one test a thread waits, with the lock held, for another thread's hit, and just then a signal
 * handler of it forks. The child does not have the other thread, so that hit never ends there.
 */
#define _GNU_SOURCE
#include <signal.h>

#include "tests/unit/support/asleep.h"
#include "tests/unit/support/fork_test.h"
#include "cache/base/test_point.h"

static bool hit_is_to_stop, end_is_to_wait;
static struct gate hit_has_stopped, hit_may_go_on, end_looks;
static pid_t child = -1, parent;
static int fork_at = -1; /* a point, or none */

/* As a signal handler that runs just there. */
static void fork_at_point(enum pdn_point point)
{
	if ((int)point != fork_at)
		return;
	fork_at = -1;
	child = fork();
}

void pdn_point(enum pdn_point point, uint64_t addr)
{
	(void)addr;
	fork_at_point(point);
	if (point == PDN_POINT_HIT_ANNOUNCED && hit_is_to_stop) {
		hit_is_to_stop = false;
		gate_open(&hit_has_stopped);
		gate_wait(&hit_may_go_on);
	}
	/* About to look for announced hits, with the lock held. */
	if (point == PDN_POINT_END_BARRIER && end_is_to_wait) {
		end_is_to_wait = false;
		gate_open(&end_looks);
	}
}

static void fork_now(int signal)
{
	(void)signal;
	child = fork();
	gate_open(&hit_may_go_on);
}

/* While this thread waits for the hit, nothing else makes it sleep. */
static void interrupt_the_waiter(void *thread)
{
	gate_wait(&end_looks);
	wait_until_asleep(parent, "S");
	pthread_kill(*(pthread_t *)thread, SIGUSR1);
}

static void hit(void *arg)
{
	pindown_region *region;

	(void)arg;
	get_and_put(AT(0), 1); /* the lock is taken for a thread's first hit */
	hit_is_to_stop = true;
	if (pindown_get(AT(0), 1, 0, &region) == PINDOWN_OK)
		pindown_put(region);
}

START_TEST(a_fork_while_a_free_waits_for_a_hit)
{
	struct worker worker, interrupter;
	pthread_t self = pthread_self();

	parent = getpid();
	gate_init(&hit_has_stopped);
	gate_init(&hit_may_go_on);
	gate_init(&end_looks);
	ck_assert(signal(SIGUSR1, fork_now) != SIG_ERR);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	worker_start(&worker, hit, NULL);
	gate_wait(&hit_has_stopped);
	end_is_to_wait = true;
	worker_start(&interrupter, interrupt_the_waiter, &self);
	watched_free(AT(0));
	if (getpid() != parent) {
		watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
		is_off(NULL);
		_exit(0);
	}
	reap(child);
	worker_join(&interrupter);
	worker_join(&worker);
}
END_TEST

/* ---- a fork at each point ------------------------------------------------------------------- */

/*
 * A signal handler may fork anywhere. Both processes go on from there: the child finds that what it
 * was in the middle of is its parent's, and then is off.
 */
#define MEMORIES 3

static void note_end(const struct pindown_invalidation *what, void *arg)
{
	(void)what;
	++*(unsigned *)arg;
}

/* NULL: this is the child. */
static pindown_region *get(unsigned i)
{
	pindown_region *region = NULL;
	int result = pindown_get(AT(i), 1, 0, &region);

	if (getpid() == parent)
		ck_assert_int_eq(result, PINDOWN_OK);
	return region;
}

static void get_all(pindown_region *regions[MEMORIES])
{
	for (unsigned i = 0; i < MEMORIES; i++)
		regions[i] = get(i);
}

/* Of the regions, those in `held` stay so when all end together; then they are put. */
static void end_with_held(unsigned held)
{
	pindown_region *regions[MEMORIES];

	get_all(regions);
	for (unsigned i = 0; i < MEMORIES; i++)
		if (!(held & 1u << i))
			pindown_put(regions[i]);
	pindown_invalidate(AT(0), MIB(16) * MEMORIES);
	for (unsigned i = 0; i < MEMORIES; i++)
		if (held & 1u << i)
			pindown_put(regions[i]);
}

static void ends_idle(void)
{
	end_with_held(0);
}

static void ends_the_last_held(void)
{
	end_with_held(1u << (MEMORIES - 1));
}

static void ends_the_first_held(void)
{
	end_with_held(1);
}

static void ends_all_held(void)
{
	end_with_held((1u << MEMORIES) - 1);
}

static void flushes(void)
{
	pindown_region *regions[MEMORIES];

	get_all(regions);
	for (unsigned i = 1; i < MEMORIES; i++)
		pindown_put(regions[i]);
	pindown_flush();
	pindown_put(regions[0]);
	pindown_flush();
}

static void frees_one(void)
{
	pindown_put(get(0));
	watched_free(AT(0));
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
}

static void frees_one_held(void)
{
	pindown_region *region = get(0);

	watched_free(AT(0));
	pindown_put(region);
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
}

static void (*const steps[])(void) = {
	ends_idle, ends_the_last_held, ends_the_first_held, ends_all_held,
	flushes,   frees_one,	       frees_one_held};
#define STEPS (sizeof(steps) / sizeof(steps[0]))

static void child_goes_on(void)
{
	alarm(20);
	is_off(NULL);
	_exit(0);
}

/* true: the point was reached. */
static bool forks_at(enum pdn_point point, void (*step)(void))
{
	child = -1;
	fork_at = (int)point;
	step();
	fork_at = -1;
	if (getpid() != parent)
		child_goes_on();
	if (child == -1)
		return false;
	reap(child);
	return true;
}

static void forks_at_all_points(void (*step)(void), unsigned least)
{
	unsigned reached = 0;

	parent = getpid();
	for (unsigned i = 0; i < MEMORIES; i++)
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
	for (unsigned point = 0; point < PDN_POINT_COUNT; point++)
		reached += forks_at((enum pdn_point)point, step);
	ck_assert_uint_ge(reached, least);
}

START_TEST(forks_at_each_point)
{
	forks_at_all_points(steps[_i], 12);
}
END_TEST

START_TEST(forks_at_each_point_with_a_subscriber)
{
	unsigned ends = 0;

	ck_assert_int_ge(pindown_subscribe(note_end, &ends), 0);
	forks_at_all_points(steps[_i], 12);
	ck_assert_uint_ge(ends, PDN_POINT_COUNT);
}
END_TEST

/* The scripted driver's fork handlers would wait for what this thread holds. */
static void begin_with_cache_handlers(void)
{
	cache_begin();
	ck_assert_int_eq(pthread_atfork(pdn_fork_prepare, pdn_fork_parent, pdn_fork_child), 0);
}

int main(void)
{
	Suite *suite = suite_create("cache: fork at points");
	TCase *tc = suite_case(suite, "under the lock", begin_with_cache_handlers, cache_end);

	tcase_add_test(tc, a_fork_while_a_free_waits_for_a_hit);
	tcase_add_loop_test(tc, forks_at_each_point, 0, (int)STEPS);
	tcase_add_loop_test(tc, forks_at_each_point_with_a_subscriber, 0, (int)STEPS);
	return run_suite(suite);
}
