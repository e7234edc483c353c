/* SPDX-License-Identifier: MIT */
/* Subscribers: what they are notified of, when, and all that they may do in the callback. */
#define _GNU_SOURCE
#include <string.h>

#include "tests/unit/support/cache_test.h"

#define AT(i) (BASE + MIB(16) * (i))

/* What a callback saw. */
static struct seen {
	unsigned calls;
	struct pindown_invalidation last;
	unsigned exports_then; /* open when the callback ran */
	uint64_t id_then;      /* of the memory; 0 if it was dead by then */
	void *arg;
} seen;

static void see(const struct pindown_invalidation *what, void *arg)
{
	seen.calls++;
	seen.last = *what;
	seen.exports_then = fake_open_exports();
	seen.id_then = fake_id(what->base);
	seen.arg = arg;
}

static void assert_seen(unsigned calls, uint64_t base, int reason, int in_use)
{
	ck_assert_uint_eq(seen.calls, calls);
	ck_assert_uint_eq(seen.last.base, base);
	ck_assert_int_eq(seen.last.reason, reason);
	ck_assert_int_eq(seen.last.in_use, in_use);
}

START_TEST(a_subscriber_is_told_before_the_unpin_and_the_free)
{
	int arg, id = pindown_subscribe(see, &arg);

	ck_assert_int_gt(id, 0);
	fake_alloc(BASE + 512, MIB(2), FAKE_LINEAR);
	uint64_t buffer = fake_id(BASE + 512);
	pindown_region *region = must_get(BASE + 512, 1);
	pindown_put(region);
	ck_assert_uint_eq(seen.calls, 0);

	ck_assert_int_eq(watched_free(BASE + 512), FAKE_SUCCESS);
	assert_seen(1, BASE + 512, PINDOWN_REASON_FREED, 0);
	ck_assert_uint_eq(seen.last.length, MIB(2));
	ck_assert_uint_eq(seen.last.buffer_id, buffer);
	ck_assert_ptr_eq(seen.last.region, region);
	ck_assert_ptr_eq(seen.arg, &arg);
	ck_assert_uint_eq(seen.exports_then, 1);
	ck_assert_uint_eq(seen.id_then, buffer);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
}
END_TEST

static void count_those_before(const struct pindown_invalidation *what, void *arg)
{
	(void)what;
	(void)arg;
	ck_assert_uint_eq(stats().unpins, seen.calls++);
}

/*
 * Regions that end together are released several at a time, but before the next callback, which may
 * wait for a free of their memory.
 */
START_TEST(regions_that_end_together_are_given_back_before_the_next_is_told)
{
	int id = pindown_subscribe(count_those_before, NULL);

	for (unsigned i = 0; i < 4; i++) {
		fake_alloc(BASE + PAGE * i, PAGE, FAKE_LINEAR);
		get_and_put(BASE + PAGE * i, 1);
	}
	ck_assert_int_eq(pindown_invalidate(BASE, PAGE * 4), 4);
	ck_assert_uint_eq(seen.calls, 4);
	ck_assert_uint_eq(stats().unpins, 4);
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
}
END_TEST

/* The callback comes when the memory ends, not when the last hold goes; and once. */
START_TEST(a_subscriber_is_told_of_regions_in_use)
{
	pindown_subscribe(see, NULL);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	assert_seen(1, BASE, PINDOWN_REASON_FREED, 1);
	ck_assert_ptr_eq(seen.last.region, region);
	pindown_put(region);
	ck_assert_uint_eq(seen.calls, 1);
}
END_TEST

START_TEST(each_reason_has_its_name)
{
	setenv("PINDOWN_MAX_REGIONS", "1", 1);
	pindown_subscribe(see, NULL);
	for (unsigned i = 0; i < 2; i++)
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);

	get_and_put(AT(0), 1);
	get_and_put(AT(1), 1);
	assert_seen(1, AT(0), PINDOWN_REASON_EVICTED, 0);
	pindown_flush();
	assert_seen(2, AT(1), PINDOWN_REASON_FLUSHED, 0);
	get_and_put(AT(0), 1);
	pindown_invalidate(AT(0), 1);
	assert_seen(3, AT(0), PINDOWN_REASON_FLUSHED, 0);
	get_and_put(AT(0), 1);
	pdn_ended(pdn_end_context(FAKE_CONTEXT));
	assert_seen(4, AT(0), PINDOWN_REASON_CONTEXT, 0);
	get_and_put(AT(0), 1);
	pdn_ended(pdn_end_device(0));
	assert_seen(5, AT(0), PINDOWN_REASON_CONTEXT, 0);
	pdn_volatile(AT(0), MIB(2));
	get_and_put(AT(0), 1);
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS);
	must_refuse(AT(0), 1, PINDOWN_ERR_NOT_DEVICE);
	assert_seen(6, AT(0), PINDOWN_REASON_STALE, 0);
	get_and_put(AT(1), 1);
	ck_assert_int_eq(fake_free(AT(1)), FAKE_SUCCESS);
	watched_alloc(AT(1), MIB(1), FAKE_LINEAR);
	assert_seen(7, AT(1), PINDOWN_REASON_STALE, 0);
	expected_missed = 1;
}
END_TEST

static unsigned each[70];

static void count_mine(const struct pindown_invalidation *what, void *arg)
{
	(void)what;
	++*(unsigned *)arg;
}

START_TEST(there_is_room_for_64_subscribers)
{
	int ids[64];

	for (unsigned i = 0; i < 64; i++) {
		ids[i] = pindown_subscribe(count_mine, &each[i]);
		ck_assert_int_gt(ids[i], 0);
		for (unsigned j = 0; j < i; j++)
			ck_assert_int_ne(ids[i], ids[j]);
	}
	ck_assert_int_eq(pindown_subscribe(count_mine, &each[64]), PINDOWN_ERR_NO_MEMORY);
	ck_assert_int_eq(pindown_unsubscribe(ids[7]), PINDOWN_OK);
	ck_assert_int_eq(pindown_unsubscribe(ids[7]), PINDOWN_ERR_INVALID);
	ck_assert_int_gt(pindown_subscribe(count_mine, &each[65]), 0);
	ck_assert_int_eq(pindown_unsubscribe(ids[7]), PINDOWN_ERR_INVALID);

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	for (unsigned i = 0; i < 66; i++)
		ck_assert_uint_eq(each[i], i != 7 && i != 64);
}
END_TEST

START_TEST(subscriptions_come_and_go_without_end)
{
	for (unsigned i = 0; i < 1000; i++)
		ck_assert_int_eq(pindown_unsubscribe(pindown_subscribe(see, NULL)), PINDOWN_OK);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_uint_eq(seen.calls, 0);
}
END_TEST

/* ---- what a callback may do ---- */

static pindown_region *mine;

static void put_mine(const struct pindown_invalidation *what, void *arg)
{
	see(what, arg);
	pindown_put(mine);
	mine = NULL;
}

/*
 * A cache on top of this one holds the region: when its callback drops the hold, nothing outlives
 * the free.
 */
START_TEST(a_callback_may_put_its_own_hold)
{
	pindown_subscribe(put_mine, NULL);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	mine = must_get(BASE, 1);
	pdn_guard guard = pdn_end_range(BASE, 0);
	assert_seen(1, BASE, PINDOWN_REASON_FREED, 1);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_int_eq(fake_free(BASE), FAKE_SUCCESS);
	pdn_ended(guard);
}
END_TEST

static int answer_own, answer_other, answer_cached;

static void get_in_callback(const struct pindown_invalidation *what, void *arg)
{
	pindown_region *region = NULL;

	(void)arg;
	answer_cached = pindown_get(what->base, 1, PINDOWN_GET_CACHED, &region);
	if (what->reason == PINDOWN_REASON_FREED)
		answer_own = pindown_get(what->base, 1, 0, &region);
	answer_other = pindown_get(AT(1), 1, 0, &region);
	if (answer_other == PINDOWN_OK)
		pindown_put(region);
}

/*
 * The callback's own free can't end before the callback does: the get returns BUSY instead of
 * waiting for itself.
 */
START_TEST(a_callback_may_get_but_not_what_is_being_freed)
{
	int id = pindown_subscribe(get_in_callback, NULL);

	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_int_eq(answer_cached, PINDOWN_ERR_NOT_DEVICE);
	ck_assert_int_eq(answer_own, PINDOWN_ERR_BUSY);
	ck_assert_int_eq(answer_other, PINDOWN_OK);
	ck_assert(is_cached(AT(1), 1));
	pindown_unsubscribe(id);
}
END_TEST

static unsigned frees_that_worked;

static void end_others(const struct pindown_invalidation *what, void *arg)
{
	see(what, arg);
	pindown_invalidate(AT(1), 0);
	pindown_invalidate_context((void *)0xd1);
	frees_that_worked += watched_free(AT(3)) == FAKE_SUCCESS;
}

/*
 * Each of these calls leads to the callback again, which makes them again, to the deepest level and
 * back.
 */
START_TEST(a_callback_may_end_other_memory)
{
	int id = pindown_subscribe(end_others, NULL);

	for (unsigned i = 0; i < 4; i++)
		fake_alloc_in(AT(i), MIB(2), FAKE_LINEAR, i == 2 ? (void *)0xd1 : FAKE_CONTEXT, 0,
			      NULL);
	for (unsigned i = 0; i < 4; i++)
		get_and_put(AT(i), 1);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(seen.calls, 4);
	ck_assert_uint_eq(frees_that_worked, 1);
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(fake_open_exports(), 0);
	pindown_unsubscribe(id);
}
END_TEST

static void free_the_same(const struct pindown_invalidation *what, void *arg)
{
	see(what, arg);
	ck_assert_int_eq(watched_free(what->base), FAKE_SUCCESS);
}

/*
 * This very thread is unpinning the region, so there is nothing to wait for. There are so many
 * frees here that a wait of two seconds for each would exceed the test's limit.
 */
START_TEST(a_callback_may_free_what_is_being_unpinned)
{
	int id = pindown_subscribe(free_the_same, NULL);

	for (unsigned i = 0; i < 100; i++) {
		fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
		pindown_region *held = must_get(AT(0), 1);
		if (i % 2)
			pindown_put(held);
		ck_assert_int_eq(pindown_invalidate(AT(0), 0), 1);
		if (i % 2 == 0)
			pindown_put(held);
		ck_assert_uint_eq(fake_open_exports(), 0);
	}
	pindown_unsubscribe(id);
}
END_TEST

/* The callback for AT(n) ends AT(n + 1), down to the last: more than a thread has guard slots. */
#define MAX_DEPTH 12
static unsigned depth_met;
static int cached_by_another[MAX_DEPTH], result_for_another[MAX_DEPTH];

static void ask_for_all(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < MAX_DEPTH; i++)
		cached_by_another[i] = is_cached(AT(i), 1);
}

static void end_the_next(const struct pindown_invalidation *what, void *arg)
{
	unsigned next = (what->base - BASE) / MIB(16) + 1;

	(void)arg;
	depth_met++;
	if (next == MAX_DEPTH) {
		in_other_thread(ask_for_all, NULL);
		for (unsigned i = 0; i < MAX_DEPTH; i++) {
			pindown_region *region;
			result_for_another[i] = pindown_get(AT(i), 1, 0, &region);
		}
		return;
	}
	ck_assert_int_eq(watched_free(AT(next)), FAKE_SUCCESS);
}

START_TEST(frees_nest_deeper_than_there_are_guards)
{
	int id = pindown_subscribe(end_the_next, NULL);

	for (unsigned i = 0; i <= MAX_DEPTH; i++) {
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
		get_and_put(AT(i), 1);
	}
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(depth_met, MAX_DEPTH);
	for (unsigned i = 0; i < MAX_DEPTH; i++) {
		ck_assert_int_eq(cached_by_another[i], 0);
		ck_assert_int_eq(result_for_another[i], PINDOWN_ERR_BUSY);
	}
	ck_assert_uint_eq(fake_open_exports(), 1);
	pindown_unsubscribe(id);

	/* And all guards are down again. */
	for (unsigned i = 0; i < MAX_DEPTH; i++) {
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
		get_and_put(AT(i), 1);
		ck_assert_int_eq(watched_free(AT(i)), FAKE_SUCCESS);
	}
}
END_TEST

static int self_id;

static void unsubscribe_myself(const struct pindown_invalidation *what, void *arg)
{
	see(what, arg);
	ck_assert_int_eq(pindown_unsubscribe(self_id), PINDOWN_OK);
	ck_assert_int_gt(pindown_subscribe(count_mine, &each[0]), 0);
	ck_assert_int_ge(pindown_flush(), 0);
}

START_TEST(a_callback_may_unsubscribe_itself_subscribe_and_flush)
{
	self_id = pindown_subscribe(unsubscribe_myself, NULL);
	for (unsigned i = 0; i < 3; i++) {
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
		get_and_put(AT(i), 1);
	}
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(seen.calls, 1);
	ck_assert_uint_ge(each[0], 2);
	ck_assert_uint_eq(stats().regions, 0);
	get_and_put(AT(1), 1);
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
	ck_assert_uint_eq(seen.calls, 1);
}
END_TEST

/* ---- other threads meanwhile ---- */

static void work_in_full(void *arg)
{
	(void)arg;
	watched_alloc(AT(5), MIB(2), FAKE_LINEAR);
	get_and_put(AT(5), 1);
	ck_assert(is_cached(AT(5), 1));
	ck_assert(!is_cached(AT(0), 1));
	ck_assert_int_eq(watched_free(AT(5)), FAKE_SUCCESS);
	get_and_put(AT(1), 1);
	ck_assert_int_eq(pindown_invalidate(AT(1), 0), 1);
	stats();
}

static void wait_for_another_thread(const struct pindown_invalidation *what, void *arg)
{
	if (what->base != AT(0))
		return;
	see(what, arg);
	in_other_thread(work_in_full, NULL);
}

/* No lock is held: another thread gets, frees and invalidates while the callback waits for it. */
START_TEST(a_callback_may_wait_for_another_threads_work)
{
	setenv("PINDOWN_MAX_REGIONS", "3", 1);
	int id = pindown_subscribe(wait_for_another_thread, NULL);

	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	ck_assert_int_eq(pindown_flush(), 1);
	get_and_put(AT(0), 1);
	ck_assert_int_eq(pindown_invalidate(AT(0), 0), 1);
	get_and_put(AT(0), 1);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(seen.calls, 3);
	pindown_unsubscribe(id);
}
END_TEST

/* The same in a callback for an eviction, which is in the middle of a pin. */
START_TEST(an_eviction_callback_may_wait_for_another_threads_work)
{
	setenv("PINDOWN_MAX_REGIONS", "3", 1);
	int id = pindown_subscribe(wait_for_another_thread, NULL);

	for (unsigned i = 0; i < 5; i++)
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	pindown_region *held[] = {must_get(AT(2), 1), must_get(AT(3), 1)};
	pindown_put(held[1]);
	fake_alloc(AT(6), MIB(2), FAKE_LINEAR);
	get_and_put(AT(6), 1);
	ck_assert_uint_eq(seen.calls, 1);
	ck_assert_int_eq(seen.last.reason, PINDOWN_REASON_EVICTED);
	pindown_put(held[0]);
	pindown_unsubscribe(id);
}
END_TEST

static struct gate callback_runs, callback_may_end;
static int blocking_id;
static bool callback_ended, ended_when_unsubscribed;

static void block(const struct pindown_invalidation *what, void *arg)
{
	see(what, arg);
	gate_open(&callback_runs);
	gate_wait(&callback_may_end);
	__atomic_store_n(&callback_ended, true, __ATOMIC_RELEASE);
}

static void free_first(void *arg)
{
	(void)arg;
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
}

static void unsubscribe_blocking(void *arg)
{
	(void)arg;
	ck_assert_int_eq(pindown_unsubscribe(blocking_id), PINDOWN_OK);
	ended_when_unsubscribed = __atomic_load_n(&callback_ended, __ATOMIC_ACQUIRE);
}

START_TEST(unsubscribe_waits_for_a_running_callback)
{
	struct worker freeing, unsubscribing;

	gate_init(&callback_runs);
	gate_init(&callback_may_end);
	blocking_id = pindown_subscribe(block, NULL);
	for (unsigned i = 0; i < 2; i++) {
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
		get_and_put(AT(i), 1);
	}
	worker_start(&freeing, free_first, NULL);
	gate_wait(&callback_runs);
	worker_start(&unsubscribing, unsubscribe_blocking, NULL);
	worker_wait_idle(&unsubscribing);
	ck_assert(!worker_is_done(&unsubscribing));
	ck_assert(!worker_is_done(&freeing));

	/* While it is being removed it gets no new calls. */
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
	ck_assert_uint_eq(seen.calls, 1);
	gate_open(&callback_may_end);
	worker_join(&unsubscribing);
	worker_join(&freeing);
	ck_assert(ended_when_unsubscribed);
}
END_TEST

static struct worker unsubscriber;
static int first, second, third;
static unsigned calls_of_third;

static void unsubscribe_first(void *arg)
{
	(void)arg;
	ck_assert_int_eq(pindown_unsubscribe(first), PINDOWN_OK);
}

static void be_unsubscribed(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	worker_start(&unsubscriber, unsubscribe_first, NULL);
	worker_wait_idle(&unsubscriber);
}

static void count_third(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	calls_of_third++;
}

/* The first one's place is free, and the thread that has waited for that may not know yet. */
static void take_its_place(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	third = pindown_subscribe(count_third, NULL);
}

/* By chance the thread that unsubscribes is as fast: then this shows nothing. */
START_TEST(a_place_may_be_given_away_before_unsubscribe_returns)
{
	for (unsigned turn = 1; turn <= 20; turn++) {
		fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
		get_and_put(AT(0), 1);
		first = pindown_subscribe(be_unsubscribed, NULL);
		second = pindown_subscribe(take_its_place, NULL);
		ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
		worker_join(&unsubscriber);
		ck_assert_int_eq(pindown_unsubscribe(second), PINDOWN_OK);
		watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
		get_and_put(AT(0), 1);
		ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
		ck_assert_uint_eq(calls_of_third, turn);
		ck_assert_int_eq(pindown_unsubscribe(third), PINDOWN_OK);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: subscribers");
	TCase *tc = cache_case(suite, "their notices");

	tcase_add_test(tc, a_subscriber_is_told_before_the_unpin_and_the_free);
	tcase_add_test(tc, regions_that_end_together_are_given_back_before_the_next_is_told);
	tcase_add_test(tc, a_subscriber_is_told_of_regions_in_use);
	tcase_add_test(tc, each_reason_has_its_name);
	tcase_add_test(tc, there_is_room_for_64_subscribers);
	tcase_add_test(tc, subscriptions_come_and_go_without_end);
	tc = cache_case(suite, "what they may do");
	tcase_add_test(tc, a_callback_may_put_its_own_hold);
	tcase_add_test(tc, a_callback_may_get_but_not_what_is_being_freed);
	tcase_add_test(tc, a_callback_may_end_other_memory);
	tcase_add_test(tc, a_callback_may_free_what_is_being_unpinned);
	tcase_add_test(tc, frees_nest_deeper_than_there_are_guards);
	tcase_add_test(tc, a_callback_may_unsubscribe_itself_subscribe_and_flush);
	tc = cache_case(suite, "other threads meanwhile");
	tcase_add_test(tc, a_callback_may_wait_for_another_threads_work);
	tcase_add_test(tc, an_eviction_callback_may_wait_for_another_threads_work);
	tcase_add_test(tc, unsubscribe_waits_for_a_running_callback);
	tcase_add_test(tc, a_place_may_be_given_away_before_unsubscribe_returns);
	return run_suite(suite);
}
