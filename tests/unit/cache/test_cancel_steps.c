/* SPDX-License-Identifier: MIT */
/*
 * A thread whose type of cancellation is asynchronous is cancelled before each single instruction
 * of a call in turn. What it was doing is either completed or undone.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/process/process.h"
#include "cache/base/thread/thread.h"
#include "cache/dmabuf/foreign_dmabufs.h"
#include "cache/end/work.h"
#include "tests/unit/support/cancel_test.h"
#include "tests/unit/support/stepping.h"

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

static void free_it(void *arg)
{
	(void)arg;
	watched_free(AT(0));
}

static void *hit_and_free(void *arg)
{
	pindown_region *mine;

	(void)arg;
	get_and_put(AT(0), 1); /* from here on the thread has hold counts of its own */
	pthread_cleanup_push(free_it, NULL);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	step_from_here();
	if (pindown_get(AT(0), 1, 0, &mine) == PINDOWN_OK)
		pindown_put(mine);
	step_to_here();
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
	pthread_cleanup_pop(0);
	return NULL;
}

static void stepped_hit_with_a_handler(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, hit_and_free, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

static void flush_what_is_left(void)
{
	pindown_flush();
}

/* A clean-up handler may free the memory: the thread does not wait for its own announcement. */
START_TEST(a_clean_up_handler_frees_what_was_hit)
{
	static const struct race race = {prepare_a_region, stepped_hit_with_a_handler,
					 cancel_myself, flush_what_is_left};
	int status;
	pid_t child = fork();

	if (child == 0) {
		alarm(60);
		run_race_in_handler("a hit with a handler", &race, 200);
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
	ck_assert_msg(pdn_this_process.lock[PDN_LOCK_CACHE] <= 1,
		      "the cancelled thread still has the lock");
	ck_assert(!pdn_works_any());
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

int main(void)
{
	Suite *suite;
	TCase *tc;

	if (!CAN_STEP || !IS_FOLLOWED) {
		puts("single steps would be those of a sanitizer, or there are none here");
		return 77;
	}
	/* Destructors run in the order of their keys: this one's before pindown's. */
	if (pthread_key_create(&before_pindowns, exit_in_steps) != 0)
		return 1;
	suite = suite_create("cancellation, step by step");
	tc = objects_case(suite, "cancelled or not");
	tcase_add_test(tc, in_a_hit_at_each_instruction);
	tcase_add_test(tc, a_clean_up_handler_frees_what_was_hit);
	tcase_add_loop_test(tc, in_a_vector_at_each_instruction, 0, 2);
	tcase_add_loop_test(tc, at_each_instruction, 0, sizeof(acts) / sizeof(acts[0]));
	tcase_add_loop_test(tc, as_a_record_changes_hands, 0, 2);
	return run_suite(suite);
}
