/* SPDX-License-Identifier: MIT */
/*
 * The cost of threads: what came and went, however it ended, costs nothing from then on. Counted in
 * records that are walked, and in instructions. Their hold counts: test_scale_holds.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/thread/thread.h"
#include "cache/hit/region.h"
#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/crowd.h"
#include "tests/unit/support/sanitizers.h"
#include "tests/unit/support/stepping.h"
#include "tests/unit/support/syscalls.h"

#define MANY   300u
#define AT_ALL 16u /* records of threads that ended unseen, before anybody looks for them */

static unsigned walked(void)
{
	struct pdn_walk walk = PDN_WALK;
	unsigned count = 0;

	while (pdn_walk_next(&walk))
		count++;
	return count;
}

/* ---- the first thread of all ---- */

static bool first_call_is_to_be_interrupted;
static unsigned gets_in_handler;

static void get_in_handler(int signal)
{
	(void)signal;
	get_and_put(AT(0), 1);
	gets_in_handler++;
}

/* Before the membarrier by which the cache begins, once. */
static void interrupt_first_call(void)
{
	if (!first_call_is_to_be_interrupted)
		return;
	first_call_is_to_be_interrupted = false;
	raise(SIGUSR1);
}

START_TEST(a_signal_in_the_first_call_of_all)
{
	ck_assert(signal(SIGUSR1, get_in_handler) != SIG_ERR);
	fake_alloc(AT(0), MIB(1), FAKE_LINEAR);
	first_call_is_to_be_interrupted = true;
	get_and_put(AT(0), 1);
	ck_assert_uint_eq(gets_in_handler, 1);
}
END_TEST

static void nothing(void)
{
}

static void step_pin_and_flush(void)
{
	step_from_here();
	get_and_put(AT(1), 1);
	pindown_invalidate(AT(1), PAGE);
	step_to_here();
}

START_TEST(records_of_threads_that_ended_are_not_walked)
{
	crowd_begin();
	get_and_put(AT(0), 1);
	crowd_start(0, MANY);
	ck_assert_uint_eq(walked(), 1 + MANY);
	crowd_end(0, MANY);
	ck_assert_uint_eq(walked(), 1);
	ck_assert_uint_eq(stats().hits, MANY);
	crowd_start(0, 7);
	ck_assert_uint_eq(walked(), 8);
	crowd_end(0, 7);
	ck_assert_uint_eq(stats().hits, MANY + 7);
	ck_assert_uint_eq(stats().misses, 1);
}
END_TEST

/* A thread that came late has a record with a high number, which the walk finds at once. */
START_TEST(one_that_lives_on_does_not_keep_the_others)
{
	crowd_begin();
	crowd_start(0, MANY);
	crowd_end(0, MANY - 1);
	ck_assert_uint_eq(walked(), 1 + (pdn_self_tls != NULL));
	crowd_end(MANY - 1, MANY);
}
END_TEST

START_TEST(a_pin_and_an_invalidation_after_many_threads)
{
	unsigned before, after;

	crowd_begin();
	get_and_put(AT(0), 1);
	before = fewest_instructions(step_pin_and_flush);
	crowd_start(0, CROWD);
	crowd_end(0, CROWD);
	crowd_move_orphans();
	after = fewest_instructions(step_pin_and_flush);
	printf("instructions of a pin and its end: %u; after %u threads: %u\n", before, CROWD,
	       after);
	/*
	 * In each walk a word for 2048 records; in each sum one for 64 stripes, and the shared one.
	 */
	ck_assert_uint_le(after, before + before / 12);
}
END_TEST

/* Idle threads that have hit, and have never freed. */
START_TEST(a_pin_and_an_invalidation_beside_many_threads)
{
	const unsigned idle = 63, each = 40;
	unsigned before, beside;

	crowd_begin();
	get_and_put(AT(0), 1);
	crowd_start(0, 1);
	before = fewest_instructions(step_pin_and_flush);
	crowd_start(1, 1 + idle);
	beside = fewest_instructions(step_pin_and_flush);
	printf("instructions of a pin and its end: %u; beside %u more threads: %u\n", before, idle,
	       beside);
	/* Its announcement is looked at, and its hold count. */
	ck_assert_uint_le(beside, before + each * idle);
	crowd_end(0, 1 + idle);
}
END_TEST

/* A thread is looked at for guards from its first one on. */
static void free_and_stay(void *arg)
{
	pdn_ended(pdn_end_range(AT(2), 0));
	crowd_get_and_stay(arg);
}

static unsigned that_free(void)
{
	struct pdn_walk walk = PDN_WALK;
	unsigned count = 0;

	while (pdn_walk_next_that_frees(&walk))
		count++;
	return count;
}

START_TEST(threads_that_never_free_have_no_guards)
{
	crowd_begin();
	get_and_put(AT(0), 1);
	crowd_start(0, 100);
	ck_assert_uint_eq(that_free(), 0);
	for (unsigned i = 100; i < 110; i++) {
		worker_start(&crowd[i], free_and_stay, &crowd_may_go[i]);
		gate_wait(&crowd_here);
	}
	ck_assert_uint_eq(that_free(), 10);
	ck_assert_uint_eq(walked(), 111);
	crowd_end(100, 110);
	ck_assert_uint_eq(that_free(), 0);
	crowd_start(100, 110); /* in records of those */
	ck_assert_uint_eq(that_free(), 0);
	crowd_end(0, 110);
}
END_TEST

/* A thread whose block is being taken off the list, as it is empty, is walked all the same. */
static unsigned walked_by_newcomer;

static void come_and_stay(void *arg)
{
	(void)arg;
	pdn_self();
	gate_open(&crowd_here);
	gate_wait(&crowd_may_go[MANY]);
}

static void exit_in_steps(void *arg)
{
	(void)arg;
	step_from_here();
}

static void exit_to_here(void *arg)
{
	(void)arg;
	step_to_here();
}

static pthread_key_t before_pindowns, behind_pindowns;

static void *come_and_go_in_steps(void *arg)
{
	pdn_self();
	pthread_setspecific(before_pindowns, arg);
	pthread_setspecific(behind_pindowns, arg);
	return NULL;
}

static void leave_a_block_empty(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, come_and_go_in_steps, &crowd_here), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

static struct worker newcomer;

static void come(void)
{
	worker_start(&newcomer, come_and_stay, NULL);
	gate_wait(&crowd_here);
	walked_by_newcomer = walked();
}

static void check_newcomer(void)
{
	if (!walked_by_newcomer) /* the turn that counts instructions has none */
		return;
	ck_assert_uint_eq(walked(), 65); /* this thread, 63 that stay, and the newcomer */
	ck_assert_uint_ge(walked_by_newcomer, 65);
	walked_by_newcomer = 0;
	gate_open(&crowd_may_go[MANY]);
	worker_join(&newcomer);
	ck_assert_uint_eq(walked(), 64);
}

START_TEST(a_block_that_becomes_empty_as_a_thread_comes)
{
	static const struct race race = {nothing, leave_a_block_empty, come, check_newcomer};

	crowd_begin();
	get_and_put(AT(0), 1);
	ck_assert_int_eq(pthread_key_create(&behind_pindowns, exit_to_here), 0);
	crowd_start(0, 63); /* the first block is full */
	run_race("the last of a block against a newcomer", &race, 400);
	crowd_end(0, 63);
}
END_TEST

/* ---- ways to end ---- */

static void *get_and_exit(void *arg)
{
	(void)arg;
	get_and_put(AT(0), 1);
	pthread_exit(NULL);
}

static void *get_and_be_cancelled(void *arg)
{
	(void)arg;
	get_and_put(AT(0), 1);
	pthread_cancel(pthread_self());
	pthread_testcancel();
	return NULL;
}

/* No destructor runs, as for a thread that was made by clone(). */
static void *get_and_vanish(void *arg)
{
	(void)arg;
	get_and_put(AT(0), 1);
	syscall(SYS_exit, 0);
	return NULL;
}

static pthread_key_t key;

/* Runs again until the system gives up: the last time after pindown's own destructor. */
static void get_at_the_end(void *arg)
{
	pthread_setspecific(key, arg);
	get_and_put(AT(0), 1);
}

static void *get_in_destructors(void *arg)
{
	get_and_put(AT(0), 1);
	pthread_setspecific(key, arg);
	return NULL;
}

static unsigned walked_after(void *(*run)(void *))
{
	pthread_t thread;

	crowd_begin();
	get_and_put(AT(0), 1);
	ck_assert_int_eq(pthread_key_create(&key, get_at_the_end), 0);
	for (unsigned i = 0; i < MANY; i++) {
		ck_assert_int_eq(pthread_create(&thread, NULL, run, &key), 0);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
	}
	get_and_put(AT(0), 1);
	ck_assert_uint_ge(stats().hits, MANY + 1);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(stats().kept_regions, 0);
	return walked();
}

START_TEST(threads_that_exit)
{
	ck_assert_uint_eq(walked_after(get_and_exit), 1);
}
END_TEST

START_TEST(threads_that_are_cancelled)
{
	ck_assert_uint_eq(walked_after(get_and_be_cancelled), 1);
}
END_TEST

START_TEST(threads_that_end_without_destructors)
{
	ck_assert_uint_le(walked_after(get_and_vanish), AT_ALL);
}
END_TEST

START_TEST(threads_whose_destructors_use_the_cache)
{
	ck_assert_uint_le(walked_after(get_in_destructors), AT_ALL);
}
END_TEST

START_TEST(threads_that_a_child_does_not_have)
{
	int status;
	pid_t child;

	crowd_begin();
	get_and_put(AT(0), 1);
	crowd_start(0, 100);
	child = fork();
	if (child == 0) {
		struct pindown_stats now;

		pdn_fork_child();
		now = stats();
		_exit(walked() == 1 && now.hits == 0 && now.misses == 0 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	crowd_end(0, 100);
}
END_TEST

/* ---- records that change hands during a walk ---- */

static uint32_t asked_about; /* before the system is asked about this thread, it ends; 0: none */
static struct worker heir;   /* and this one gets its record */
static struct gate heir_is_here, heir_may_go;

static void inherit(void *arg)
{
	get_and_put(AT(0), 1);
	gate_open(&heir_is_here);
	gate_wait(arg);
}

static void wait_until_gone(uint32_t tid)
{
	while (__real_pdn_system_call(SYS_sched_getscheduler, tid, 0, 0, 0, 0, 0) != -ESRCH)
		sched_yield();
}

static void hand_record_over(void)
{
	uint32_t tid = asked_about;

	asked_about = 0;
	crowd_end(0, 1);
	wait_until_gone(tid);
	worker_start(&heir, inherit, &heir_may_go);
	gate_wait(&heir_is_here);
}

bool play_syscall(long number, const long args[6], long *result)
{
	if (number == SYS_membarrier)
		interrupt_first_call();
	(void)result;
	if (number == SYS_sched_getscheduler && asked_about && args[0] == (long)asked_about)
		hand_record_over();
	return false;
}

static bool is_walked(uint32_t tid)
{
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t = pdn_walk_next(&walk);

	while (t && __atomic_load_n(&t->tid, __ATOMIC_RELAXED) != tid)
		t = pdn_walk_next(&walk);
	return t;
}

/* The look for threads that ended unseen must not end the record's next owner. */
START_TEST(a_record_that_is_given_on_during_the_look)
{
	crowd_begin();
	gate_init(&heir_is_here);
	gate_init(&heir_may_go);
	get_and_put(AT(0), 1);
	crowd_start(0, AT_ALL - 1);
	asked_about = (uint32_t)crowd[0].tid;
	crowd_start(AT_ALL - 1, AT_ALL);
	ck_assert_uint_eq(asked_about, 0);
	ck_assert(is_walked((uint32_t)heir.tid));
	ck_assert_uint_eq(walked(), 1 + AT_ALL);
	gate_open(&heir_may_go);
	worker_join(&heir);
	crowd_end(1, AT_ALL);
}
END_TEST

/* A walk while a record is taken for the first time visits each record once, and ends. */
static unsigned attached, walked_meanwhile;

static void attach_and_stay(void *arg)
{
	step_from_here();
	pdn_self();
	step_to_here();
	gate_open(&crowd_here);
	gate_wait(arg);
}

static void attach_stepped(void)
{
	worker_start(&crowd[attached], attach_and_stay, &crowd_may_go[attached]);
	gate_wait(&crowd_here);
	attached++;
}

static void walk(void)
{
	struct pdn_walk walk_now = PDN_WALK;

	walked_meanwhile = 0;
	while (walked_meanwhile <= MANY && pdn_walk_next(&walk_now))
		walked_meanwhile++;
}

static void check_walk(void)
{
	ck_assert_uint_le(walked_meanwhile, 1 + attached);
}

START_TEST(a_walk_while_a_record_is_taken)
{
	static const struct race race = {nothing, attach_stepped, walk, check_walk};

	crowd_begin();
	get_and_put(AT(0), 1);
	run_race("taking a record against a walk", &race, MANY - 8);
	crowd_end(0, attached);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: threads that came and went");
	TCase *tc = cache_case(suite, "records");

	/* Destructors run in the order of their keys: this one's before pindown's. */
	if (pthread_key_create(&before_pindowns, exit_in_steps) != 0)
		return 1;
	if (!UNDER_SANITIZER) /* ThreadSanitizer reports what the handler allocates */
		tcase_add_test(tc, a_signal_in_the_first_call_of_all);
	tcase_add_test(tc, records_of_threads_that_ended_are_not_walked);
	tcase_add_test(tc, one_that_lives_on_does_not_keep_the_others);
	if (CAN_COUNT)
		tcase_add_test(tc, a_pin_and_an_invalidation_after_many_threads);
	if (CAN_COUNT)
		tcase_add_test(tc, a_pin_and_an_invalidation_beside_many_threads);
	tcase_add_test(tc, threads_that_never_free_have_no_guards);
	tcase_add_test(tc, threads_that_exit);
	tcase_add_test(tc, threads_that_are_cancelled);
	if (!UNDER_SANITIZER) {
		tcase_add_test(tc, threads_that_end_without_destructors);
		tcase_add_test(tc, threads_whose_destructors_use_the_cache);
	}
	tcase_add_test(tc, threads_that_a_child_does_not_have);
	tc = cache_case(suite, "records that change hands");
	tcase_add_test(tc, a_record_that_is_given_on_during_the_look);
	if (CAN_STEP)
		tcase_add_test(tc, a_walk_while_a_record_is_taken);
	if (CAN_STEP)
		tcase_add_test(tc, a_block_that_becomes_empty_as_a_thread_comes);
	return run_suite(suite);
}
