/* SPDX-License-Identifier: MIT */
/*
 * The end of an owner, while threads make or destroy objects of that owner: the end waits for them,
 * however long that takes. If they may be waiting for the end in turn, it returns an error instead.
 */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "tests/unit/support/objects_test.h"

static struct gate inside[2], go_on[2];
static int results[2];

static void open_books_and_gates(void)
{
	open_books();
	for (unsigned i = 0; i < 2; i++) {
		gate_init(&inside[i]);
		gate_init(&go_on[i]);
		results[i] = 4711;
	}
}

static void end_owner(void *arg)
{
	results[(uintptr_t)arg] = pindown_end_owner(consumer, 1);
}

static void free_memory(void *arg)
{
	watched_free(AT((uintptr_t)arg));
}

/* ---- for however long it takes ---- */

static void stop_in_destroy(struct books *own, const struct pindown_object_end *what)
{
	(void)what;
	own->in_destroy = NULL;
	gate_open(&inside[0]);
	gate_wait(&go_on[0]);
}

static void stop_in_create(struct books *own, pindown_region *region)
{
	(void)region;
	own->in_create = NULL;
	gate_open(&inside[0]);
	gate_wait(&go_on[0]);
}

static void attach_and_let_go(void *arg)
{
	(void)arg;
	attach_and_detach(consumer, AT(0), KEY(1, 1));
}

/*
 * The end must wait longer than any other call would. The thread that made the object may still
 * hold it.
 */
static void must_wait_for(void (*act)(void *), int max_held)
{
	struct worker actor, ender;

	pdn_race_wait_ns = 1000000;
	worker_start(&actor, act, NULL);
	gate_wait(&inside[0]);
	worker_start(&ender, end_owner, NULL);
	worker_wait_idle(&ender);
	ck_assert(!worker_is_done(&ender));
	gate_open(&go_on[0]);
	worker_join(&ender);
	worker_join(&actor);
	ck_assert(results[0] >= 0 && results[0] <= max_held);
	ck_assert_uint_eq(stats().objects, 0);
}

START_TEST(it_waits_for_what_is_being_destroyed)
{
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	books.in_destroy = stop_in_destroy;
	must_wait_for(free_memory, 0);
	ck_assert_uint_eq(books.destroys, 1);
}
END_TEST

START_TEST(it_waits_for_what_is_being_made)
{
	books.in_create = stop_in_create;
	must_wait_for(attach_and_let_go, 1);
	ck_assert_uint_eq(books.destroys, 1);
}
END_TEST

/* ---- two threads that would wait for each other ---- */

static int place_of(uint64_t base)
{
	return base == AT(0) ? 0 : 1;
}

/* When both threads are here, each has ended an object that the other would wait for. */
static void end_owner_when_both_are_here(int place)
{
	gate_open(&inside[place]);
	gate_wait(&inside[1 - place]);
	results[place] = pindown_end_owner(consumer, 1);
}

static void end_owner_in_callback(const struct pindown_invalidation *what, void *arg)
{
	(void)arg;
	end_owner_when_both_are_here(place_of(what->base));
}

static void end_owner_in_destroy(struct books *own, const struct pindown_object_end *what)
{
	(void)own;
	if (results[place_of(pindown_region_base(what->region))] == 4711)
		end_owner_when_both_are_here(place_of(pindown_region_base(what->region)));
}

static void two_free_at_once(void)
{
	struct worker workers[2];

	for (uintptr_t i = 0; i < 2; i++)
		worker_start(&workers[i], free_memory, (void *)i);
	for (uintptr_t i = 0; i < 2; i++)
		worker_join(&workers[i]);
	/* They would have waited for each other, so at least one of them has not waited. */
	for (uintptr_t i = 0; i < 2; i++)
		ck_assert(results[i] >= 0 || results[i] == PINDOWN_ERR_DEADLOCK);
	ck_assert(results[0] < 0 || results[1] < 0);
}

START_TEST(two_subscribers_that_end_the_owner)
{
	pindown_object *held[2];
	int id = pindown_subscribe(end_owner_in_callback, NULL);

	for (unsigned i = 0; i < 2; i++)
		held[i] = must_attach(consumer, AT(i), KEY(1, i));
	two_free_at_once();
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 2);
	for (unsigned i = 0; i < 2; i++)
		pindown_detach(held[i]);
	ck_assert_uint_eq(books.destroys, 2);
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
}
END_TEST

START_TEST(two_destroys_that_end_the_owner)
{
	for (unsigned i = 0; i < 2; i++)
		attach_and_detach(consumer, AT(i), KEY(1, i));
	books.in_destroy = end_owner_in_destroy;
	two_free_at_once();
	ck_assert_uint_eq(books.destroys, 2);
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
}
END_TEST

/* ---- a thread that waits for a free in which the owner ends ---- */

static int get_result;

static void get_in_destroy(struct books *own, const struct pindown_object_end *what)
{
	pindown_region *region = NULL;

	(void)what;
	own->in_destroy = NULL;
	gate_open(&inside[1]);
	gate_wait(&go_on[1]); /* by now the other thread frees the memory that is asked for */
	get_result = pindown_get(AT(0), 1, 0, &region);
	pindown_put(region);
}

static void end_owner_when_it_waits(const struct pindown_invalidation *what, void *arg)
{
	if (what->base != AT(0))
		return;
	gate_open(&go_on[1]);
	worker_wait_idle(arg);
	results[0] = pindown_end_owner(consumer, 1);
}

START_TEST(one_destroy_that_waits_for_the_free)
{
	struct worker freer;
	int id = pindown_subscribe(end_owner_when_it_waits, &freer);

	get_and_put(AT(0), 1);
	attach_and_detach(consumer, AT(1), KEY(1, 1));
	books.in_destroy = get_in_destroy;
	worker_start(&freer, free_memory, (void *)1);
	gate_wait(&inside[1]);
	free_memory(0);
	worker_join(&freer);
	ck_assert_int_eq(results[0], PINDOWN_ERR_DEADLOCK);
	ck_assert_int_eq(get_result, PINDOWN_ERR_NOT_DEVICE);
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
}
END_TEST

/* The same where the free is in the driver. */
START_TEST(one_destroy_that_waits_for_the_drivers_free)
{
	struct worker freer;

	attach_and_detach(consumer, AT(1), KEY(1, 1));
	books.in_destroy = get_in_destroy;
	worker_start(&freer, free_memory, (void *)1);
	gate_wait(&inside[1]);
	pdn_guard guard = pdn_end_range(AT(0), 0);
	gate_open(&go_on[1]);
	worker_wait_idle(&freer);
	ck_assert_int_eq(pindown_end_owner(consumer, 1), PINDOWN_ERR_DEADLOCK);
	fake_free(AT(0));
	pdn_ended(guard);
	worker_join(&freer);
	ck_assert_int_eq(get_result, PINDOWN_ERR_NOT_DEVICE);
}
END_TEST

/* The end of an owner waits for a thread that itself waits, if nobody waits for the end. */
static void hold_the_free_up(void *arg)
{
	pdn_guard guard = pdn_end_range(AT(0), 0);

	(void)arg;
	gate_open(&inside[0]);
	gate_wait(&go_on[0]);
	fake_free(AT(0));
	pdn_ended(guard);
}

START_TEST(it_waits_for_one_that_waits)
{
	struct worker freer, destroyer, ender;

	attach_and_detach(consumer, AT(1), KEY(1, 1));
	books.in_destroy = get_in_destroy;
	worker_start(&freer, hold_the_free_up, NULL);
	gate_wait(&inside[0]);
	worker_start(&destroyer, free_memory, (void *)1);
	gate_wait(&inside[1]);
	gate_open(&go_on[1]);
	worker_wait_idle(&destroyer);
	worker_start(&ender, end_owner, NULL);
	worker_wait_idle(&ender);
	/* A thread that does give up does so at its second look. */
	for (unsigned looks = 0; looks < 10; looks++) {
		pdn_lock();
		pdn_wake_waiters();
		pdn_unlock();
		worker_wait_idle(&ender);
	}
	ck_assert(!worker_is_done(&ender));
	gate_open(&go_on[0]);
	worker_join(&freer);
	worker_join(&destroyer);
	worker_join(&ender);
	ck_assert_int_eq(results[0], 0);
	ck_assert_int_eq(get_result, PINDOWN_ERR_NOT_DEVICE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: the end of an owner");
	TCase *tc = suite_case(suite, "and others", open_books_and_gates, close_books);

	tcase_add_test(tc, it_waits_for_what_is_being_destroyed);
	tcase_add_test(tc, it_waits_for_what_is_being_made);
	tcase_add_test(tc, two_subscribers_that_end_the_owner);
	tcase_add_test(tc, two_destroys_that_end_the_owner);
	tcase_add_test(tc, one_destroy_that_waits_for_the_free);
	tcase_add_test(tc, one_destroy_that_waits_for_the_drivers_free);
	tcase_add_test(tc, it_waits_for_one_that_waits);
	return run_suite(suite);
}
