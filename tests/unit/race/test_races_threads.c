/* SPDX-License-Identifier: MIT */
/*
 * Many threads: holds that are passed on, threads that start, end and die, budgets that several
 * threads exhaust.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "cache/base/thread/barrier.h"
#include "cache/base/thread/lock.h"
#include "tests/unit/support/cache_test.h"
#include "cache/base/thread/stripes.h"
#include "cache/base/thread/thread.h"

#define AT(i) (BASE + MIB(16) * (i))

static void put_it(void *arg)
{
	pindown_put(arg);
}

/* Each hold is counted where it was taken and where it is dropped; only the sum has a meaning. */
START_TEST(a_put_may_come_from_another_thread)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	for (unsigned i = 0; i < 20; i++)
		in_other_thread(put_it, must_get(BASE, 1));
	ck_assert_int_eq(pindown_flush(), 1);

	pindown_region *region = must_get(BASE, 1);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_uint_eq(stats().kept_regions, 1);
	in_other_thread(put_it, region);
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

static void hold_and_leave(void *arg)
{
	*(pindown_region **)arg = must_get(BASE, 1);
}

#define MANY 300

/* Threads start, take a hold, and end; their holds stay. */
START_TEST(holds_of_threads_that_are_gone)
{
	pindown_region *region[MANY];

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	for (unsigned i = 0; i < MANY; i++) {
		in_other_thread(hold_and_leave, &region[i]);
		ck_assert_ptr_eq(region[i], region[0]);
		ck_assert_int_eq(pindown_flush(), 0);
	}
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	for (unsigned i = 0; i < MANY; i++) {
		ck_assert_uint_eq(fake_open_exports(), 1);
		pindown_put(region[i]);
	}
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_uint_eq(stats().hits, MANY - 1);
	ck_assert_uint_eq(stats().misses, 1);
}
END_TEST

static struct gate all_hold, may_put;

static void hold_until_told(void *arg)
{
	pindown_region *region = must_get(BASE, 1);

	(void)arg;
	gate_open(&all_hold);
	gate_wait(&may_put);
	pindown_put(region);
}

/* All at once: more threads than there are stripes of hold counts. */
START_TEST(three_hundred_threads_hold_one_region)
{
	static struct worker workers[MANY];

	gate_init(&all_hold);
	gate_init(&may_put);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	for (unsigned i = 0; i < MANY; i++)
		worker_start(&workers[i], hold_until_told, NULL);
	for (unsigned i = 0; i < MANY; i++)
		gate_wait(&all_hold);
	ck_assert_int_eq(pindown_flush(), 0);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_uint_eq(stats().kept_regions, 1);
	for (unsigned i = 0; i < MANY; i++)
		gate_open(&may_put);
	for (unsigned i = 0; i < MANY; i++)
		worker_join(&workers[i]);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_uint_eq(stats().hits + stats().misses, MANY);
}
END_TEST

static struct gate all_have_put, may_go;

static void hold_another_and_stay(void *arg)
{
	(void)arg;
	get_and_put(AT(1), 1);
	gate_open(&all_have_put);
	gate_wait(&may_go);
}

/* The only hold is that of a thread that came when all stripes were taken. */
START_TEST(one_thread_too_many_for_a_stripe_of_its_own_holds_a_region)
{
	static struct worker workers[PDN_STRIPES];
	pindown_region *region;

	gate_init(&all_have_put);
	gate_init(&may_go);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	for (unsigned i = 0; i < PDN_STRIPES; i++) {
		worker_start(&workers[i], hold_another_and_stay, NULL);
		gate_wait(&all_have_put);
	}
	in_other_thread(hold_and_leave, &region);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_uint_eq(stats().kept_regions, 1);
	in_other_thread(put_it, region);
	ck_assert_uint_eq(stats().kept_regions, 0);
	for (unsigned i = 0; i < PDN_STRIPES; i++)
		gate_open(&may_go);
	for (unsigned i = 0; i < PDN_STRIPES; i++)
		worker_join(&workers[i]);
}
END_TEST

static void *exit_in_the_middle(void *arg)
{
	hold_and_leave(arg);
	pthread_exit(NULL);
}

START_TEST(a_thread_dies_with_a_hold)
{
	pindown_region *region = NULL;
	pthread_t thread;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	ck_assert_int_eq(pthread_create(&thread, NULL, exit_in_the_middle, &region), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_uint_eq(stats().kept_regions, 1);
	pindown_put(region);
}
END_TEST

/* Killed in the middle of a free (a callback may do that): its guard must not stay up for ever. */
static void *die_in_a_free(void *arg)
{
	(void)arg;
	pdn_end_range(BASE, 0);
	pthread_exit(NULL);
}

START_TEST(a_thread_dies_in_a_free)
{
	pthread_t thread;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	for (unsigned i = 0; i < 10; i++) {
		ck_assert_int_eq(pthread_create(&thread, NULL, die_in_a_free, NULL), 0);
		pthread_join(thread, NULL);
		get_and_put(BASE, 1);
	}
}
END_TEST

/* A thread-specific destructor runs late in a thread's end, and uses the cache once more. */
static pthread_key_t key;

static void use_late(void *value)
{
	(void)value;
	get_and_put(BASE, 1);
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
}

static void die_with_a_destructor(void *arg)
{
	get_and_put(BASE, 1);
	pthread_setspecific(key, arg);
}

START_TEST(a_dying_threads_destructor_uses_the_cache)
{
	int some;

	ck_assert_int_eq(pthread_key_create(&key, use_late), 0);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	for (unsigned i = 0; i < 50; i++) {
		get_and_put(AT(1), 1);
		in_other_thread(die_with_a_destructor, &some);
	}
	ck_assert_uint_eq(fake_open_exports(), 1);
}
END_TEST

/*
 * A thread that ends between two calls leaves no guard behind, and the next thread gets its record.
 */
static void free_and_leave(void *arg)
{
	(void)arg;
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
}

START_TEST(records_of_dead_threads_are_used_again)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	for (unsigned i = 0; i < MANY; i++) {
		get_and_put(AT(0), 1);
		in_other_thread(free_and_leave, NULL);
	}
	ck_assert_uint_eq(stats().hits, 0);
	ck_assert_uint_eq(stats().misses, MANY);
}
END_TEST

/* ---- two processors ---- */

/*
 * A hit publishes its hold with plain stores, which its processor may hold back for a while. The
 * thread that unlinks the region makes up for that with a barrier on all processors. Without this
 * barrier, a region is unpinned under a holder every now and then. The reader reports that it holds
 * the region. If it does so after the invalidation, and still does so later, the region must have
 * been among those kept.
 */
#define UNLINKINGS 20000

static uint64_t holding; /* 0, or the number of the reader's hold */
static bool unlinked_all;
static uint64_t seen_holding;

static void hit_again_and_again(void *arg)
{
	uint64_t number = 0;

	(void)arg;
	while (!__atomic_load_n(&unlinked_all, __ATOMIC_RELAXED)) {
		pindown_region *region;
		if (pindown_get(BASE, 1, PINDOWN_GET_CACHED, &region) != PINDOWN_OK)
			continue;
		__atomic_store_n(&holding, ++number, __ATOMIC_SEQ_CST);
		for (unsigned i = 0; i < 200; i++)
			__asm__ volatile("" ::: "memory");
		__atomic_store_n(&holding, 0, __ATOMIC_SEQ_CST);
		pindown_put(region);
	}
}

START_TEST(a_hit_and_an_unlinking_on_two_processors)
{
	struct worker reader;

	setenv("PINDOWN_BACKEND", "none", 1);
	fake_alloc(BASE, PAGE, FAKE_LINEAR);
	worker_start(&reader, hit_again_and_again, NULL);
	for (unsigned i = 0; i < UNLINKINGS; i++) {
		get_and_put(BASE, 1);
		pindown_invalidate(BASE, 0);
		uint64_t before = __atomic_load_n(&holding, __ATOMIC_SEQ_CST);
		uint64_t kept = stats().kept_regions;
		uint64_t after = __atomic_load_n(&holding, __ATOMIC_SEQ_CST);
		if (!before || before != after)
			continue;
		seen_holding++;
		ck_assert_msg(kept == 1, "unlinking %u: a region was unpinned under its holder", i);
	}
	__atomic_store_n(&unlinked_all, true, __ATOMIC_RELAXED);
	worker_join(&reader);
}
END_TEST

/*
 * While only one thread has a record, the barrier is left out (cache/base/thread/thread_records.c).
 * Another thread gets its record and hits at once, while the first one unlinks.
 */
#define NEW_THREADS 1000

static bool is_ready, may_hit;
static pindown_region *first_region;

static void hit_for_the_first_time(void *arg)
{
	(void)arg;
	__atomic_store_n(&is_ready, true, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&may_hit, __ATOMIC_RELAXED))
		sched_yield();
	if (pindown_get(BASE, 1, PINDOWN_GET_CACHED, &first_region) != PINDOWN_OK)
		first_region = NULL;
}

START_TEST(a_new_threads_first_hit_and_an_unlinking)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	for (unsigned i = 0; i < NEW_THREADS; i++) {
		struct worker worker;

		get_and_put(BASE, 1);
		is_ready = may_hit = false;
		worker_start(&worker, hit_for_the_first_time, NULL);
		while (!__atomic_load_n(&is_ready, __ATOMIC_SEQ_CST))
			sched_yield();
		__atomic_store_n(&may_hit, true, __ATOMIC_RELAXED);
		for (unsigned spin = 0; spin < i % 64 * 16; spin++)
			__asm__ volatile("" ::: "memory");
		ck_assert_int_eq(pindown_invalidate(BASE, 1), 1);
		worker_join(&worker);
		ck_assert_uint_eq(stats().kept_regions, first_region != NULL);
		pindown_put(first_region);
		ck_assert_uint_eq(stats().kept_regions, 0);
	}
}
END_TEST

/* ---- pressure ---- */

#define PRESSERS 4
#define SLOTS	 6

static unsigned rounds = 2000;

static void press(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < rounds; i++) {
		pindown_region *region = NULL;
		seed = seed * 1103515245 + 12345;
		uint64_t at = AT((seed >> 16) % SLOTS);
		int result = pindown_get(at, 1, 0, &region);
		if (result == PINDOWN_ERR_NO_SPACE)
			continue;
		ck_assert_msg(result == PINDOWN_OK, "%s", pindown_strerror(result));
		ck_assert_uint_eq(pindown_region_base(region), at);
		ck_assert_int_eq(pindown_region_device(region), 0);
		pindown_put(region);
	}
}

static void press_against(const char *budget, const char *value)
{
	static struct worker workers[PRESSERS];

	setenv(budget, value, 1);
	for (unsigned i = 0; i < SLOTS; i++)
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
	for (uintptr_t i = 0; i < PRESSERS; i++)
		worker_start(&workers[i], press, (void *)(i + 1));
	for (unsigned i = 0; i < PRESSERS; i++)
		worker_join(&workers[i]);
	assert_books_balance();
	ck_assert_uint_gt(stats().evictions, 0);
	ck_assert_uint_eq(stats().hits + stats().misses, PRESSERS * rounds);
}

/* [UCX] two threads on one region at the limit, which UCX's LRU list does not survive. */
START_TEST(threads_press_against_the_count_budget)
{
	press_against("PINDOWN_MAX_REGIONS", "2");
	ck_assert_uint_le(stats().peak_regions, 2);
}
END_TEST

START_TEST(threads_press_against_the_byte_budget)
{
	press_against("PINDOWN_MAX_BYTES", "5M");
	ck_assert_uint_le(stats().peak_bytes, MIB(5));
}
END_TEST

START_TEST(threads_press_against_the_pin_space)
{
	fake_pin_space(MIB(4));
	press_against("PINDOWN_MAX_REGIONS", "0");
}
END_TEST

/* ---- sleeping for the lock ---- */

static void take_the_lock(void *arg)
{
	(void)arg;
	pdn_lock();
	pdn_unlock();
}

/* It has said so, and then it takes a moment. */
static void wait_for_sleep(struct worker *worker)
{
	wait_until(__atomic_load_n(&pdn_this_process.lock[PDN_LOCK_CACHE], __ATOMIC_ACQUIRE) == 3);
	worker_wait_idle(worker);
}

START_TEST(a_thread_that_sleeps_for_the_lock_is_woken)
{
	struct worker worker[2];

	pdn_lock();
	for (unsigned i = 0; i < 2; i++)
		worker_start(&worker[i], take_the_lock, NULL);
	for (unsigned i = 0; i < 2; i++)
		wait_for_sleep(&worker[i]);
	pdn_unlock();
	for (unsigned i = 0; i < 2; i++)
		wait_until(worker_is_done(&worker[i]));
	for (unsigned i = 0; i < 2; i++)
		worker_join(&worker[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: many threads");
	TCase *tc = cache_case(suite, "holds and threads");

	tcase_add_test(tc, a_put_may_come_from_another_thread);
	tcase_add_test(tc, holds_of_threads_that_are_gone);
	tcase_add_test(tc, three_hundred_threads_hold_one_region);
	tcase_add_test(tc, one_thread_too_many_for_a_stripe_of_its_own_holds_a_region);
	tcase_add_test(tc, a_thread_dies_with_a_hold);
	tcase_add_test(tc, a_thread_dies_in_a_free);
	tcase_add_test(tc, a_dying_threads_destructor_uses_the_cache);
	tcase_add_test(tc, records_of_dead_threads_are_used_again);
	tc = cache_case(suite, "sleeping for the lock");
	tcase_add_test(tc, a_thread_that_sleeps_for_the_lock_is_woken);
	tc = cache_case(suite, "two processors");
	tcase_add_test(tc, a_hit_and_an_unlinking_on_two_processors);
	tcase_add_test(tc, a_new_threads_first_hit_and_an_unlinking);
	tc = cache_case(suite, "pressure");
	tcase_add_test(tc, threads_press_against_the_count_budget);
	tcase_add_test(tc, threads_press_against_the_byte_budget);
	tcase_add_test(tc, threads_press_against_the_pin_space);
	return run_suite(suite);
}
