/* SPDX-License-Identifier: MIT */
/*
 * Threads that are cancelled inside the cache: in a driver call, in a callback of a consumer or a
 * subscriber, in the driver's own free. What they were doing is either completed or undone when
 * they end. test_cancel_steps has the places between two instructions.
 */
#define _GNU_SOURCE

#include "cache/base/process/process.h"
#include "cache/base/thread/thread.h"
#include "cache/dmabuf/foreign_dmabufs.h"
#include "cache/end/work.h"
#include "tests/unit/support/cancel_test.h"

/* the type of cancellation: each test is run with both */
static int type;

/* Cancels the calling thread, and then passes a cancellation point. */
static void be_cancelled(void)
{
	pthread_cancel(pthread_self());
	__asan_handle_no_return();
	pthread_testcancel();
}

static void be_cancelled_at_edge(void *arg)
{
	(void)arg;
	be_cancelled();
}

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

static void attach_to_region(void)
{
	pindown_region *own = must_get(AT(0), 1);

	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	region = own;
	pindown_attach_region(consumer, own, 0, 0, 0, KEY(1, 1), NULL, &object);
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

static void remove_consumer(void)
{
	pindown_consumer_remove(consumer);
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
		ck_assert(!pdn_works_any());
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

	_Static_assert(PTHREAD_CANCEL_DEFERRED == 0 && PTHREAD_CANCEL_ASYNCHRONOUS == 1,
		       "what _i stands for");
	for (unsigned i = 0; i < sizeof(both) / sizeof(both[0]); i++)
		tcase_add_loop_test(tc, both[i], 0, IS_FOLLOWED ? 2 : 1);
	tc = objects_case(suite, "cancelled or not");
	tcase_add_test(tc, the_state_stays);
	tcase_add_test(tc, the_type_stays);
	return run_suite(suite);
}
