/* SPDX-License-Identifier: MIT */
/* Consumer objects: made once, and found again. test_cache_objects_ends has their end. */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>

#include "cache/hook_events.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/trust/trust.h"
#include "tests/unit/support/objects_test.h"

/* ---- finding ------------------------------------------------------------------------------ */

START_TEST(an_object_is_made_once_and_found_again)
{
	int request;
	pindown_object *first = NULL, *again;

	ck_assert_int_eq(pindown_attach(consumer, AT(0) + 5, 100, 0, KEY(1, 7), &request, &first),
			 PINDOWN_OK);
	ck_assert_uint_eq(made_by(first)->owner, 1);
	ck_assert_uint_eq(made_by(first)->access, 7);
	ck_assert_uint_eq(made_by(first)->base, AT(0));
	ck_assert_ptr_eq(made_by(first)->request, &request);
	ck_assert_int_eq(pindown_object_is_live(first), 1);
	again = must_attach(consumer, AT(0) + MIB(1), KEY(1, 7));
	ck_assert_ptr_eq(first, again);
	pindown_detach(first);
	pindown_detach(again);
	for (unsigned i = 0; i < 10000; i++)
		attach_and_detach(consumer, AT(0) + i, KEY(1, 7));
	ck_assert_uint_eq(books.creates, 1);
	ck_assert_uint_eq(books.destroys, 0);
	ck_assert_uint_eq(stats().pins, 1);
	ck_assert_uint_eq(stats().misses, 1);
	ck_assert_uint_eq(stats().hits, 10001);
	ck_assert_uint_eq(stats().objects, 1);
	ck_assert_uint_eq(stats().objects_made, 1);
}
END_TEST

static void hear(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
}

/* Subscribers and consumers have one table. Neither is any number a consumer's. */
START_TEST(an_id_that_is_no_consumers)
{
	const int ids[] = {pindown_subscribe(hear, NULL), consumer + 1, 12345678};
	pindown_object *object = must_attach(consumer, AT(0), KEY(1, 7)), *other = NULL;

	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(pindown_attach(ids[i], AT(0), 1, 0, KEY(1, 8), NULL, &other),
				 PINDOWN_ERR_INVALID);
	pindown_detach(object);
	ck_assert_int_eq(pindown_unsubscribe(ids[0]), PINDOWN_OK);
}
END_TEST

/* Each word of the key counts, and so do the consumer and the region. */
START_TEST(each_key_has_an_object_of_its_own)
{
	static struct books others;
	int other = books_open(&others);
	struct pindown_key keys[] = {{1, {2, 3}}, {9, {2, 3}}, {1, {9, 3}}, {1, {2, 9}}};
	pindown_object *objects[2][4];

	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < 4; i++)
			objects[round][i] = must_attach(consumer, AT(0), &keys[i]);
	ck_assert_uint_eq(books.creates, 4);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_ptr_eq(objects[0][i], objects[1][i]);
		for (unsigned j = 0; j < i; j++)
			ck_assert_ptr_ne(objects[0][i], objects[0][j]);
		pindown_detach(objects[0][i]);
		pindown_detach(objects[1][i]);
	}
	attach_and_detach(other, AT(0), &keys[0]);
	ck_assert_uint_eq(others.creates, 1);
	attach_and_detach(consumer, AT(1), &keys[0]);
	ck_assert_uint_eq(books.creates, 5);
	ck_assert_int_eq(pindown_consumer_remove(other), PINDOWN_OK);
	ck_assert_uint_eq(others.destroys, 1);
	ck_assert_uint_eq(books.destroys, 0);
}
END_TEST

/* The hash of a key is a sum of its words, each times a number: it is the same for all of these. */
START_TEST(keys_with_one_hash_have_an_object_each)
{
	pindown_object *objects[8];

	for (unsigned round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < 8; i++) {
			const struct pindown_key key = {1, {i, 0 - i * 0x9e3779b97f4a7c15u}};

			objects[i] = must_attach(consumer, AT(0), &key);
			ck_assert_uint_eq(made_by(objects[i])->access, i);
		}
		for (unsigned i = 0; i < 8; i++)
			pindown_detach(objects[i]);
	}
	ck_assert_uint_eq(books.creates, 8);
}
END_TEST

START_TEST(cached_only_makes_nothing)
{
	pindown_object *untouched = (pindown_object *)&books, *object = untouched;
	pindown_region *region = must_get(AT(0), 1);

	ck_assert_int_eq(
		pindown_attach(consumer, AT(1), 1, PINDOWN_GET_CACHED, KEY(1, 1), NULL, &object),
		PINDOWN_ERR_NOT_DEVICE);
	ck_assert_int_eq(
		pindown_attach(consumer, AT(0), 1, PINDOWN_GET_CACHED, KEY(1, 1), NULL, &object),
		PINDOWN_ERR_NOT_DEVICE);
	ck_assert_int_eq(pindown_attach_region(consumer, region, 0, 0, PINDOWN_GET_CACHED,
					       KEY(1, 1), NULL, &object),
			 PINDOWN_ERR_NOT_DEVICE);
	ck_assert_ptr_eq(object, untouched);
	ck_assert_uint_eq(books.creates, 0);
	ck_assert_uint_eq(stats().pins, 1);
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	ck_assert_int_eq(
		pindown_attach(consumer, AT(0), 1, PINDOWN_GET_CACHED, KEY(1, 1), NULL, &object),
		PINDOWN_OK);
	pindown_detach(object);
	pindown_put(region);
}
END_TEST

START_TEST(attaching_to_a_region_that_is_held)
{
	pindown_region *region = must_get(AT(0), 1);
	pindown_object *one = NULL, *two = NULL;

	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(
			pindown_attach_region(consumer, region, 0, 0, 0, KEY(1, 1), NULL, &one),
			PINDOWN_OK);
		ck_assert_ptr_eq(pindown_object_region(one), region);
		pindown_detach(one);
	}
	two = must_attach(consumer, AT(0), KEY(1, 1));
	ck_assert_ptr_eq(one, two);
	ck_assert_uint_eq(books.creates, 1);
	pindown_detach(two);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	destroyed(1, PINDOWN_REASON_FREED, 0);
	ck_assert_int_eq(pindown_attach_region(consumer, region, 0, 0, 0, KEY(1, 1), NULL, &one),
			 PINDOWN_ERR_NOT_DEVICE);
	ck_assert_uint_eq(stats().kept_regions, 1);
	ck_assert_uint_eq(stats().object_kept_regions, 0);
	pindown_put(region);
	ck_assert_uint_eq(stats().kept_regions, 0);
}
END_TEST

static void attach_twice(void *arg)
{
	pindown_object *object;

	(void)arg;
	for (unsigned i = 0; i < 2; i++) {
		if (pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object) != PINDOWN_OK)
			_exit(1);
		pindown_detach(object);
	}
}

START_TEST(a_hit_makes_no_system_call)
{
	assert_no_system_call(attach_twice, attach_twice, NULL);
}
END_TEST

/* Where frees can't be trusted the buffer id is compared, and the object ends with the region. */
START_TEST(an_object_of_a_checked_region_is_checked)
{
	pdn_volatile(AT(0), MIB(2));
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	ck_assert_uint_eq(books.creates, 1);
	ck_assert_uint_eq(stats().tag_checks, 1);
	fake_free(AT(0));
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	ck_assert_uint_eq(books.creates, 2);
	destroyed(1, PINDOWN_REASON_STALE, 0);
	ck_assert_uint_eq(books.made[1].id, fake_id(AT(0)));
}
END_TEST

/* Some hits are compared with the driver in any case, which finds an object of dead memory. */
START_TEST(an_object_of_memory_that_died_unseen_is_found)
{
	unsigned hits = 0;

	pdn_hits_for_a_look = 64;
	for (unsigned i = 0; i < 64; i++)
		attach_and_detach(consumer, AT(0), KEY(1, 7));
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	for (; books.creates == 1 && hits < 1000; hits++)
		attach_and_detach(consumer, AT(0), KEY(1, 7));
	ck_assert_uint_lt(hits, 1000);
	destroyed(1, PINDOWN_REASON_STALE, 0);
	ck_assert_uint_eq(stats().hits, 63 + hits - 1);
	ck_assert_uint_eq(stats().distrusted, 1);
	expected_missed = 1;
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
	const struct pindown_consumer good = {
		.name = "x", .create = books_create, .destroy = books_destroy};
	struct pindown_consumer bad[3] = {good, good, good};
	pindown_region *region = must_get(AT(0), 1);
	pindown_object *object = NULL;

	bad[0].name = NULL;
	bad[1].create = NULL;
	bad[2].destroy = NULL;
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(pindown_consumer_add(&bad[i], sizeof(bad[i])),
				 PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_consumer_add(NULL, sizeof(good)), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_consumer_add(&good, 0), PINDOWN_ERR_INVALID);

#define REFUSED(call) ck_assert_int_eq((call), PINDOWN_ERR_INVALID)
	REFUSED(pindown_attach(0, AT(0), 1, 0, KEY(1, 1), NULL, &object));
	REFUSED(pindown_attach(consumer + 1, AT(0), 1, 0, KEY(1, 1), NULL, &object));
	REFUSED(pindown_attach(consumer, AT(0), 0, 0, KEY(1, 1), NULL, &object));
	REFUSED(pindown_attach(consumer, ~0ull, 2, 0, KEY(1, 1), NULL, &object));
	REFUSED(pindown_attach(consumer, AT(0), 1, 4, KEY(1, 1), NULL, &object));
	REFUSED(pindown_attach(consumer, AT(0), 1, 0, NULL, NULL, &object));
	REFUSED(pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, NULL));
	REFUSED(pindown_attach_region(0, region, 0, 0, 0, KEY(1, 1), NULL, &object));
	REFUSED(pindown_attach_region(consumer, NULL, 0, 0, 0, KEY(1, 1), NULL, &object));
	REFUSED(pindown_attach_region(consumer, region, 0, 0, 4, KEY(1, 1), NULL, &object));
	REFUSED(pindown_attach_region(consumer, region, 0, 0, 0, NULL, NULL, &object));
	REFUSED(pindown_attach_region(consumer, region, 0, 0, 0, KEY(1, 1), NULL, NULL));
	REFUSED(pindown_end_owner(0, 1));
	REFUSED(pindown_end_owner(consumer + 1, 1));
	REFUSED(pindown_consumer_remove(0));
	REFUSED(pindown_consumer_remove(-3));
	REFUSED(pindown_consumer_remove(consumer + 1));
#undef REFUSED
	ck_assert_int_eq(pindown_attach(consumer, AT(0), MIB(3), 0, KEY(1, 1), NULL, &object),
			 PINDOWN_ERR_RANGE);
	ck_assert_int_eq(pindown_attach(consumer, AT(9), 1, 0, KEY(1, 1), NULL, &object),
			 PINDOWN_ERR_NOT_DEVICE);
	pindown_detach(NULL);
	ck_assert_ptr_null(object);
	pindown_put(region);
}
END_TEST

/* ---- making ------------------------------------------------------------------------------- */

START_TEST(a_failed_create_gives_the_consumers_own_error)
{
	pindown_object *untouched = (pindown_object *)&books, *object = untouched;
	pindown_region *region = must_get(AT(0), 1);

	books.fail = EOPNOTSUPP;
	ck_assert_int_eq(pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object),
			 PINDOWN_CREATE_FAILED(EOPNOTSUPP));
	ck_assert_int_eq(pindown_attach_region(consumer, region, 0, 0, 0, KEY(1, 1), NULL, &object),
			 PINDOWN_CREATE_FAILED(EOPNOTSUPP));
	ck_assert_ptr_eq(object, untouched);
	ck_assert_uint_eq(stats().objects, 0);
	books.fail = 0;
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	pindown_put(region);
	ck_assert_int_eq(pindown_flush(), 1); /* no hold was left behind */
}
END_TEST

/* The record of an object that was not made serves the next one. */
START_TEST(failed_creates_use_up_no_records)
{
	pindown_object *object;
	uint32_t before;

	attach_and_detach(consumer, AT(0), KEY(1, 1));
	books.fail = EOPNOTSUPP;
	ck_assert_int_lt(pindown_attach(consumer, AT(1), 1, 0, KEY(1, 1), NULL, &object), 0);
	before = pdn_object_high_water();
	for (unsigned i = 0; i < 1000; i++)
		ck_assert_int_lt(pindown_attach(consumer, AT(1), 1, 0, KEY(1, 1), NULL, &object),
				 0);
	ck_assert_uint_eq(pdn_object_high_water(), before);
}
END_TEST

static int inner_result, inner_other;

static void attach_the_same(struct books *b, pindown_region *region)
{
	pindown_object *object;

	b->in_create = NULL;
	inner_result = pindown_attach(consumer, pindown_region_base(region), 1, 0, KEY(1, 1), NULL,
				      &object);
	inner_other = pindown_attach(consumer, AT(1), 1, 0, KEY(1, 1), NULL, &object);
	if (inner_other == PINDOWN_OK)
		pindown_detach(object);
	pindown_flush();
}

START_TEST(create_may_call_anything_but_for_itself)
{
	books.in_create = attach_the_same;
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	ck_assert_int_eq(inner_result, PINDOWN_ERR_BUSY);
	ck_assert_int_eq(inner_other, PINDOWN_OK);
	ck_assert_uint_eq(books.creates, 2);
}
END_TEST

static void free_it(struct books *b, pindown_region *region)
{
	b->in_create = NULL;
	ck_assert_int_eq(watched_free(pindown_region_base(region)), FAKE_SUCCESS);
}

/* Its own free can't wait for it; the object is destroyed, and the region is unpinned. */
START_TEST(create_may_free_the_memory)
{
	pindown_object *object = NULL;

	books.in_create = free_it;
	ck_assert_int_eq(pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object),
			 PINDOWN_ERR_NOT_DEVICE);
	destroyed(1, PINDOWN_REASON_FREED, 0);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

static void remove_consumer(struct books *b, pindown_region *region)
{
	(void)region;
	b->in_create = NULL;
	ck_assert_int_eq(pindown_consumer_remove(consumer), PINDOWN_OK);
}

START_TEST(create_may_remove_its_consumer)
{
	pindown_object *object = NULL;

	books.in_create = remove_consumer;
	ck_assert_int_eq(pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object),
			 PINDOWN_ERR_INVALID);
	destroyed(1, PINDOWN_REASON_OWNER, 0);
	ck_assert_int_eq(pindown_consumer_remove(consumer), PINDOWN_ERR_INVALID);
}
END_TEST

static struct books others;
static int other_consumer;

static void replace_consumer(struct books *b, pindown_region *region)
{
	remove_consumer(b, region);
	other_consumer = books_open(&others);
}

/* The other one has nothing to do with the object that is being made. */
START_TEST(create_may_replace_its_consumer)
{
	pindown_object *object = NULL;

	books.in_create = replace_consumer;
	ck_assert_int_eq(pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object),
			 PINDOWN_ERR_INVALID);
	destroyed(1, PINDOWN_REASON_OWNER, 0);
	attach_and_detach(other_consumer, AT(0), KEY(1, 1));
	ck_assert_uint_eq(others.creates, 1);
	ck_assert_int_eq(pindown_consumer_remove(other_consumer), PINDOWN_OK);
	ck_assert_uint_eq(others.destroys, 1);
}
END_TEST

/* ---- many --------------------------------------------------------------------------------- */

START_TEST(many_objects_on_one_region_and_many_regions)
{
	enum { KEYS = 1500, REGIONS = 1200 };

	for (unsigned i = 0; i < KEYS; i++)
		attach_and_detach(consumer, AT(0), KEY(1, i));
	ck_assert_uint_eq(books.creates, KEYS);
	ck_assert_uint_eq(stats().objects, KEYS);
	for (unsigned i = 0; i < KEYS; i++)
		attach_and_detach(consumer, AT(0), KEY(1, i));
	ck_assert_uint_eq(books.creates, KEYS);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(books.destroys, KEYS);

	setenv("PINDOWN_MAX_REGIONS", "100000", 1);
	for (unsigned i = 0; i < REGIONS; i++) {
		fake_alloc(AT(10 + i), PAGE, FAKE_LINEAR);
		attach_and_detach(consumer, AT(10 + i), KEY(i, 1));
	}
	ck_assert_uint_eq(books.creates, KEYS + REGIONS);
	pindown_flush();
	ck_assert_uint_eq(books.destroys, KEYS + REGIONS);
	attach_and_detach(consumer, AT(11), KEY(1, 1)); /* after the tables were freed */
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: consumer objects");
	TCase *tc = objects_case(suite, "objects");

	tcase_add_test(tc, an_object_is_made_once_and_found_again);
	tcase_add_test(tc, an_id_that_is_no_consumers);
	tcase_add_test(tc, each_key_has_an_object_of_its_own);
	tcase_add_test(tc, keys_with_one_hash_have_an_object_each);
	tcase_add_test(tc, cached_only_makes_nothing);
	tcase_add_test(tc, attaching_to_a_region_that_is_held);
	tcase_add_test(tc, a_hit_makes_no_system_call);
	tcase_add_test(tc, an_object_of_a_checked_region_is_checked);
	tcase_add_test(tc, an_object_of_memory_that_died_unseen_is_found);
	tcase_add_test(tc, bad_arguments_are_refused);
	tcase_add_test(tc, a_failed_create_gives_the_consumers_own_error);
	tcase_add_test(tc, failed_creates_use_up_no_records);
	tcase_add_test(tc, create_may_call_anything_but_for_itself);
	tcase_add_test(tc, create_may_free_the_memory);
	tcase_add_test(tc, create_may_remove_its_consumer);
	tcase_add_test(tc, create_may_replace_its_consumer);
	tcase_add_test(tc, many_objects_on_one_region_and_many_regions);
	return run_suite(suite);
}
