// SPDX-License-Identifier: MIT
/* The trace writer in threads, forked children and killed processes, and while others read. */
#define _GNU_SOURCE
#include "cache/hook_events.h"
#include "tests/unit/support/trace_test.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/thread/thread.h"

/* ---- threads -------------------------------------------------------------------------------- */

enum { THREADS = 8, EACH = 20000, GENERATIONS = 5, MANY = 50000 };

static void *write_many(void *arg)
{
	uint64_t number = (uint64_t)(uintptr_t)arg;

	for (uint64_t i = 0; i < EACH; i++) {
		call_at(number << 32 | i);
		pdn_count(&pdn_self()->counters->hits);
	}
	return NULL;
}

static void run_threads(void *(*function)(void *), unsigned first, unsigned count)
{
	pthread_t threads[THREADS];

	for (unsigned i = 0; i < count; i++)
		ck_assert_int_eq(
			pthread_create(&threads[i], NULL, function, (void *)(uintptr_t)(first + i)),
			0);
	for (unsigned i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

static pid_t last_tid;

static void *trace_one(void *soon_after_boot)
{
	uint64_t begin = soon_after_boot ? 1 : pdn_ticks();

	last_tid = gettid();
	pdn_trace_call(1, soon_after_boot ? 2 : 1, 4096, 0, begin, begin + 1, 0);
	return NULL;
}

/* The second thread takes over the first one's record, and its time stamps are small. */
START_TEST(a_machine_that_has_just_booted)
{
	pthread_t thread;
	unsigned found = 0;

	pdn_trace_open();
	for (uintptr_t i = 0; i < 2; i++) {
		ck_assert_int_eq(pthread_create(&thread, NULL, trace_one, (void *)i), 0);
		pthread_join(thread, NULL);
	}
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 2);
	for (unsigned i = 0; i < 2; i++)
		found += events[i].record.addr == 2 && events[i].tid == (uint32_t)last_tid;
	ck_assert_uint_eq(found, 1);
}
END_TEST

/* Threads come and go, and later threads take over the records of earlier ones. */
START_TEST(many_threads)
{
	static uint64_t next[THREADS * GENERATIONS];
	static uint32_t tid[THREADS * GENERATIONS];

	pdn_trace_open();
	for (unsigned i = 0; i < GENERATIONS; i++)
		run_threads(write_many, i * THREADS, THREADS);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, THREADS * GENERATIONS * EACH);
	ck_assert_uint_eq(counters.hits, THREADS * GENERATIONS * EACH);
	ck_assert_uint_eq(counters.lost, 0);
	for (unsigned i = 0; i < event_count; i++) {
		uint64_t thread = events[i].record.addr >> 32;

		ck_assert_uint_lt(thread, THREADS * GENERATIONS);
		/* Each thread's events are in order and complete. */
		ck_assert_uint_eq(events[i].record.addr & 0xffffffff, next[thread]);
		next[thread]++;
		if (!tid[thread])
			tid[thread] = events[i].tid;
		ck_assert_uint_eq(events[i].tid, tid[thread]);
		ck_assert(i == 0 || events[i].ts >= events[i - 1].ts);
	}
	for (unsigned i = 0; i < THREADS * GENERATIONS; i++)
		for (unsigned j = 0; j < i; j++)
			ck_assert(i / THREADS != j / THREADS || tid[i] != tid[j]);
}
END_TEST

static void *open_and_write(void *arg)
{
	pdn_trace_open();
	return write_many(arg);
}

/* A thread that comes while the file is being opened waits: no event is missing. */
START_TEST(all_open_at_once)
{
	run_threads(open_and_write, 0, THREADS);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, THREADS * EACH);
	ck_assert_uint_eq(counters.hits, THREADS * EACH);
}
END_TEST

enum { CROWD = 600 };
static pthread_barrier_t crowd_is_here;

static void *one_of_a_crowd(void *arg)
{
	(void)arg;
	pdn_count(&pdn_self()->counters->hits);
	call_at(1);
	pthread_barrier_wait(&crowd_is_here);
	pdn_count(&pdn_self()->counters->hits);
	return NULL;
}

/* More threads than one chunk of counters has slots. */
START_TEST(a_crowd)
{
	static pthread_t threads[CROWD];
	pthread_attr_t small;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 * 1024);
	pthread_barrier_init(&crowd_is_here, NULL, CROWD);
	pdn_trace_open();
	for (unsigned i = 0; i < CROWD; i++)
		ck_assert_int_eq(pthread_create(&threads[i], &small, one_of_a_crowd, NULL), 0);
	for (unsigned i = 0; i < CROWD; i++)
		pthread_join(threads[i], NULL);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, CROWD);
	ck_assert_uint_eq(counters.hits, 2 * CROWD);
}
END_TEST

/* ---- the end -------------------------------------------------------------------------------- */

static int told[2];

static void write_and_tell(void)
{
	pdn_trace_open();
	for (uint64_t i = 1;; i++) {
		call_at(i);
		pdn_count(&pdn_self()->counters->misses);
		if (i % 64 == 0 && write(told[1], &i, sizeof(i)) != sizeof(i))
			_exit(1);
	}
}

/* Everything that was written before the kill is there, complete. */
START_TEST(kill_9)
{
	uint64_t last = 0, n;
	int child;

	ck_assert_int_eq(pipe(told), 0);
	child = fork();
	if (child == 0)
		write_and_tell();
	close(told[1]);
	while (last < 50000 && read(told[0], &n, sizeof(n)) == sizeof(n))
		last = n;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	ck_assert_uint_ge(last, 50000);
	while (read(told[0], &n, sizeof(n)) == sizeof(n))
		last = n;
	read_back("t.pdt");
	ck_assert_uint_ge(event_count, last);
	ck_assert_uint_le(event_count, last + 64);
	/* The kill may have come between an event and its count. */
	ck_assert_uint_le(counters.misses, event_count);
	ck_assert_uint_ge(counters.misses + 1, event_count);
	for (unsigned i = 0; i < event_count; i++)
		ck_assert_uint_eq(events[i].record.addr, i + 1);
	ck_assert_uint_eq(events[0].file->header.end.ticks, 0);
}
END_TEST

/* ---- cancellation --------------------------------------------------------------------------- */

static void *write_with_a_cancellation_pending(void *arg)
{
	pthread_cancel(pthread_self());
	for (uint64_t i = 0; i < MANY; i++)
		call_at(i);
	*(bool *)arg = true;
	pthread_testcancel();
	return NULL;
}

/* A driver call is no cancellation point, and must not become one. */
START_TEST(no_cancellation_point)
{
	pthread_t thread;
	bool done = false;
	void *result;

	pdn_trace_open();
	pthread_create(&thread, NULL, write_with_a_cancellation_pending, &done);
	pthread_join(thread, &result);
	ck_assert(done);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, MANY);
}
END_TEST

/* ---- fork ----------------------------------------------------------------------------------- */

static void trace_in_child(void)
{
	pdn_fork_child();
	pdn_count(&pdn_self()->counters->hits);
	for (uint64_t i = 0; i < 10000; i++)
		call_at(1000000 + i);
	pdn_trace_close();
}

START_TEST(a_child_has_its_own_file)
{
	int child;

	pdn_trace_open();
	pdn_count(&pdn_self()->counters->hits);
	for (uint64_t i = 0; i < 100; i++)
		call_at(i);
	ck_assert_int_eq(in_child(trace_in_child, &child), 0);
	for (uint64_t i = 100; i < 200; i++)
		call_at(i);
	read_back(own_name(getpid(), ""));
	ck_assert_uint_eq(event_count, 200);
	ck_assert_uint_eq(counters.hits, 1);
	for (unsigned i = 0; i < 200; i++)
		ck_assert_uint_eq(events[i].record.addr, i);
	ck_assert_uint_eq(read_header(own_name(getpid(), "")).forked_from, 0);
	read_back(own_name(child, ""));
	ck_assert_uint_eq(event_count, 10000);
	ck_assert_uint_eq(counters.hits, 1);
	ck_assert_uint_eq(events[0].record.addr, 1000000);
	ck_assert_uint_eq(read_header(own_name(child, "")).forked_from, (unsigned)getpid());
	/* The name without a number means both files, ordered by time. */
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 10200);
	ck_assert_uint_eq(events[100].record.addr, 1000000);
	ck_assert_uint_eq(events[10199].record.addr, 199);
}
END_TEST

/* A program may fork in a handler that runs at its exit. */
START_TEST(a_child_of_one_that_has_ended_its_trace)
{
	int child;

	pdn_trace_open();
	call_at(0);
	pdn_trace_close();
	ck_assert_int_eq(in_child(trace_in_child, &child), 0);
	read_back(own_name(child, ""));
	ck_assert_uint_eq(event_count, 10000);
	ck_assert_uint_ne(read_header(own_name(child, "")).end.ticks, 0);
}
END_TEST

static void do_nothing_in_child(void)
{
	pdn_fork_child();
	pdn_trace_close();
}

START_TEST(a_child_that_does_nothing_has_none)
{
	int child;

	pdn_trace_open();
	call_at(0);
	ck_assert_int_eq(in_child(do_nothing_in_child, &child), 0);
	ck_assert(!exists(own_name(child, "")));
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 1);
	ck_assert_uint_eq(events[0].file->header.end.ticks, 0);
}
END_TEST

static int generation;

static void trace_generations(void)
{
	pdn_fork_child();
	call_at((uint64_t)++generation);
	if (generation < 20 && in_child(trace_generations, NULL) != 0)
		_exit(1);
}

START_TEST(children_of_children)
{
	pdn_trace_open();
	call_at(0);
	ck_assert_int_eq(in_child(trace_generations, NULL), 0);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 21);
	for (unsigned i = 0; i < 21; i++)
		ck_assert_uint_eq(events[i].record.addr, i);
}
END_TEST

static bool stop;
static uint64_t may_write; /* the number of events that each thread may write */

static void *write_until_stopped(void *arg)
{
	(void)arg;
	/* Not at full speed, so that there is no more than a reader under a sanitizer can take. */
	for (uint64_t i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		call_at(i);
		while (i % 100 == 0 && usleep(1000) == 0 &&
		       i >= __atomic_load_n(&may_write, __ATOMIC_RELAXED) &&
		       !__atomic_load_n(&stop, __ATOMIC_RELAXED))
			;
	}
	return NULL;
}

static void write_a_little_in_child(void)
{
	pdn_fork_child();
	for (uint64_t i = 0; i < 100; i++)
		call_at(i);
}

/* Forks come at any point of other threads' writing: their positions are not the child's. */
START_TEST(forks_while_others_write)
{
	pthread_t threads[2];

	may_write = UINT64_MAX;
	pdn_trace_open();
	call_at(0);
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, write_until_stopped, NULL);
	for (unsigned i = 0; i < 20; i++) {
		int child;

		ck_assert_int_eq(in_child(write_a_little_in_child, &child), 0);
		read_back(own_name(child, ""));
		ck_assert_uint_eq(event_count, 100);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	read_back(own_name(getpid(), ""));
	ck_assert_uint_gt(event_count, 1);
}
END_TEST

/*
 * A trace that grows is read as far as it is written, and never looks damaged. The writers are not
 * far ahead of the reader: the longer it takes, the more there would be to read in the next turn.
 */
START_TEST(read_while_others_write)
{
	const unsigned ahead = 5000;
	unsigned before = 0;
	pthread_t threads[2];

	stop = false;
	may_write = ahead;
	pdn_trace_open();
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, write_until_stopped, NULL);
	for (unsigned i = 0; i < 15 || before < 500; i++) {
		uint64_t next[2] = {0, 0};
		uint32_t tids[2] = {0, 0};
		unsigned wrong = 0;

		read_back("t.pdt");
		ck_assert_uint_ge(event_count, before);
		before = event_count;
		__atomic_store_n(&may_write, before / 2 + ahead, __ATOMIC_RELAXED);
		for (unsigned j = 0; j < event_count; j++) {
			unsigned thread = tids[0] == 0 || tids[0] == events[j].tid ? 0 : 1;

			tids[thread] = events[j].tid;
			wrong += events[j].record.addr != next[thread]++;
		}
		/* One assertion for all: each is a system call, and the writers do not wait. */
		ck_assert_uint_eq(wrong, 0);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

/* ---- all ------------------------------------------------------------------------------------ */

int main(void)
{
	Suite *suite = suite_create("trace threads");

	add_case(suite, "threads",
		 (const TTest *const[]){a_machine_that_has_just_booted, many_threads,
					all_open_at_once, a_crowd, no_cancellation_point, kill_9,
					read_while_others_write, NULL});
	add_case(suite, "fork",
		 (const TTest *const[]){a_child_has_its_own_file,
					a_child_of_one_that_has_ended_its_trace,
					a_child_that_does_nothing_has_none, children_of_children,
					forks_while_others_write, NULL});
	return run_suite(suite);
}
