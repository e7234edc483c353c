/* SPDX-License-Identifier: MIT */
/*
 * fork in a signal handler, at each single instruction of a get, a put, a free and so on. The
 * handler returns in the parent and in the child, and both continue the interrupted call: the
 * parent as if nothing had happened, the child with a cache that is off. See stepping.h.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "cache/base/thread/lock.h"
#include "cache/base/thread/thread.h"
#include "tests/unit/support/fork_test.h"
#include "tests/unit/support/objects_test.h"
#include "tests/unit/support/refuse.h"
#include "tests/unit/support/stepping.h"

/* when there are more instructions, only this many are stopped at; or as many as STEP_TURNS says */
#define TURNS 60

static pid_t child, parent;
static pindown_region *region;
static pindown_object *object;
static int result;
static uint64_t parents_id;

/* ---- ways to fork ---- */

static pid_t by_fork(void)
{
	return fork();
}

/* It runs no handlers; hook/ notifies the child. */
static pid_t by_underscore_fork(void)
{
	pid_t pid = _Fork();

	if (pid == 0)
		pdn_fork_child();
	return pid;
}

/* No part of pindown is notified. */
static pid_t by_clone(void)
{
	return (pid_t)syscall(SYS_clone, 17 /* SIGCHLD */, NULL, NULL, NULL, NULL);
}

static pid_t (*fork_somehow)(void);

static void fork_in_handler(void)
{
	child = fork_somehow();
}

/* ---- the interrupted calls ---- */

static void prepare_memory(void)
{
	child = -1;
	result = PINDOWN_OK;
	region = NULL;
	object = NULL;
	pindown_flush();
	fake_free(AT(0));
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	parents_id = fake_id(AT(0));
}

static void prepare_a_region(void)
{
	prepare_memory();
	get_and_put(AT(0), 1);
}

static void prepare_a_held_region(void)
{
	prepare_memory();
	region = must_get(AT(0), 1);
}

static void prepare_an_ended_region(void)
{
	prepare_a_held_region();
	watched_free(AT(0));
}

static void prepare_an_object(void)
{
	prepare_memory();
	attach_and_detach(consumer, AT(0), KEY(1, 1));
}

static void prepare_a_held_object(void)
{
	prepare_memory();
	ck_assert_int_eq(pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object),
			 PINDOWN_OK);
}

static void stepped_get(void)
{
	step_from_here();
	result = pindown_get(AT(0), 1, 0, &region);
	step_to_here();
}

static void stepped_put(void)
{
	step_from_here();
	pindown_put(region);
	step_to_here();
	region = NULL;
}

static void stepped_free(void)
{
	step_from_here();
	pdn_guard guard = pdn_end_range(AT(0), 0);
	step_to_here();
	fake_free(AT(0));
	pdn_ended(guard);
}

static void stepped_flush(void)
{
	step_from_here();
	pindown_flush();
	step_to_here();
}

static void stepped_attach(void)
{
	step_from_here();
	result = pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object);
	step_to_here();
}

static void stepped_end_of_owner(void)
{
	step_from_here();
	pindown_end_owner(consumer, 1);
	step_to_here();
}

/* ---- what happens to them ---- */

/* A get may have been at its end already: then its region is the parent's. No later get works. */
static void go_on_in_child(void)
{
	if (result == PINDOWN_OK && region) {
		pdn_lock(), pdn_unlock(); /* by whichever way, it finds out here at the latest */
		EXPECT(!pindown_region_is_live(region));
		pindown_put(region);
	}
	if (result == PINDOWN_OK && object)
		pindown_detach(object);
	EXPECT(result == PINDOWN_OK || result == PINDOWN_ERR_NO_CUDA ||
	       result == PINDOWN_ERR_BUSY || result == PINDOWN_ERR_NOT_DEVICE);
	EXPECT(pindown_flush() == 0);
	EXPECT(fake_descriptors_here() == 0);
	EXPECT(!is_cached(AT(0), 1));
	watched_free(AT(0));
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	is_off(NULL);
	EXPECT(pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object) ==
	       PINDOWN_ERR_NO_CUDA);
	_exit(0);
}

static void both_go_on(void)
{
	if (getpid() != parent)
		go_on_in_child();
	if (child > 0)
		reap(child);
	if (region)
		pindown_put(region);
	if (object)
		pindown_detach(object);
	ck_assert_int_eq(result, PINDOWN_OK);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	assert_books_balance();
}

static void run_forks(const char *name, void (*prepare)(void), void (*stepped)(void))
{
	static const struct {
		const char *name;
		pid_t (*fork)(void);
	} ways[] = {{"fork", by_fork}, {"_Fork", by_underscore_fork}, {"clone", by_clone}};
	const struct race race = {prepare, stepped, fork_in_handler, both_go_on};

	parent = getpid();
	for (unsigned i = 0; i < 3; i++) {
		printf("%s, ", ways[i].name);
		fork_somehow = ways[i].fork;
		run_race_in_handler(name, &race, TURNS);
	}
	pindown_flush();
}

START_TEST(in_a_pin)
{
	run_forks("in a pin", prepare_memory, stepped_get);
}
END_TEST

START_TEST(in_a_hit)
{
	run_forks("in a hit", prepare_a_region, stepped_get);
}
END_TEST

START_TEST(in_a_put)
{
	run_forks("in a put", prepare_a_held_region, stepped_put);
}
END_TEST

START_TEST(in_the_last_put)
{
	run_forks("in the last put", prepare_an_ended_region, stepped_put);
}
END_TEST

START_TEST(in_a_free)
{
	run_forks("in a free", prepare_a_region, stepped_free);
}
END_TEST

START_TEST(in_a_free_of_held_memory)
{
	run_forks("in a free of held memory", prepare_a_held_region, stepped_free);
}
END_TEST

START_TEST(in_a_free_under_a_held_object)
{
	run_forks("in a free under a held object", prepare_a_held_object, stepped_free);
}
END_TEST

START_TEST(in_a_flush)
{
	run_forks("in a flush", prepare_a_region, stepped_flush);
}
END_TEST

START_TEST(in_an_attach)
{
	run_forks("in an attach", prepare_memory, stepped_attach);
}
END_TEST

START_TEST(in_an_owners_end)
{
	run_forks("in an owner's end", prepare_an_object, stepped_end_of_owner);
}
END_TEST

/* ---- while a thread's record changes hands ---- */

static pthread_key_t before_pindowns, behind_pindowns;
static const void *stepped_record;

static unsigned records(void)
{
	struct pdn_walk walk = PDN_WALK;
	unsigned count = 0;

	while (pdn_walk_next(&walk))
		count++;
	return count;
}

static void *take_a_record(void *arg)
{
	const void *mine = pdn_self();

	(void)arg;
	EXPECT(mine && mine != stepped_record);
	EXPECT(records() == 1u + (stepped_record != NULL));
	return NULL;
}

/* A record of this thread's, which no other thread is given; or none. */
static void check_records_in_child(void)
{
	pthread_t thread;

	if (getpid() == parent)
		return;
	stepped_record = pdn_self_tls;
	EXPECT(records() == (stepped_record != NULL));
	EXPECT(pthread_create(&thread, NULL, take_a_record, NULL) == 0);
	EXPECT(pthread_join(thread, NULL) == 0);
	EXPECT(records() == (stepped_record != NULL));
	EXPECT(stats().hits == 0);
	_exit(0);
}

static void fork_in_another(int signal)
{
	(void)signal;
	child = fork_somehow();
	if (child == 0)
		pdn_lock(), pdn_unlock(); /* by whichever way, it begins again here */
}

/* A signal comes at each instruction; the trap itself can't be held back. */
static void raise_signal(void)
{
	pthread_kill(pthread_self(), SIGUSR1);
}

static void *begin_in_steps(void *arg)
{
	(void)arg;
	step_from_here();
	pdn_self();
	step_to_here();
	check_records_in_child();
	return NULL;
}

static void exit_from_here(void *arg)
{
	(void)arg;
	step_from_here();
}

static void exit_to_here(void *arg)
{
	(void)arg;
	step_to_here();
	check_records_in_child();
}

static void *exit_in_steps(void *arg)
{
	get_and_put(AT(0), 1);
	pthread_setspecific(before_pindowns, arg);
	pthread_setspecific(behind_pindowns, arg);
	return NULL;
}

/* No assertion meanwhile: it takes a lock of Check's, for which a child forked then would wait. */
static void run_thread(void *(*main_of_it)(void *))
{
	pthread_t thread;
	int error = pthread_create(&thread, NULL, main_of_it, &behind_pindowns);

	if (!error)
		error = pthread_join(thread, NULL);
	ck_assert_int_eq(error, 0);
}

static void stepped_beginning(void)
{
	run_thread(begin_in_steps);
}

static void stepped_exit(void)
{
	run_thread(exit_in_steps);
}

static void parent_is_whole(void)
{
	if (child > 0)
		reap(child);
	ck_assert_uint_eq(records(), 1);
	assert_books_balance();
}

static void run_signals(const char *name, void (*stepped)(void))
{
	const struct race race = {prepare_a_region, stepped, raise_signal, parent_is_whole};

	parent = getpid();
	signal(SIGUSR1, fork_in_another);
	for (unsigned i = 0; i < 2; i++) {
		fork_somehow = i ? by_clone : by_fork;
		run_race_in_handler(name, &race, 4 * TURNS);
	}
}

START_TEST(in_a_threads_first_call)
{
	run_signals("in a thread's first call", stepped_beginning);
}
END_TEST

START_TEST(in_a_threads_exit)
{
	ck_assert_ptr_nonnull(pdn_self()); /* pindown has its key */
	ck_assert_int_eq(pthread_key_create(&behind_pindowns, exit_to_here), 0);
	run_signals("in a thread's exit", stepped_exit);
}
END_TEST

/* ---- in a free of a thread that can get no record ------------------------------------------ */

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

static void stepped_recordless_free(void)
{
	pdn_guard guard;

	step_from_here();
	guard = pdn_end_range(AT(1), 0);
	pdn_ended(guard);
	step_to_here();
}

static void nothing_to_prepare(void)
{
	child = -1;
}

/* In the child nothing is being freed any more, and nothing is counted that was not begun there. */
static void nothing_is_left_counted(void)
{
	if (getpid() != parent) {
		pdn_lock(), pdn_unlock(); /* by whichever way, it begins again here at the latest */
		EXPECT(pdn_thread_recordless == 0);
		_exit(0);
	}
	if (child > 0)
		reap(child);
	ck_assert_uint_eq(pdn_thread_recordless, 0);
}

static void free_without_a_record(void *arg)
{
	const struct race race = {nothing_to_prepare, stepped_recordless_free, raise_signal,
				  nothing_is_left_counted};
	struct rlimit none = {.rlim_cur = 0};

	(void)arg;
	gate_wait(&memory_is_short);
	none.rlim_max = usual.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
	ck_assert_ptr_null(pdn_self());
	for (unsigned i = 0; i < 2; i++) {
		fork_somehow = i ? by_clone : by_fork;
		run_race_in_handler("in a free without a record", &race, 4 * TURNS);
	}
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &usual), 0);
}

START_TEST(in_a_free_of_a_thread_without_a_record)
{
	static struct worker stays[RECORDS_AT_HAND - 1];
	struct worker without;

	if (emulator_lacks("limits of address space"))
		return;
	parent = getpid();
	signal(SIGUSR1, fork_in_another);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &usual), 0);
	gate_init(&has_record);
	gate_init(&may_end);
	gate_init(&memory_is_short);
	prepare_a_region(); /* the tables */
	for (unsigned i = 0; i < RECORDS_AT_HAND - 1; i++) {
		worker_start(&stays[i], take_record_and_stay, NULL);
		gate_wait(&has_record);
	}
	worker_start(&without, free_without_a_record, NULL);
	gate_open(&memory_is_short);
	worker_join(&without);
	for (unsigned i = 0; i < RECORDS_AT_HAND - 1; i++)
		gate_open(&may_end);
	for (unsigned i = 0; i < RECORDS_AT_HAND - 1; i++)
		worker_join(&stays[i]);
}
END_TEST

/*
 * The scripted driver's own handlers are left out: this thread may be in the middle of that driver.
 */
static void begin_with_cache_handlers(void)
{
	open_books();
	ck_assert_int_eq(pthread_atfork(pdn_fork_prepare, pdn_fork_parent, pdn_fork_child), 0);
}

int main(void)
{
	Suite *suite = suite_create("cache: fork in signal handlers");
	TCase *tc;

	/* Destructors run in the order of their keys: this one's before pindown's. */
	if (pthread_key_create(&before_pindowns, exit_from_here) != 0)
		return 1;
	tc = suite_case(suite, "at each instruction", begin_with_cache_handlers, close_books);

	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, in_a_pin);
	tcase_add_test(tc, in_a_hit);
	tcase_add_test(tc, in_a_put);
	tcase_add_test(tc, in_the_last_put);
	tcase_add_test(tc, in_a_free);
	tcase_add_test(tc, in_a_free_of_held_memory);
	tcase_add_test(tc, in_a_free_under_a_held_object);
	tcase_add_test(tc, in_a_flush);
	tcase_add_test(tc, in_an_attach);
	tcase_add_test(tc, in_an_owners_end);
	tcase_add_test(tc, in_a_threads_first_call);
	tcase_add_test(tc, in_a_threads_exit);
	tc = suite_case(suite, "without a record", begin_with_cache_handlers, close_books);
	if (CAN_REFUSE_MEMORY)
		tcase_add_test(tc, in_a_free_of_a_thread_without_a_record);
	else
		puts("skipped: a thread without a record: a sanitizer maps memory all the time");
	return run_stepped_suite(suite);
}
