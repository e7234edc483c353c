/* SPDX-License-Identifier: MIT */
/*
 * Callbacks that call what could wait for them, and those that return in another thread.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "cache/pindown.h"
#include "tests/unit/support/api_test.h"
#include "tests/unit/support/sanitizers.h"

/* ---- callbacks that call what could wait for them ---- */

static int ids[2], answers[2];
static pthread_barrier_t both;

/* Each of two callbacks, in two threads, ends what the other belongs to. */
static void remove_the_other(struct books *own, pindown_region *region)
{
	unsigned me = own == &wide;

	(void)region;
	own->in_create = NULL;
	pthread_barrier_wait(&both);
	answers[me] = pindown_consumer_remove(ids[!me]);
}

static void attach_to_wide(void *arg)
{
	pindown_object *object;

	(void)arg;
	if (pindown_attach(ids[1], AT(1), 1, 0, KEY(1, 1), NULL, &object) == PINDOWN_OK)
		pindown_detach(object);
}

static bool is_refused_or_done(int answer)
{
	return answer == PINDOWN_OK || answer == PINDOWN_ERR_DEADLOCK;
}

START_TEST(callbacks_that_remove_each_others_consumers_are_refused)
{
	struct worker worker;
	pindown_object *object;

	restore_wait_limit();
	pthread_barrier_init(&both, NULL, 2);
	ids[0] = consumer;
	ids[1] = open_wide(0, 0);
	books.in_create = wide.in_create = remove_the_other;
	worker_start(&worker, attach_to_wide, NULL);
	if (pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object) == PINDOWN_OK)
		pindown_detach(object);
	worker_join(&worker);
	ck_assert(is_refused_or_done(answers[0]) && is_refused_or_done(answers[1]));
	ck_assert(answers[0] == PINDOWN_ERR_DEADLOCK || answers[1] == PINDOWN_ERR_DEADLOCK);
	/* Both are gone by now, whoever was refused. */
	ck_assert_int_eq(pindown_consumer_remove(ids[0]), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_consumer_remove(ids[1]), PINDOWN_ERR_INVALID);
	ck_assert_uint_eq(wide.creates, wide.destroys);
}
END_TEST

/* While one callback runs, its thread has not yet ended the objects on the region. */
static void remove_meanwhile(const struct pindown_invalidation *what, void *arg)
{
	(void)arg;
	pthread_barrier_wait(&both);
	if (what->base == AT(1))
		answers[0] = pindown_consumer_remove(consumer);
	pthread_barrier_wait(&both);
}

static void free_the_first(void *arg)
{
	(void)arg;
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
}

START_TEST(a_consumer_is_removed_while_another_thread_ends_its_objects)
{
	pindown_object *held = must_attach(consumer, AT(0), KEY(1, 1));
	struct worker worker;
	int id;

	attach_and_detach(consumer, AT(0), KEY(2, 1));
	get_and_put(AT(1), 1);
	restore_wait_limit();
	pthread_barrier_init(&both, NULL, 2);
	id = pindown_subscribe(remove_meanwhile, NULL);
	worker_start(&worker, free_the_first, NULL);
	pindown_invalidate(AT(1), 1);
	worker_join(&worker);
	ck_assert_int_eq(answers[0], PINDOWN_ERR_DEADLOCK);
	ck_assert_uint_eq(books.destroys, 2);
	ck_assert_int_eq(books.made[0].in_use, 1);
	ck_assert_int_eq(pindown_consumer_remove(consumer), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_end_owner(consumer, 1), PINDOWN_ERR_INVALID);
	pindown_detach(held);
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

static unsigned met[2];

static void unsubscribe_the_other(const struct pindown_invalidation *what, void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;

	if (what->base != AT(me) || met[me]++)
		return;
	pthread_barrier_wait(&both);
	answers[me] = pindown_unsubscribe(ids[!me]);
}

static void invalidate_the_second(void *arg)
{
	(void)arg;
	pindown_invalidate(AT(1), 1);
}

START_TEST(callbacks_that_unsubscribe_each_other_are_refused)
{
	struct worker worker;

	restore_wait_limit();
	pthread_barrier_init(&both, NULL, 2);
	ids[0] = pindown_subscribe(unsubscribe_the_other, (void *)0);
	ids[1] = pindown_subscribe(unsubscribe_the_other, (void *)1);
	get_and_put(AT(0), 1);
	get_and_put(AT(1), 1);
	worker_start(&worker, invalidate_the_second, NULL);
	pindown_invalidate(AT(0), 1);
	worker_join(&worker);
	ck_assert(is_refused_or_done(answers[0]) && is_refused_or_done(answers[1]));
	ck_assert(answers[0] == PINDOWN_ERR_DEADLOCK || answers[1] == PINDOWN_ERR_DEADLOCK);
	ck_assert_int_eq(pindown_unsubscribe(ids[0]), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_unsubscribe(ids[1]), PINDOWN_ERR_INVALID);
}
END_TEST

/* Whatever a create may call, on the region and consumer that it works for. */
static void call_everything(struct books *own, pindown_region *region)
{
	const struct pindown_range ranges[] = {{AT(0), 1}, {AT(0), 9}, {AT(1), 1}};
	struct visits visits = {0};
	pindown_region *regions[3];

	own->in_create = NULL;
	ck_assert_int_eq(pindown_getv(ranges, 3, PINDOWN_GET_NOWAIT, regions, NULL), PINDOWN_OK);
	ck_assert_ptr_eq(regions[1], region);
	pindown_putv(regions, 3);
	attach_and_detach(consumer, AT(0), KEY(2, 1));
	ck_assert_int_eq(pindown_end_owner(consumer, 2), 0);
	ck_assert_int_eq(pindown_each_object(consumer, see_object, &visits), 0);
	ck_assert_int_eq(pindown_each_region(see_region, &visits), 2);
	ck_assert_uint_eq(stats_of(consumer).objects_made, 1);
	ck_assert_int_eq(pindown_flush(), 1);
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_int_eq(pindown_region_is_live(region), 0);
	ck_assert_int_eq(pindown_consumer_remove(consumer), PINDOWN_OK);
}

START_TEST(create_may_call_everything)
{
	pindown_object *object;

	books.in_create = call_everything;
	ck_assert_int_eq(pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object),
			 PINDOWN_ERR_INVALID);
	ck_assert_uint_eq(books.creates, 2);
	ck_assert_uint_eq(books.destroys, 2);
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

/* ---- callbacks in a fiber, which another thread continues ---- */

static ucontext_t fiber, first_thread, this_thread;
static sem_t has_changed;

static void change_threads(void)
{
	static bool once;

	if (!once) {
		once = true;
		swapcontext(&fiber, &first_thread);
	}
}

static void change_in_create(struct books *of, pindown_region *on)
{
	(void)of, (void)on;
	change_threads();
}

static void change_in_destroy(struct books *of, const struct pindown_object_end *what)
{
	(void)of, (void)what;
	change_threads();
}

static void change_in_subscriber(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	change_threads();
}

static void use_memory(void)
{
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	watched_free(AT(0));
	swapcontext(&fiber, &this_thread);
}

static void *begin_fiber(void *stack)
{
	getcontext(&fiber);
	fiber.uc_stack.ss_sp = stack;
	fiber.uc_stack.ss_size = KIB(256);
	makecontext(&fiber, use_memory, 0);
	swapcontext(&first_thread, &fiber);
	sem_post(&has_changed);
	pause();
	return NULL;
}

static void end_fiber(void)
{
	swapcontext(&this_thread, &fiber);
}

static const char *const changing[] = {"create of the consumer \"books\"",
				       "destroy of the consumer \"books\"", "a subscriber"};

START_TEST(a_return_in_another_thread_is_a_line)
{
	pthread_t first;

	if (UNDER_SANITIZER) {
		skip_test("sanitizers know no fibers");
		return;
	}
	books.in_create = _i == 0 ? change_in_create : NULL;
	books.in_destroy = _i == 1 ? change_in_destroy : NULL;
	if (_i == 2)
		ck_assert_int_gt(pindown_subscribe(change_in_subscriber, NULL), 0);
	sem_init(&has_changed, 0, 0);
	ck_assert_int_eq(pthread_create(&first, NULL, begin_fiber, malloc(KIB(256))), 0);
	sem_wait(&has_changed);
	const char *said = stderr_of(end_fiber);
	ck_assert_ptr_nonnull(
		strstr(said, " has returned in another thread than it was called in: "));
	ck_assert_ptr_nonnull(strstr(said, changing[_i]));
}
END_TEST

static pid_t child;
static int status_of_child = -1;

static void fork_in_destroy(struct books *of, const struct pindown_object_end *what)
{
	(void)of, (void)what;
	child = fork();
	if (child)
		waitpid(child, &status_of_child, 0);
}

static void free_it(void)
{
	watched_free(AT(0));
}

START_TEST(a_return_in_a_child_is_none)
{
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	books.in_destroy = fork_in_destroy;
	const char *said = stderr_of(free_it);
	if (child == 0)
		_exit(*said != '\0');
	ck_assert_int_eq(status_of_child, 0);
	ck_assert_str_eq(said, "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_callbacks");
	TCase *tc = objects_case(s, "callbacks");

	tcase_add_test(tc, callbacks_that_remove_each_others_consumers_are_refused);
	tcase_add_test(tc, a_consumer_is_removed_while_another_thread_ends_its_objects);
	tcase_add_test(tc, callbacks_that_unsubscribe_each_other_are_refused);
	tcase_add_test(tc, create_may_call_everything);
	tcase_add_loop_test(tc, a_return_in_another_thread_is_a_line, 0, 3);
	tcase_add_test(tc, a_return_in_a_child_is_none);
	return run_suite(s);
}
