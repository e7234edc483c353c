/* SPDX-License-Identifier: MIT */
/*
 * Threads that are cancelled, or that end themselves, inside the cache: in a driver call, in a
 * callback of a consumer or a subscriber, in the driver's own free. What they were doing is either
 * completed or undone when they end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/objects_test.h"
#include "cache/base/process.h"
#include "cache/base/thread.h"
#include "cache/foreign_dmabufs.h"
#include "cache/race.h"
#include "tests/unit/support/stepping.h"

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#endif
#endif

/*
 * AddressSanitizer does not see that the stack frames of a cancelled thread are gone, and reports
 * errors in code that is called there later. It can be told, but not in the middle of the cache.
 */
#ifdef UNDER_ASAN
void __asan_handle_no_return(void);
#define IS_FOLLOWED false
#else
#define __asan_handle_no_return() ((void)0)
#define IS_FOLLOWED		  true
#endif

/* the type of cancellation: each test is run with both */
static int type;

/* Cancels the calling thread, and then passes a cancellation point. */
static void be_cancelled(void)
{
	pthread_cancel(pthread_self());
	__asan_handle_no_return();
	pthread_testcancel();
}

static void end_thread(void)
{
	__asan_handle_no_return();
	pthread_exit(NULL);
}

static void be_cancelled_at_edge(void *arg)
{
	(void)arg;
	be_cancelled();
}

static void (*act)(void);
static pindown_region *region;
static pindown_object *object;
static int state_after;
static bool went_on;

static void *cancelled_main(void *arg)
{
	(void)arg;
	pthread_setcanceltype(type, NULL);
	act();
	__asan_handle_no_return();
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state_after);
	pthread_testcancel();
	went_on = true;
	return NULL;
}

/*
 * Was the thread cancelled? This function puts what the thread held. (Some versions of glibc do not
 * report it in the result of a thread that is cancelled when it enables cancellation.)
 */
static bool is_cancelled_in(void (*what)(void))
{
	pthread_t thread;

	act = what;
	region = NULL;
	object = NULL;
	state_after = PTHREAD_CANCEL_ENABLE;
	went_on = false;
	ck_assert_int_eq(pthread_create(&thread, NULL, cancelled_main, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(state_after, PTHREAD_CANCEL_ENABLE);
	if (region)
		pindown_put(region);
	if (object)
		pindown_detach(object);
	return !went_on;
}

static void run_cancelled(void (*what)(void))
{
	ck_assert(is_cancelled_in(what));
}

/* Everything works as before, and nothing waits for the thread that is gone. */
static void assert_in_order(void)
{
	assert_books_balance();
	get_and_put(AT(0), 1);
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	pindown_flush();
	assert_books_balance();
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(stats().objects, 0);
}

static void get(void)
{
	pindown_get(AT(0), 1, 0, &region);
}

static void attach(void)
{
	pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object);
}

static void attach_to_region(void)
{
	pindown_region *own = must_get(AT(0), 1);

	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	region = own;
	pindown_attach_region(consumer, own, 0, 0, 0, KEY(1, 1), NULL, &object);
}

static void invalidate(void)
{
	pindown_invalidate(AT(0), 0);
}

static void flush(void)
{
	pindown_flush();
}

/* Frees as a wrapper does. */
static void free_it(void)
{
	watched_free(AT(0));
}

static void put_the_last(void)
{
	pindown_region *mine = must_get(AT(0), 1);

	region = mine; /* stays set until the put: the thread may be cancelled before it */
	pindown_invalidate(AT(0), 0);
	region = NULL;
	pindown_put(mine);
}

static void end_owner(void)
{
	pindown_end_owner(consumer, 1);
}

static void remove_consumer(void)
{
	pindown_consumer_remove(consumer);
}

static void recheck(void)
{
	pdn_recheck(NULL);
}

/* ---- in the driver ---- */

/* At each edge of each of the driver's calls that a pin makes. */
static void sweep_driver(void (*what)(void), bool with_region)
{
	bool met = true;

	for (unsigned edge = 0; met; edge++) {
		if (with_region)
			get_and_put(AT(0), 1);
		fake_at_edge(FAKE_CALLS, edge, be_cancelled_at_edge, NULL);
		bool cancelled = is_cancelled_in(what);
		met = fake_edge_met();
		fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
		ck_assert(met == cancelled);
		ck_assert(!pdn_flights_any());
		assert_in_order();
	}
}

START_TEST(in_a_pin)
{
	type = _i;
	sweep_driver(get, false);
}
END_TEST

START_TEST(in_an_attach)
{
	type = _i;
	sweep_driver(attach, false);
}
END_TEST

START_TEST(in_a_recheck)
{
	type = _i;
	sweep_driver(recheck, true);
}
END_TEST

static void ask_about_open_memory(void)
{
	pdn_buffer_is_still_there(AT(0), fake_id(AT(0)));
}

START_TEST(in_a_question_about_open_memory)
{
	type = _i;
	sweep_driver(ask_about_open_memory, false);
}
END_TEST

START_TEST(in_a_hit_that_is_checked)
{
	type = _i;
	pdn_volatile(AT(0), MIB(2));
	sweep_driver(get, true);
}
END_TEST

/* ---- in a consumer's callbacks ---- */

static void cancel_in_create(struct books *own, pindown_region *unused)
{
	(void)unused;
	own->in_create = NULL;
	be_cancelled();
}

static void cancel_in_destroy(struct books *own, const struct pindown_object_end *what)
{
	(void)what;
	own->in_destroy = NULL;
	be_cancelled();
}

START_TEST(in_create)
{
	type = _i;
	books.in_create = cancel_in_create;
	run_cancelled(attach);
	assert_in_order();
}
END_TEST

START_TEST(in_create_on_a_held_region)
{
	type = _i;
	books.in_create = cancel_in_create;
	run_cancelled(attach_to_region);
	assert_in_order();
}
END_TEST

static void cancel_in_destroy_by(void (*what)(void))
{
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	books.in_destroy = cancel_in_destroy;
	run_cancelled(what);
	ck_assert_uint_eq(books.destroys, 1);
}

START_TEST(in_destroy_by_an_invalidation)
{
	type = _i;
	cancel_in_destroy_by(invalidate);
	assert_in_order();
}
END_TEST

START_TEST(in_destroy_by_a_flush)
{
	type = _i;
	cancel_in_destroy_by(flush);
	assert_in_order();
}
END_TEST

START_TEST(in_destroy_by_the_owners_end)
{
	type = _i;
	cancel_in_destroy_by(end_owner);
	assert_in_order();
}
END_TEST

START_TEST(in_destroy_by_the_consumers_end)
{
	type = _i;
	cancel_in_destroy_by(remove_consumer);
	consumer = books_open(&books);
	assert_in_order();
}
END_TEST

static void detach_the_last(void)
{
	pindown_object *mine = must_attach(consumer, AT(0), KEY(1, 1));

	pindown_invalidate(AT(0), 0);
	pindown_detach(mine);
}

START_TEST(in_destroy_by_the_last_detach)
{
	type = _i;
	books.in_destroy = cancel_in_destroy;
	run_cancelled(detach_the_last);
	ck_assert_uint_eq(books.destroys, 1);
	assert_in_order();
}
END_TEST

/* ---- in a subscriber ---- */

static unsigned told;

static void cancel_in_callback(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	if (told++ == 0)
		be_cancelled();
}

static void cancel_in_callback_of(void (*what)(void))
{
	int id = pindown_subscribe(cancel_in_callback, NULL);

	told = 0;
	get_and_put(AT(0), 1);
	run_cancelled(what);
	ck_assert_uint_eq(told, 1);
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
}

START_TEST(in_a_subscriber_told_of_an_invalidation)
{
	type = _i;
	cancel_in_callback_of(invalidate);
	assert_in_order();
}
END_TEST

START_TEST(in_a_subscriber_told_of_a_flush)
{
	type = _i;
	cancel_in_callback_of(flush);
	assert_in_order();
}
END_TEST

START_TEST(in_a_subscriber_told_with_a_hold)
{
	type = _i;
	cancel_in_callback_of(put_the_last);
	assert_in_order();
}
END_TEST

/* The thread that frees is cancelled where the program allows it, after the cache's part. */
START_TEST(in_a_subscriber_told_of_a_free)
{
	type = _i;
	cancel_in_callback_of(free_it);
	ck_assert(!fake_id(AT(0)) || type == PTHREAD_CANCEL_ASYNCHRONOUS);
	if (!fake_id(AT(0)))
		watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	assert_in_order();
}
END_TEST

/* An allocation notice for an address with a live region, whose memory was freed unseen. */
static void allocate_unseen(void)
{
	fake_free(AT(0));
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
}

START_TEST(in_a_subscriber_told_of_an_allocation)
{
	type = _i;
	expected_missed = 1;
	cancel_in_callback_of(allocate_unseen);
	assert_in_order();
}
END_TEST

/* ---- in the driver's free ---- */

static bool free_went_on;

static void be_cancelled_in_the_free(void)
{
	pdn_guard guard = pdn_end_range(AT(0), 0);

	fake_free(AT(0));
	be_cancelled(); /* without pindown the program would be cancelled here, too */
	free_went_on = true;
	pdn_ended(guard);
}

START_TEST(in_the_drivers_free)
{
	type = _i;
	get_and_put(AT(0), 1);
	run_cancelled(be_cancelled_in_the_free);
	ck_assert(!free_went_on);
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	assert_in_order(); /* if a guard stayed up, a get would wait for it */
}
END_TEST

static int late_result;

static void pin_in_cleanup(void *arg)
{
	pindown_region *late = NULL;

	(void)arg;
	late_result = pindown_get(AT(1), 1, 0, &late);
	pindown_put(late);
	watched_free(AT(1));
	watched_alloc(AT(1), MIB(2), FAKE_LINEAR);
}

static void be_cancelled_with_a_cleanup_handler(void)
{
	pthread_cleanup_push(pin_in_cleanup, NULL);
	be_cancelled_in_the_free();
	pthread_cleanup_pop(0);
}

START_TEST(in_the_drivers_free_with_a_cleanup_handler_that_calls_us)
{
	type = _i;
	run_cancelled(be_cancelled_with_a_cleanup_handler);
	ck_assert_int_eq(late_result, PINDOWN_OK);
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	assert_in_order();
}
END_TEST

/* ---- the cancellation state of a thread ---- */

static void expect_state(int expected)
{
	int state;

	pthread_setcancelstate(expected, &state);
	ck_assert_int_eq(state, expected);
}

START_TEST(the_state_stays)
{
	static const int states[] = {PTHREAD_CANCEL_ENABLE, PTHREAD_CANCEL_DISABLE};

	for (unsigned i = 0; i < 2; i++) {
		pthread_setcancelstate(states[i], NULL);
		get_and_put(AT(0), 1);
		expect_state(states[i]);
		attach_and_detach(consumer, AT(0), KEY(1, 1));
		expect_state(states[i]);
		pindown_end_owner(consumer, 1);
		expect_state(states[i]);
		put_the_last();
		expect_state(states[i]);
		watched_free(AT(0));
		watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
		expect_state(states[i]);
		pdn_recheck(NULL);
		pindown_flush();
		expect_state(states[i]);
	}
}
END_TEST

static void expect_type(int expected)
{
	int found;

	pthread_setcanceltype(expected, &found);
	ck_assert_int_eq(found, expected);
}

START_TEST(the_type_stays)
{
	static const int types[] = {PTHREAD_CANCEL_DEFERRED, PTHREAD_CANCEL_ASYNCHRONOUS};

	for (unsigned i = 0; i < 2; i++) {
		pthread_setcanceltype(types[i], NULL);
		get_and_put(AT(0), 1);
		pindown_invalidate(AT(0), 0);
		expect_type(types[i]);
		get_and_put(AT(0), 1);
		watched_free(AT(0));
		expect_type(types[i]);
		watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	}
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
}
END_TEST

/* ---- in a hit: of asynchronous type, at each instruction ---- */

static void prepare_a_region(void)
{
	fake_free(AT(0));
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pdn_recheck(NULL);
	get_and_put(AT(0), 1);
}

static void *hit_and_put(void *arg)
{
	pindown_region *mine;

	(void)arg;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	get_and_put(AT(0), 1); /* from here on the thread has hold counts of its own */
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	step_from_here();
	if (pindown_get(AT(0), 1, 0, &mine) == PINDOWN_OK)
		pindown_put(mine);
	step_to_here();
	return NULL;
}

static void stepped_hit(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, hit_and_put, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

static void cancel_myself(void)
{
	pthread_cancel(pthread_self());
}

/*
 * The thread's hold may be lost with it, and then the region stays. But no other thread waits for
 * the region that it announced.
 */
static void free_what_is_left(void)
{
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	pindown_flush();
}

/* In a process of its own, because regions are left behind. */
START_TEST(in_a_hit_at_each_instruction)
{
	static const struct race race = {prepare_a_region, stepped_hit, cancel_myself,
					 free_what_is_left};
	int status;
	pid_t child = fork();

	if (child == 0) {
		run_race_in_handler("a hit", &race, 200);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- in a vector: what is stored is held, and at most one hold is lost ---- */

#define PLACES 3
#define RANGES (PLACES + 1)

static pindown_region *own[PLACES], *got[RANGES];
static bool last_fails;
static uint64_t kept;

static void prepare_held_regions(void)
{
	for (unsigned i = 0; i < PLACES; i++) {
		fake_free(AT(i));
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
	}
	pdn_recheck(NULL);
	for (unsigned i = 0; i < PLACES; i++)
		own[i] = must_get(AT(i), 1);
	for (unsigned i = 0; i < RANGES; i++)
		got[i] = NULL;
	kept = stats().kept_regions;
}

static void *get_vector(void *arg)
{
	const struct pindown_range ranges[RANGES] = {
		{AT(0), 1}, {AT(1), 1}, {AT(1) + 1, 1}, {last_fails ? AT(3) : AT(2), 1}};

	(void)arg;
	get_and_put(AT(0), 1); /* from here on the thread has hold counts of its own */
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	step_from_here();
	pindown_getv(ranges, RANGES, PINDOWN_GET_CACHED, got, NULL);
	step_to_here();
	return NULL;
}

static void stepped_vector(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, get_vector, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

/* The test's own holds show if one was put that is not held. */
static void put_what_is_stored(void)
{
	for (unsigned i = 0; i < RANGES; i++)
		if (got[i])
			pindown_put(got[i]);
	for (unsigned i = 0; i < PLACES; i++)
		ck_assert_int_eq(watched_free(AT(i)), FAKE_SUCCESS);
	ck_assert_uint_eq(stats().kept_regions, kept + PLACES);
	for (unsigned i = 0; i < PLACES; i++)
		pindown_put(own[i]);
	ck_assert_uint_le(stats().kept_regions, kept + 1);
}

START_TEST(in_a_vector_at_each_instruction)
{
	static const struct race race = {prepare_held_regions, stepped_vector, cancel_myself,
					 put_what_is_stored};
	int status;
	pid_t child = fork();

	if (child == 0) {
		last_fails = _i;
		run_race_in_handler("a vector", &race, 400);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- in all else that takes the lock, at each instruction ---- */

static int subscription, spare_consumer;

static void not_called(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
}

/*
 * What the thread that will be cancelled needs. That thread must not call Check itself, which has
 * locks, too.
 */
static void prepare_a_held_region(void)
{
	prepare_a_region();
	region = must_get(AT(0), 1);
}

static void prepare_a_held_object(void)
{
	prepare_a_region();
	object = must_attach(consumer, AT(0), KEY(1, 1));
}

static void prepare_what_has_ended(void)
{
	prepare_a_held_region();
	object = must_attach(consumer, AT(0), KEY(1, 1));
	pindown_invalidate(AT(0), 0);
}

static void prepare_a_lent_descriptor(void)
{
	uint64_t offset;
	int fd;

	prepare_a_held_region();
	pindown_region_dmabuf(region, AT(0), &fd, &offset);
}

static void prepare_volatile_memory(void)
{
	prepare_a_region();
	pdn_volatile(AT(0), MIB(2));
}

static void prepare_dead_memory(void)
{
	prepare_a_region();
	fake_free(AT(0));
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
}

static void prepare_no_region(void)
{
	prepare_a_region();
	pindown_flush();
}

static void prepare_a_subscription(void)
{
	prepare_a_region();
	if (subscription > 0)
		pindown_unsubscribe(subscription);
	subscription = pindown_subscribe(not_called, NULL);
}

static void add_consumer(void)
{
	static const struct pindown_consumer ops = {
		.name = "spare", .create = books_create, .destroy = books_destroy, .arg = &books};

	spare_consumer = pindown_consumer_add(&ops, sizeof(ops));
}

/*
 * The table has space for some consumers that are lost because the thread that added them was
 * cancelled.
 */
static void prepare_a_consumer(void)
{
	prepare_a_region();
	if (spare_consumer > 0)
		pindown_consumer_remove(spare_consumer);
	add_consumer();
}

static void get_it(void)
{
	pindown_region *mine;

	if (pindown_get(AT(0), 1, 0, &mine) == PINDOWN_OK)
		pindown_put(mine);
}

static void put_it(void)
{
	pindown_put(region);
}

static void attach_it(void)
{
	pindown_object *mine;

	if (pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &mine) == PINDOWN_OK)
		pindown_detach(mine);
}

static void attach_to_it(void)
{
	pindown_object *mine;

	if (pindown_attach_region(consumer, region, 0, 0, 0, KEY(1, 1), NULL, &mine) == PINDOWN_OK)
		pindown_detach(mine);
}

static void detach_it(void)
{
	pindown_detach(object);
}

static void look_at_it(void)
{
	pindown_region_is_live(region);
	pindown_object_is_live(object);
}

static void look_at_it_when_debugging(void)
{
	pindown_region_base(region);
	pindown_object_data(object);
}

static void open_its_descriptor(void)
{
	uint64_t offset;
	int fd;

	pindown_region_dmabuf(region, AT(0), &fd, &offset);
}

static void close_its_descriptor(void)
{
	pindown_region_close_dmabuf(region);
}

static void invalidate_its_context(void)
{
	pindown_invalidate_context(FAKE_CONTEXT);
}

static void subscribe(void)
{
	subscription = pindown_subscribe(not_called, NULL);
}

static void unsubscribe(void)
{
	pindown_unsubscribe(subscription);
}

static void remove_spare_consumer(void)
{
	pindown_consumer_remove(spare_consumer);
}

static void ask_for_statistics(void)
{
	struct pindown_stats now;

	pindown_stats(&now, sizeof(now), -1);
}

static void say_that_frees_are_watched(void)
{
	pdn_set_intercepting(true);
}

static void make_volatile(void)
{
	pdn_volatile(AT(0), MIB(2));
}

static void tell_of_an_allocation(void)
{
	pdn_allocated(AT(0), MIB(2));
}

/* All of a free but the driver's call. */
static void end_it(void)
{
	pdn_end_range(AT(0), 0);
}

static const struct {
	const char *name;
	void (*prepare)(void);
	void (*act)(void);
	const char *debug;
} acts[] = {
	{"a pin", prepare_no_region, get_it, NULL},
	{"a hit that is checked", prepare_volatile_memory, get_it, NULL},
	{"a hit of what is dead", prepare_dead_memory, recheck, NULL},
	{"the last put", prepare_what_has_ended, put_it, NULL},
	{"an attach", prepare_a_region, attach_it, NULL},
	{"an attach to a region", prepare_a_held_region, attach_to_it, NULL},
	{"the last detach", prepare_what_has_ended, detach_it, NULL},
	{"looks at what has ended", prepare_what_has_ended, look_at_it, NULL},
	{"the opening of a descriptor", prepare_a_held_region, open_its_descriptor, NULL},
	{"the closing of a descriptor", prepare_a_lent_descriptor, close_its_descriptor, NULL},
	{"an invalidation", prepare_a_region, invalidate, NULL},
	{"a free", prepare_a_region, end_it, NULL},
	{"the invalidation of a context", prepare_a_region, invalidate_its_context, NULL},
	{"a flush", prepare_a_region, flush, NULL},
	{"the end of an owner", prepare_a_held_object, end_owner, NULL},
	{"a subscription", prepare_a_subscription, subscribe, NULL},
	{"the end of a subscription", prepare_a_subscription, unsubscribe, NULL},
	{"a consumer's beginning", prepare_a_consumer, add_consumer, NULL},
	{"a consumer's end", prepare_a_consumer, remove_spare_consumer, NULL},
	{"statistics", prepare_a_region, ask_for_statistics, NULL},
	{"what is watched", prepare_a_region, say_that_frees_are_watched, NULL},
	{"what becomes volatile", prepare_a_region, make_volatile, NULL},
	{"what is allocated", prepare_dead_memory, tell_of_an_allocation, NULL},
	{"a put, debugging", prepare_a_held_region, put_it, "1"},
	{"a detach, debugging", prepare_a_held_object, detach_it, "1"},
	{"looks at what is held, debugging", prepare_what_has_ended, look_at_it_when_debugging,
	 "1"},
};

static void *act_in_steps(void *arg)
{
	(void)arg;
	get_and_put(AT(1), 1); /* from here on the thread has hold counts of its own */
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	step_from_here();
	act();
	step_to_here();
	return NULL;
}

static void stepped_act(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, act_in_steps, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

/* If the cancelled thread had kept the lock, every later call would wait for it: look first. */
static void free_what_is_left_without_lock(void)
{
	ck_assert_msg(!pdn_here.lock[PDN_LOCK_CACHE], "the cancelled thread still has the lock");
	ck_assert_uint_eq(pdn_pending, 0);
	ck_assert(!pdn_flights_any());
	free_what_is_left();
}

START_TEST(at_each_instruction)
{
	const struct race race = {acts[_i].prepare, stepped_act, cancel_myself,
				  free_what_is_left_without_lock};
	int status;
	pid_t child = fork();

	if (child == 0) {
		if (acts[_i].debug)
			setenv("PINDOWN_DEBUG", acts[_i].debug, 1);
		act = acts[_i].act;
		run_race_in_handler(acts[_i].name, &race, 50);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- while a thread gets its record, and while it gives it back ---- */

static pthread_key_t before_pindowns, behind_pindowns;

static void *get_record_in_steps(void *arg)
{
	(void)arg;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	step_from_here();
	pdn_self();
	step_to_here();
	return NULL;
}

static void stepped_beginning(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, get_record_in_steps, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
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

static void *get_and_exit(void *arg)
{
	get_and_put(AT(0), 1);
	pthread_setspecific(before_pindowns, arg);
	pthread_setspecific(behind_pindowns, arg);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	return NULL;
}

static void stepped_exit(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, get_and_exit, &behind_pindowns), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

/* A record of no thread would stay so. That of a thread that is gone is found some day. */
static void records_are_of_threads(void)
{
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t;
	unsigned count = 0;

	for (; (t = pdn_walk_next(&walk)); count++)
		ck_assert_uint_ne(t->tid, 0);
	ck_assert_uint_le(count, 17);
	get_and_put(AT(0), 1);
}

START_TEST(as_a_record_changes_hands)
{
	const struct race race = {prepare_a_region, _i ? stepped_exit : stepped_beginning,
				  cancel_myself, records_are_of_threads};
	int status;
	pid_t child = fork();

	ck_assert_ptr_nonnull(pdn_self()); /* pindown has its key */
	ck_assert_int_eq(pthread_key_create(&behind_pindowns, exit_to_here), 0);
	if (child == 0) {
		run_race_in_handler(_i ? "a thread's exit" : "a thread's first call", &race, 300);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- a callback ends its thread, which is forbidden ---- */

static void quit_in_callback(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	end_thread();
}

static void quit_in_create(struct books *own, pindown_region *unused)
{
	(void)unused;
	own->in_create = NULL;
	end_thread();
}

static void quit_in_destroy(struct books *own, const struct pindown_object_end *what)
{
	(void)what;
	own->in_destroy = NULL;
	end_thread();
}

static void *act_in_thread(void *arg)
{
	(void)arg;
	act();
	return NULL;
}

static void let_a_thread_act(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, act_in_thread, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

/* One line says so. Other threads continue, and don't wait for the thread that is gone. */
static void expect_a_line_of(void (*what)(void), const char *line)
{
	act = what;
	const char *said = stderr_of(let_a_thread_act);
	ck_assert_str_eq(said, line);
	for (unsigned i = 0; i < 50; i++) {
		get_and_put(AT(1), 1);
		attach_and_detach(consumer, AT(1), KEY(1, 1));
		ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
		watched_free(AT(0));
		watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
		get_and_put(AT(0), 1);
		pindown_flush();
	}
	_exit(0); /* what the thread was doing is lost, so the books don't balance */
}

static void in_process_of_its_own(void (*fn)(void))
{
	int status;
	pid_t child = fork();

	if (child == 0)
		fn();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

static void quit_in_subscriber_here(void)
{
	int id = pindown_subscribe(quit_in_callback, NULL);

	get_and_put(AT(0), 1);
	act = invalidate;
	const char *said = stderr_of(let_a_thread_act);
	ck_assert_str_eq(said,
			 "pindown: a subscriber has ended its thread (pthread_exit): the region "
			 "that it was notified of stays pinned\n");
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
	expect_a_line_of(flush, "");
}

START_TEST(a_subscriber_ends_its_thread)
{
	in_process_of_its_own(quit_in_subscriber_here);
}
END_TEST

/* In the middle of a pin that needs the place of the region that the subscriber is notified of. */
static void pin_another(void)
{
	pindown_region *other;

	pindown_get(AT(1), 1, 0, &other);
}

static void quit_in_an_eviction_here(void)
{
	setenv("PINDOWN_MAX_REGIONS", "2", 1);
	get_and_put(AT(2), 1);
	get_and_put(AT(0), 1);
	int id = pindown_subscribe(quit_in_callback, NULL);
	act = pin_another;
	let_a_thread_act();
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
	expect_a_line_of(flush, "");
}

START_TEST(a_subscriber_ends_a_thread_that_pins)
{
	in_process_of_its_own(quit_in_an_eviction_here);
}
END_TEST

static void quit_in_create_here(void)
{
	books.in_create = quit_in_create;
	expect_a_line_of(attach, "pindown: create of the consumer \"books\" has ended its thread "
				 "(pthread_exit): the region stays pinned\n");
}

START_TEST(create_ends_its_thread)
{
	in_process_of_its_own(quit_in_create_here);
}
END_TEST

static void quit_in_destroy_here(void)
{
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	books.in_destroy = quit_in_destroy;
	expect_a_line_of(invalidate, "pindown: destroy of the consumer \"books\" has ended its "
				     "thread (pthread_exit): the region stays pinned\n");
}

START_TEST(destroy_ends_its_thread)
{
	in_process_of_its_own(quit_in_destroy_here);
}
END_TEST

/* The consumer does not wait for the two callbacks that the thread was still to make. */
static void quit_in_the_first_of_three_here(void)
{
	for (unsigned i = 1; i <= 3; i++)
		attach_and_detach(consumer, AT(0), KEY(1, i));
	books.in_destroy = quit_in_destroy;
	act = invalidate;
	stderr_of(let_a_thread_act);
	_exit(books.destroys || pindown_consumer_remove(consumer) != PINDOWN_OK);
}

START_TEST(destroy_ends_its_thread_before_others)
{
	in_process_of_its_own(quit_in_the_first_of_three_here);
}
END_TEST

int main(void)
{
	const TTest *const both[] = {in_a_pin,
				     in_an_attach,
				     in_a_recheck,
				     in_a_question_about_open_memory,
				     in_a_hit_that_is_checked,
				     in_create,
				     in_create_on_a_held_region,
				     in_destroy_by_an_invalidation,
				     in_destroy_by_a_flush,
				     in_destroy_by_the_owners_end,
				     in_destroy_by_the_consumers_end,
				     in_destroy_by_the_last_detach,
				     in_a_subscriber_told_of_an_invalidation,
				     in_a_subscriber_told_of_a_flush,
				     in_a_subscriber_told_with_a_hold,
				     in_a_subscriber_told_of_a_free,
				     in_a_subscriber_told_of_an_allocation,
				     in_the_drivers_free,
				     in_the_drivers_free_with_a_cleanup_handler_that_calls_us};
	Suite *suite = suite_create("cancellation");
	TCase *tc = objects_case(suite, "cancelled, deferred and asynchronous");

	/* Destructors run in the order of their keys: this one's before pindown's. */
	if (pthread_key_create(&before_pindowns, exit_in_steps) != 0)
		return 1;
	_Static_assert(PTHREAD_CANCEL_DEFERRED == 0 && PTHREAD_CANCEL_ASYNCHRONOUS == 1,
		       "what _i stands for");
	for (unsigned i = 0; i < sizeof(both) / sizeof(both[0]); i++)
		tcase_add_loop_test(tc, both[i], 0, IS_FOLLOWED ? 2 : 1);
	tc = objects_case(suite, "cancelled or not");
	tcase_add_test(tc, the_state_stays);
	tcase_add_test(tc, the_type_stays);
	if (CAN_STEP && IS_FOLLOWED)
		tcase_add_test(tc, in_a_hit_at_each_instruction);
	if (CAN_STEP && IS_FOLLOWED)
		tcase_add_loop_test(tc, in_a_vector_at_each_instruction, 0, 2);
	if (CAN_STEP && IS_FOLLOWED)
		tcase_add_loop_test(tc, at_each_instruction, 0, sizeof(acts) / sizeof(acts[0]));
	if (CAN_STEP && IS_FOLLOWED)
		tcase_add_loop_test(tc, as_a_record_changes_hands, 0, 2);
	tc = objects_case(suite, "ended by a callback");
	tcase_add_test(tc, a_subscriber_ends_its_thread);
	tcase_add_test(tc, a_subscriber_ends_a_thread_that_pins);
	tcase_add_test(tc, create_ends_its_thread);
	tcase_add_test(tc, destroy_ends_its_thread);
	tcase_add_test(tc, destroy_ends_its_thread_before_others);
	return run_suite(suite);
}
