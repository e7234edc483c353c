/* SPDX-License-Identifier: MIT */
/*
 * The API's version 0.2: what create is given, objects that serve by more rights or a wider range,
 * and results. Calls that do not wait, vectors, lists and callbacks have tests of their own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <unistd.h>

#include "cache/pindown.h"
#include "tests/unit/support/api_test.h"

/*
 * The layout of 0.2, as tests/exports is the list of its functions: a program that was built with
 * it runs with every later 0.x. Members may be added at the end, where the caller's size is passed
 * or the library fills the structure in.
 */
#if __SIZEOF_POINTER__ == 8
#define SIZE(type, bytes)	  _Static_assert(sizeof(struct type) == (bytes), #type)
#define MEMBER(type, name, place) _Static_assert(offsetof(struct type, name) == (place), #type)
SIZE(pindown_range, 16);
SIZE(pindown_key, 24);
MEMBER(pindown_invalidation, in_use, 28);
MEMBER(pindown_invalidation, region, 32);
MEMBER(pindown_object_request, region, 24);
MEMBER(pindown_object_request, addr, 32);
MEMBER(pindown_object_request, request, 48);
MEMBER(pindown_object_end, data, 24);
MEMBER(pindown_object_end, in_use, 44);
MEMBER(pindown_consumer, arg, 24);
MEMBER(pindown_consumer, rights, 32);
MEMBER(pindown_consumer, flags, 40);
MEMBER(pindown_stats, backend, 152);
MEMBER(pindown_stats, exports_saved, 232);
MEMBER(pindown_consumer_stats, objects_revoked, 40);
MEMBER(pindown_region_info, context, 40);
MEMBER(pindown_region_info, in_use, 60);
MEMBER(pindown_object_info, base, 24);
MEMBER(pindown_object_info, in_use, 48);
#endif

/* ---- what create is given ------------------------------------------------------------------- */

START_TEST(create_gets_the_range_that_was_asked_for)
{
	pindown_region *region = must_get(AT(1), 1);
	pindown_object *object[3];

	ck_assert_int_eq(pindown_attach(consumer, AT(0) + 5, 100, 0, KEY(1, 1), NULL, &object[0]),
			 PINDOWN_OK);
	ck_assert_uint_eq(made_by(object[0])->addr, AT(0) + 5);
	ck_assert_uint_eq(made_by(object[0])->length, 100);
	ck_assert_int_eq(pindown_attach_region(consumer, region, AT(1) + 7, 9, 0, KEY(1, 1), NULL,
					       &object[1]),
			 PINDOWN_OK);
	ck_assert_uint_eq(made_by(object[1])->addr, AT(1) + 7);
	ck_assert_uint_eq(made_by(object[1])->length, 9);
	ck_assert_int_eq(
		pindown_attach_region(consumer, region, 3, 0, 0, KEY(2, 1), NULL, &object[2]),
		PINDOWN_OK);
	ck_assert_uint_eq(made_by(object[2])->addr, AT(1));
	ck_assert_uint_eq(made_by(object[2])->length, MIB(2));
	for (unsigned i = 0; i < 3; i++)
		pindown_detach(object[i]);
	pindown_put(region);
}
END_TEST

START_TEST(a_range_outside_of_the_region_is_refused)
{
	const struct pindown_range bad[] = {
		{AT(1) - 1, 1}, {AT(1) + MIB(2), 1}, {AT(1), MIB(2) + 1}, {AT(1) + 1, SIZE_MAX}};
	pindown_region *region = must_get(AT(1), 1);
	pindown_object *object = NULL;

	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(pindown_attach_region(consumer, region, bad[i].addr, bad[i].length,
						       0, KEY(1, 1), NULL, &object),
				 PINDOWN_ERR_RANGE);
	ck_assert_uint_eq(books.creates, 0);
	ck_assert_ptr_null(object);
	pindown_put(region);
}
END_TEST

/* ---- objects that serve besides that of the key --------------------------------------------- */

#define READ   1u
#define WRITE  2u
#define ATOMIC 4u
#define ORDER  8u /* no right */

/* Which of the objects, by the order in which they were made, is found or made for this key. */
static unsigned served(int whose, uint64_t owner, uint64_t word0, uint64_t word1)
{
	const struct pindown_key key = {.owner = owner, .word = {word0, word1}};
	pindown_object *object = must_attach(whose, AT(0), &key);
	unsigned place = (unsigned)(made_by(object) - wide.made);

	pindown_detach(object);
	return place;
}

START_TEST(an_object_with_more_rights_serves)
{
	int id = open_wide(READ | WRITE | ATOMIC, 0);

	ck_assert_uint_eq(served(id, 1, READ | WRITE, 0), 0);
	ck_assert_uint_eq(served(id, 1, READ, 0), 0);
	ck_assert_uint_eq(served(id, 1, 0, 0), 0);
	ck_assert_uint_eq(served(id, 1, READ | ATOMIC, 0), 1);
	ck_assert_uint_eq(served(id, 1, ATOMIC, 0), 1);
	ck_assert_uint_eq(served(id, 1, READ, 0), 1); /* both serve: the newer one */
	ck_assert_uint_eq(served(id, 1, READ | WRITE, 0), 0);
	ck_assert_uint_eq(served(id, 1, READ | ORDER, 0), 2); /* the rest of the word is compared */
	ck_assert_uint_eq(served(id, 1, READ, 5), 3);	      /* and the other words */
	ck_assert_uint_eq(served(id, 2, READ, 0), 4);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
	ck_assert_uint_eq(wide.destroys, 5);
}
END_TEST

START_TEST(without_a_mask_rights_are_compared)
{
	int id = open_wide(0, 0);

	ck_assert_uint_eq(served(id, 1, READ | WRITE, 0), 0);
	ck_assert_uint_eq(served(id, 1, READ, 0), 1);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
}
END_TEST

START_TEST(the_mask_of_an_earlier_consumer_is_forgotten)
{
	int id = open_wide(~0ull, PINDOWN_CONSUMER_RANGES);

	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
	id = open_wide(0, 0);
	ck_assert_uint_eq(served(id, 1, READ | WRITE, 0), 0);
	ck_assert_uint_eq(served(id, 1, READ, 0), 1);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
}
END_TEST

#define RANGE(first, count) PINDOWN_KEY_RANGE(AT(0) + (first)*PAGE, (count)*PAGE)

START_TEST(an_object_of_a_wider_range_serves)
{
	int id = open_wide(READ | WRITE, PINDOWN_CONSUMER_RANGES);

	ck_assert_uint_eq(served(id, 1, READ, RANGE(4, 4)), 0);
	ck_assert_uint_eq(served(id, 1, READ, RANGE(4, 4)), 0);
	ck_assert_uint_eq(served(id, 1, READ, RANGE(5, 2)), 0);
	ck_assert_uint_eq(served(id, 1, READ, RANGE(7, 1)), 0);
	ck_assert_uint_eq(served(id, 1, READ, RANGE(7, 2)), 1);
	ck_assert_uint_eq(served(id, 1, READ, RANGE(3, 2)), 2);
	ck_assert_uint_eq(served(id, 1, READ | WRITE, RANGE(5, 1)), 3);
	ck_assert_uint_eq(served(id, 1, WRITE, RANGE(5, 1)), 3);
	ck_assert_uint_eq(served(id, 1, WRITE, RANGE(0, 32)), 4);
	ck_assert_uint_eq(served(id, 1, WRITE, RANGE(0, 1)), 4);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
}
END_TEST

START_TEST(a_range_as_a_word_of_a_key)
{
	uint64_t word = PINDOWN_KEY_RANGE(0x7f4400012345, 0x20000);

	ck_assert_uint_eq(PINDOWN_KEY_RANGE_BASE(word), 0x7f4400010000);
	ck_assert_uint_eq(PINDOWN_KEY_RANGE_LENGTH(word), 0x30000);
	word = PINDOWN_KEY_RANGE(0xffffffff0000, 0x10000);
	ck_assert_uint_eq(PINDOWN_KEY_RANGE_BASE(word), 0xffffffff0000);
	ck_assert_uint_eq(PINDOWN_KEY_RANGE_LENGTH(word), 0x10000);
}
END_TEST

/* A hit on another object than that of the key is one like any other. */
static int wide_consumer;

static void attach_less(void *arg)
{
	pindown_object *object;

	(void)arg;
	for (unsigned i = 0; i < 2; i++) {
		if (pindown_attach(wide_consumer, AT(0), 1, 0, KEY(1, READ), NULL, &object) != 0)
			_exit(1);
		pindown_detach(object);
	}
}

static void attach_more(void *arg)
{
	attach_and_detach(wide_consumer, AT(0), KEY(1, READ | WRITE));
	attach_less(arg);
}

START_TEST(a_hit_by_more_rights_makes_no_system_call)
{
	wide_consumer = open_wide(READ | WRITE, 0);
	assert_no_system_call(attach_more, attach_less, NULL);
}
END_TEST

START_TEST(an_object_that_has_ended_serves_nobody)
{
	int id = open_wide(READ | WRITE, 0);
	pindown_object *object = must_attach(id, AT(0), KEY(1, READ | WRITE));

	ck_assert_int_eq(pindown_end_owner(id, 1), 1);
	ck_assert_uint_eq(served(id, 1, READ, 0), 1);
	pindown_detach(object);
	ck_assert_uint_eq(wide.destroys, 1);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(wide.destroys, 2);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	ck_assert_uint_eq(served(id, 1, 0, 0), 2);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
}
END_TEST

START_TEST(a_consumer_of_fewer_members_or_unknown_flags)
{
	const struct pindown_consumer ops = {.name = "short",
					     .create = books_create,
					     .destroy = books_destroy,
					     .arg = &wide,
					     .rights = ~0ull,
					     .flags = 2};
	int id;

	ck_assert_int_eq(pindown_consumer_add(&ops, sizeof(ops)), PINDOWN_ERR_INVALID);
	id = pindown_consumer_add(&ops, offsetof(struct pindown_consumer, rights));
	ck_assert_int_gt(id, 0);
	ck_assert_uint_eq(served(id, 1, READ | WRITE, 0), 0);
	ck_assert_uint_eq(served(id, 1, READ, 0), 1);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
}
END_TEST

/* ---- results ---- */

START_TEST(each_result_has_a_sentence)
{
	const char *unknown = pindown_strerror(-999), *own = pindown_strerror(-1001);

	for (int i = 0; i > -17; i--) {
		ck_assert_str_ne(pindown_strerror(i), unknown);
		for (int k = 0; k > i; k--)
			ck_assert_str_ne(pindown_strerror(i), pindown_strerror(k));
	}
	ck_assert_str_eq(pindown_strerror(-17), unknown);
	ck_assert_str_ne(own, unknown);
	ck_assert_str_eq(pindown_strerror(INT_MIN), own);
	ck_assert_str_eq(pindown_strerror(INT_MAX), pindown_strerror(0)); /* a count */
	ck_assert_int_eq(PINDOWN_CREATE_ERROR(PINDOWN_CREATE_FAILED(EIO)), EIO);
	ck_assert_int_eq(PINDOWN_CREATE_ERROR(PINDOWN_ERR_TIMED_OUT), 0);
	ck_assert_int_eq(PINDOWN_CREATE_ERROR(7), 0);
}
END_TEST

static int result_of_create(int own)
{
	books.fail = own;
	return attach_nowait(AT(0), 1);
}

START_TEST(what_create_returns_is_carried_in_the_result)
{
	ck_assert_int_eq(result_of_create(EPERM), PINDOWN_CREATE_FAILED(EPERM));
	ck_assert_int_eq(result_of_create(INT_MAX), PINDOWN_CREATE_FAILED(1 << 30));
	ck_assert_int_eq(result_of_create(PINDOWN_ERR_NO_DMABUF), PINDOWN_ERR_NO_DMABUF);
	ck_assert_int_eq(result_of_create(-1000), -1000);
	ck_assert_int_eq(result_of_create(INT_MIN), INT_MIN);
	ck_assert_uint_eq(stats_of(consumer).create_errors, 5);
}
END_TEST

/* It is the consumer that has no memory: other regions don't make room for it. */
START_TEST(a_create_without_memory_evicts_nothing)
{
	for (unsigned i = 1; i < 4; i++)
		attach_and_detach(consumer, AT(i), KEY(1, 1));
	ck_assert_int_eq(result_of_create(PINDOWN_ERR_NO_MEMORY), PINDOWN_ERR_NO_MEMORY);
	ck_assert_uint_eq(stats_of(consumer).create_errors, 1);
	ck_assert_uint_eq(stats().evictions, 0);
	ck_assert_uint_eq(stats().objects, 3);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_api");
	TCase *tc = objects_case(s, "objects");

	tcase_add_test(tc, create_gets_the_range_that_was_asked_for);
	tcase_add_test(tc, a_range_outside_of_the_region_is_refused);
	tcase_add_test(tc, an_object_with_more_rights_serves);
	tcase_add_test(tc, without_a_mask_rights_are_compared);
	tcase_add_test(tc, the_mask_of_an_earlier_consumer_is_forgotten);
	tcase_add_test(tc, an_object_of_a_wider_range_serves);
	tcase_add_test(tc, a_range_as_a_word_of_a_key);
	tcase_add_test(tc, a_hit_by_more_rights_makes_no_system_call);
	tcase_add_test(tc, an_object_that_has_ended_serves_nobody);
	tcase_add_test(tc, a_consumer_of_fewer_members_or_unknown_flags);
	tc = objects_case(s, "results");
	tcase_add_test(tc, each_result_has_a_sentence);
	tcase_add_test(tc, what_create_returns_is_carried_in_the_result);
	tcase_add_test(tc, a_create_without_memory_evicts_nothing);
	return run_suite(s);
}
