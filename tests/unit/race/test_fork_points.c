/* SPDX-License-Identifier: MIT */
/*
 * A thread waits, with the lock held, for another thread's hit, and just then a signal handler of
 * it forks. The child does not have the other thread, so that hit never ends there. The cache
 * is built with points (cache/base/test_point.h).
 */
#define _GNU_SOURCE
#include <signal.h>

#include "tests/unit/support/asleep.h"
#include "tests/unit/support/fork_test.h"
#include "cache/base/test_point.h"

static bool hit_is_to_stop, end_is_to_wait;
static struct gate hit_has_stopped, hit_may_go_on, end_looks;
static pid_t child = -1, parent;

void pdn_point(enum pdn_point point, uint64_t addr)
{
	(void)addr;
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
		uses_the_cache(NULL);
		_exit(0);
	}
	reap(child);
	worker_join(&interrupter);
	worker_join(&worker);
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
	return run_suite(suite);
}
