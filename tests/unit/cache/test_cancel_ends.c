/* SPDX-License-Identifier: MIT */
/*
 * A callback that ends its thread (pthread_exit), which is forbidden: one line says so, and other
 * threads go on.
 */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

#include "cache/objects/object.h"
#include "tests/unit/support/cancel_test.h"

static void end_thread(void)
{
	__asan_handle_no_return();
	pthread_exit(NULL);
}

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
	_exit(0); /* without a look at the accounts: what the thread was doing is lost */
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
			 "stays pinned\n");
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

static void take_all_places_of_consumers(void)
{
	static struct books others[PDN_CONSUMERS];

	for (unsigned i = 0; i < PDN_CONSUMERS; i++)
		books_open(&others[i]);
}

/*
 * The consumer does not wait for the two callbacks that the thread was still to make, and its place
 * is free.
 */
static void quit_in_the_first_of_three_here(void)
{
	for (unsigned i = 1; i <= 3; i++)
		attach_and_detach(consumer, AT(0), KEY(1, i));
	books.in_destroy = quit_in_destroy;
	act = invalidate;
	stderr_of(let_a_thread_act);
	ck_assert_uint_eq(books.destroys, 0);
	ck_assert_int_eq(pindown_consumer_remove(consumer), PINDOWN_OK);
	take_all_places_of_consumers();
	_exit(0);
}

START_TEST(destroy_ends_its_thread_before_others)
{
	in_process_of_its_own(quit_in_the_first_of_three_here);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("threads that callbacks end");
	TCase *tc = objects_case(suite, "ended by a callback");

	tcase_add_test(tc, a_subscriber_ends_its_thread);
	tcase_add_test(tc, a_subscriber_ends_a_thread_that_pins);
	tcase_add_test(tc, create_ends_its_thread);
	tcase_add_test(tc, destroy_ends_its_thread);
	tcase_add_test(tc, destroy_ends_its_thread_before_others);
	return run_suite(suite);
}
