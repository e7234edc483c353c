/* SPDX-License-Identifier: MIT */
/*
 * Lists of regions and objects, whose visitor may do what it likes; and the statistics of a
 * consumer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/pindown.h"
#include "tests/unit/support/api_test.h"
#include "tests/unit/support/lock_balance.h"

/* ---- enumeration ---- */

static const struct pindown_region_info *visit_of(const struct visits *visits, uint64_t base)
{
	const struct pindown_region_info *found = NULL;

	for (int i = 0; i < visits->count; i++)
		if (visits->regions[i].base == base) {
			ck_assert_ptr_null(found);
			found = &visits->regions[i];
		}
	return found;
}

START_TEST(each_region_is_visited_once)
{
	pindown_region *held, *kept;
	const struct pindown_region_info *info;
	struct visits visits = {0};

	ck_assert_int_eq(pindown_each_region(see_region, &visits), 0);
	get_and_put(AT(0), 1);
	held = must_get(AT(1), 1);
	kept = must_get(AT(2), 1);
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	ck_assert_int_eq(watched_free(AT(2)), FAKE_SUCCESS);
	ck_assert_int_eq(pindown_each_region(see_region, &visits), 3);
	ck_assert_int_eq(visits.count, 3);
	info = visit_of(&visits, AT(0));
	ck_assert_ptr_nonnull(info);
	ck_assert(info->is_live && !info->in_use && !info->is_volatile);
	info = visit_of(&visits, AT(1));
	ck_assert_ptr_nonnull(info);
	ck_assert(info->is_live && info->in_use);
	ck_assert_uint_eq(info->length, pindown_region_length(held));
	ck_assert_uint_eq(info->pin_base, pindown_region_pin_base(held));
	ck_assert_uint_eq(info->pin_length, pindown_region_pin_length(held));
	ck_assert_uint_eq(info->buffer_id, pindown_region_buffer_id(held));
	ck_assert_ptr_eq(info->context, pindown_region_context(held));
	ck_assert_int_eq(info->device, pindown_region_device(held));
	info = visit_of(&visits, AT(2));
	ck_assert_ptr_nonnull(info);
	ck_assert(!info->is_live && info->in_use);
	pindown_put(held);
	pindown_put(kept);
	ck_assert_int_eq(pindown_each_region(NULL, NULL), PINDOWN_ERR_INVALID);
}
END_TEST

START_TEST(a_region_is_in_use_by_its_object)
{
	pindown_object *object = must_attach(consumer, AT(0), KEY(1, 1));
	struct visits visits = {0};

	ck_assert_int_eq(pindown_each_region(see_region, &visits), 1);
	ck_assert_int_eq(visits.regions[0].in_use, 1);
	pindown_detach(object);
	visits.count = 0;
	ck_assert_int_eq(pindown_each_region(see_region, &visits), 1);
	ck_assert_int_eq(visits.regions[0].in_use, 0);
}
END_TEST

START_TEST(each_object_of_a_consumer_is_visited)
{
	int id = open_wide(0, 0);
	pindown_object *held = must_attach(consumer, AT(1), KEY(7, 3)), *kept;
	struct visits visits = {0};

	attach_and_detach(consumer, AT(0), KEY(1, 1));
	attach_and_detach(id, AT(0), KEY(1, 1));
	kept = must_attach(consumer, AT(2), KEY(8, 1));
	ck_assert_int_eq(watched_free(AT(2)), FAKE_SUCCESS);
	ck_assert_int_eq(pindown_each_object(consumer, see_object, &visits), 3);
	for (int i = 0; i < 3; i++) {
		const struct pindown_object_info *info = &visits.objects[i];

		ck_assert_int_eq(info->consumer, consumer);
		ck_assert_uint_eq(info->length, MIB(2));
		ck_assert_int_eq(info->in_use, info->base != AT(0));
		ck_assert_int_eq(info->is_live, info->base != AT(2));
		ck_assert_uint_eq(info->key.owner, info->base == AT(0)	 ? 1
						   : info->base == AT(1) ? 7
									 : 8);
	}
	visits.count = 0;
	ck_assert_int_eq(pindown_each_object(0, see_object, &visits), 4);
	visits.count = 0;
	ck_assert_int_eq(pindown_each_object(id, see_object, &visits), 1);
	visits.count = 0;
	visits.stop_at = 2;
	ck_assert_int_eq(pindown_each_object(0, see_object, &visits), 2);
	ck_assert_int_eq(pindown_each_object(-1, see_object, &visits), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_each_object(0, NULL, NULL), PINDOWN_ERR_INVALID);
	pindown_detach(held);
	pindown_detach(kept);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
	visits.count = visits.stop_at = 0;
	ck_assert_int_eq(pindown_each_object(id, see_object, &visits), 0);
}
END_TEST

static void free_all(void)
{
	for (unsigned i = 0; i < 4; i++)
		watched_free(AT(i));
}

/* However many records there were, other threads get the lock in between. */
START_TEST(a_list_takes_the_lock_for_a_few_records_at_a_time)
{
	struct visits visits = {0};

	pdn_looks_per_lock = 1;
	for (unsigned i = 0; i < 4; i++)
		attach_and_detach(consumer, AT(i), KEY(1, 1));
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(watched_free(AT(i)), FAKE_SUCCESS);
	locks_taken = 0;
	ck_assert_int_eq(pindown_each_region(see_region, &visits), 1);
	ck_assert_uint_ge(locks_taken, 4);
	locks_taken = 0;
	ck_assert_int_eq(pindown_each_object(0, see_object, &visits), 1);
	ck_assert_uint_ge(locks_taken, 4);
	locks_taken = 0;
	pdn_recheck(NULL);
	ck_assert_uint_ge(locks_taken, 4);
	ck_assert(is_cached(AT(3), 1));
}
END_TEST

START_TEST(a_visitor_may_free_all_memory)
{
	struct visits visits = {.act = free_all};

	for (unsigned i = 0; i < 4; i++)
		attach_and_detach(consumer, AT(i), KEY(1, 1));
	ck_assert_int_eq(pindown_each_region(see_region, &visits), 1);
	ck_assert_uint_eq(stats().regions, 0);
	visits.count = 0;
	ck_assert_int_eq(pindown_each_object(0, see_object, &visits), 0);
}
END_TEST

static void remove_own_consumer(void)
{
	pindown_consumer_remove(consumer);
}

START_TEST(a_visitor_may_remove_the_consumer)
{
	struct visits visits = {.act = remove_own_consumer};

	for (unsigned i = 0; i < 4; i++)
		attach_and_detach(consumer, AT(i), KEY(1, 1));
	ck_assert_int_eq(pindown_each_object(consumer, see_object, &visits), 1);
	ck_assert_uint_eq(books.destroys, 4);
}
END_TEST

static void quit(void)
{
	pthread_exit(NULL);
}

static void visit_and_quit(void *arg)
{
	struct visits visits = {.act = quit};

	(void)arg;
	pindown_each_region(see_region, &visits);
}

static void *quitting(void *arg)
{
	visit_and_quit(arg);
	return arg; /* not reached */
}

/* Nothing of pindown's is left behind by a visitor that does not return. */
START_TEST(a_visitor_need_not_return)
{
	struct visits visits = {0};
	pthread_t thread;
	void *result = &visits;
	jmp_buf out;

	get_and_put(AT(0), 1);
	visits.out = &out;
	if (!setjmp(out))
		pindown_each_region(see_region, &visits);
	ck_assert_int_eq(visits.count, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, quitting, &visits), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_null(result);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	get_and_put(AT(1), 1);
}
END_TEST

static void *cancelled(void *arg)
{
	struct visits *visits = arg;

	pindown_each_region(see_region, visits);
	return arg; /* not reached */
}

static void cancel_oneself(void)
{
	pthread_cancel(pthread_self());
	pthread_testcancel();
}

START_TEST(a_visitor_may_be_cancelled)
{
	struct visits visits = {.act = cancel_oneself};
	pthread_t thread;
	void *result = NULL;

	get_and_put(AT(0), 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, cancelled, &visits), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
}
END_TEST

static pid_t child;

static void fork_here(void)
{
	child = fork();
}

/* The child's cache is empty: there is nothing else to be visited in it. */
START_TEST(a_visitor_may_fork)
{
	struct visits visits = {.act = fork_here};
	int count, status;

	for (unsigned i = 0; i < 4; i++)
		attach_and_detach(consumer, AT(i), KEY(1, 1));
	visits.stop_at = 1;
	count = pindown_each_region(see_region, &visits);
	if (child == 0) {
		visits = (struct visits){0};
		if (count == 1 && pindown_each_region(see_region, &visits) == 0 &&
		    pindown_each_object(0, see_object, &visits) == 0 &&
		    stats_of(consumer).objects_made == 0)
			_exit(0);
		_exit(1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	visits = (struct visits){0};
	ck_assert_int_eq(pindown_each_region(see_region, &visits), 4);
}
END_TEST

/* ---- statistics of a consumer ---- */

START_TEST(a_consumer_is_counted_alone)
{
	int id = open_wide(0, 0);
	struct pindown_consumer_stats of;
	pindown_object *object, *held;

	attach_and_detach(id, AT(0), KEY(1, 1));
	object = must_attach(consumer, AT(0), KEY(1, 1));
	held = must_attach(consumer, AT(1), KEY(1, 1));
	attach_and_detach(consumer, AT(2), KEY(1, 1));
	books.fail = EIO;
	ck_assert_int_eq(attach_nowait(AT(3), 5), PINDOWN_CREATE_FAILED(EIO));
	books.fail = 0;
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
	of = stats_of(consumer);
	ck_assert_uint_eq(of.objects, 3);
	ck_assert_uint_eq(of.held_objects, 2);
	ck_assert_uint_eq(of.kept_objects, 1);
	ck_assert_uint_eq(of.objects_made, 3);
	ck_assert_uint_eq(of.create_errors, 1);
	ck_assert_uint_eq(of.objects_revoked, 0);
	ck_assert_uint_eq(stats_of(id).objects_made, 1);
	ck_assert_uint_eq(stats_of(id).create_errors, 0);
	pindown_detach(object);
	pindown_detach(held);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
	ck_assert_int_eq(pindown_consumer_stats(id, &of, sizeof(of)), PINDOWN_ERR_INVALID);
}
END_TEST

START_TEST(revoked_objects_are_counted)
{
	pindown_object *object = must_attach(consumer, AT(0), KEY(1, 1));

	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(stats_of(consumer).objects_revoked, 1);
	ck_assert_uint_eq(stats_of(consumer).objects, 0);
	pindown_detach(object);
}
END_TEST

static void open_books_that_revoke(void)
{
	setenv("PINDOWN_HELD", "revoke", 1);
	open_books();
}

START_TEST(statistics_of_another_size)
{
	struct {
		struct pindown_consumer_stats of;
		uint64_t more;
	} larger;
	uint64_t smaller[2] = {9, 9};

	attach_and_detach(consumer, AT(0), KEY(1, 1));
	memset(&larger, 0x55, sizeof(larger));
	ck_assert_int_eq(pindown_consumer_stats(consumer, &larger.of, sizeof(larger)), PINDOWN_OK);
	ck_assert_uint_eq(larger.of.objects, 1);
	ck_assert_uint_eq(larger.more, 0);
	ck_assert_int_eq(pindown_consumer_stats(consumer, (void *)smaller, 8), PINDOWN_OK);
	ck_assert_uint_eq(smaller[0], 1);
	ck_assert_uint_eq(smaller[1], 9);
	ck_assert_int_eq(pindown_consumer_stats(consumer, NULL, 8), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_consumer_stats(consumer, &larger.of, 0), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_consumer_stats(0, &larger.of, 8), PINDOWN_ERR_INVALID);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_lists");
	TCase *tc = objects_case(s, "lists");

	tcase_add_test(tc, each_region_is_visited_once);
	tcase_add_test(tc, a_region_is_in_use_by_its_object);
	tcase_add_test(tc, each_object_of_a_consumer_is_visited);
	tcase_add_test(tc, a_list_takes_the_lock_for_a_few_records_at_a_time);
	tcase_add_test(tc, a_visitor_may_free_all_memory);
	tcase_add_test(tc, a_visitor_may_remove_the_consumer);
	tcase_add_test(tc, a_visitor_need_not_return);
	tcase_add_test(tc, a_visitor_may_be_cancelled);
	tcase_add_test(tc, a_visitor_may_fork);
	tcase_add_test(tc, a_consumer_is_counted_alone);
	tcase_add_test(tc, statistics_of_another_size);
	tc = suite_case(s, "revoke", open_books_that_revoke, close_books);
	tcase_add_test(tc, revoked_objects_are_counted);
	return run_suite(s);
}
