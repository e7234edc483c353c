/* SPDX-License-Identifier: MIT */
/*
 * The cost of many consumer objects on one region, counted in instructions: a hit, a new object, a
 * detach and an object's own end take few instructions more, and the end of the region takes as
 * many for each object.
 */
#define _GNU_SOURCE
#include <stdio.h>

#include "tests/unit/support/objects_test.h"
#include "tests/unit/support/stepping.h"

#define FEW  12u
#define MANY 30000u

#define READ	     1u
#define WRITE	     2u
#define PD	     1u
#define PLACE(i)     (64 * (uint64_t)(i)) /* pages; 16 of them are the object's range */
#define RANGE(at, n) PINDOWN_KEY_RANGE((at)*PAGE, (n)*PAGE)
#define RANGE_KEY(rights, at, n) \
	(&(const struct pindown_key){.owner = PD, .word = {rights, RANGE(at, n)}})

static int wide; /* a consumer with rights and ranges */
static pindown_object *held[MANY];

static int open_wide(void)
{
	const struct pindown_consumer ops = {.name = "wide",
					     .create = books_create,
					     .destroy = books_destroy,
					     .arg = &books,
					     .rights = READ | WRITE,
					     .flags = PINDOWN_CONSUMER_RANGES};
	int id = pindown_consumer_add(&ops, sizeof(ops));

	ck_assert_int_gt(id, 0);
	return id;
}

static void make_exact(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		attach_and_detach(consumer, AT(0), KEY(PD, i));
}

static void make_wide(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		attach_and_detach(wide, AT(0), RANGE_KEY(READ, PLACE(i), 16));
}

/* ---- instructions --------------------------------------------------------------------------- */

static int asked;
static const struct pindown_key *wanted;

static void step_hit(void)
{
	pindown_object *object = NULL;

	step_from_here();
	int result = pindown_attach(asked, AT(0), 1, PINDOWN_GET_CACHED, wanted, NULL, &object);
	step_to_here();
	ck_assert_int_eq(result, PINDOWN_OK);
	pindown_detach(object);
}

static unsigned hit(int whose, const struct pindown_key *key)
{
	asked = whose;
	wanted = key;
	return fewest_instructions(step_hit);
}

static void step_detach(void)
{
	pindown_object *object = must_attach(consumer, AT(0), KEY(PD, 1));

	step_from_here();
	pindown_detach(object);
	step_to_here();
}

/* An object is made; its owner's end is no part of the count. */
static void step_creation(void)
{
	pindown_object *object = NULL;

	step_from_here();
	int result = pindown_attach(asked, AT(0), 1, 0, wanted, NULL, &object);
	step_to_here();
	ck_assert_int_eq(result, PINDOWN_OK);
	pindown_detach(object);
	pindown_end_owner(asked, wanted->owner);
}

static unsigned creation(int whose, const struct pindown_key *key)
{
	asked = whose;
	wanted = key;
	return fewest_instructions(step_creation);
}

/* The first object made, one in the middle, and the last one; and a look-up that finds none. */
START_TEST(a_hit_on_one_of_many)
{
	unsigned one, oldest, middle, newest, detach_one, detach_many;

	make_exact(0, 1);
	for (unsigned i = 0; i < 8; i++) /* the first uses of a region are counted */
		make_exact(0, 1);
	one = hit(consumer, KEY(PD, 0));
	make_exact(1, FEW);
	detach_one = fewest_instructions(step_detach);
	make_exact(FEW, MANY);
	oldest = hit(consumer, KEY(PD, 0));
	middle = hit(consumer, KEY(PD, MANY / 2));
	newest = hit(consumer, KEY(PD, MANY - 1));
	detach_many = fewest_instructions(step_detach);
	printf("instructions of a hit on one object: %u; of %u: the oldest %u, newest %u\n", one,
	       MANY, oldest, newest);
	ck_assert_uint_lt(oldest, 4 * one);
	ck_assert_uint_lt(middle, 4 * one);
	ck_assert_uint_eq(newest, one);
	ck_assert_uint_eq(detach_many, detach_one);
}
END_TEST

START_TEST(a_hit_by_the_rules_on_one_of_many)
{
	unsigned few, many, nested;

	wide = open_wide();
	make_wide(0, FEW);
	few = hit(wide, RANGE_KEY(READ, PLACE(3) + 4, 2));
	make_wide(FEW, MANY / 2);
	many = hit(wide, RANGE_KEY(READ, PLACE(3) + 4, 2));
	ck_assert_uint_lt(hit(wide, RANGE_KEY(0, PLACE(MANY / 4) + 4, 2)), 12 * few);
	/* Each reaches over the one before, and none has both rights. */
	for (unsigned i = 0; i < MANY / 2; i++)
		attach_and_detach(wide, AT(0), RANGE_KEY(WRITE, MANY - i, 2 * i + 1));
	nested = hit(wide, RANGE_KEY(WRITE, MANY - 1, 3));
	printf("instructions of a hit on a wider range: %u with few, %u with many, %u nested\n",
	       few, many, nested);
	ck_assert_uint_lt(many, 6 * few);
	ck_assert_uint_lt(nested, 12 * few);
	ck_assert_uint_eq(books.creates, MANY);
}
END_TEST

START_TEST(a_new_object_beside_many)
{
	unsigned few, many, few_wide, many_wide;

	wide = open_wide();
	make_exact(0, FEW);
	make_wide(0, FEW);
	few = creation(consumer, KEY(PD + 1, 1));
	few_wide = creation(wide, &(const struct pindown_key){.owner = PD + 1});
	make_exact(FEW, MANY / 2);
	make_wide(FEW, MANY / 2);
	many = creation(consumer, KEY(PD + 1, 1));
	many_wide = creation(wide, &(const struct pindown_key){.owner = PD + 1});
	printf("instructions of a creation: %u with few, %u with many; with ranges %u and %u\n",
	       few, many, few_wide, many_wide);
	ck_assert_uint_lt(many, 2 * few);
	ck_assert_uint_lt(many_wide, 3 * few_wide);
}
END_TEST

/* ---- ends ----------------------------------------------------------------------------------- */

static unsigned count;

static void step_free(void)
{
	fake_free(AT(1));
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	for (unsigned i = 0; i < count; i++)
		attach_and_detach(i % 2 ? consumer : wide, AT(1), RANGE_KEY(READ, PLACE(i), 16));
	step_from_here();
	pdn_guard guard = pdn_end_range(AT(1), 0);
	step_to_here();
	fake_free(AT(1));
	pdn_ended(guard);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
}

START_TEST(the_free_of_a_region_with_many)
{
	unsigned few, many;

	wide = open_wide();
	count = 15;
	few = count_instructions(step_free);
	count = 150;
	many = count_instructions(step_free);
	printf("instructions of a free for each object: %u with 15, %u with 150\n", few / 15,
	       many / 150);
	ck_assert_uint_lt(many, 10 * few + few / 4);
}
END_TEST

static void step_last_detach(void)
{
	step_from_here();
	pindown_detach(held[count]);
	step_to_here();
	held[count++] = NULL;
}

/* Their memory is freed while they are held; then each goes with its last detach. */
static unsigned last_detach_of(unsigned n)
{
	unsigned length;

	for (unsigned i = 0; i < n; i++)
		held[i] = must_attach(consumer, AT(1), KEY(PD, i));
	watched_free(AT(1));
	ck_assert_uint_eq(stats().kept_regions, 1);
	count = n / 2;
	length = fewest_instructions(step_last_detach);
	for (unsigned i = 0; i < n; i++)
		pindown_detach(held[i]);
	ck_assert_uint_eq(stats().kept_regions, 0);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	return length;
}

START_TEST(the_last_detach_of_one_of_many)
{
	unsigned few, many;

	few = last_detach_of(FEW);
	many = last_detach_of(MANY);
	printf("instructions of the last detach after a free: %u of few, %u of many\n", few, many);
	ck_assert_uint_lt(many, few + few / 2);
}
END_TEST

/* An owner and a consumer with a few objects, beside those of others. */

static void step_end_of_owner(void)
{
	attach_and_detach(consumer, AT(0), KEY(PD + 7, 1));
	step_from_here();
	int left = pindown_end_owner(consumer, PD + 7);
	step_to_here();
	ck_assert_int_eq(left, 0);
}

static void step_end_of_consumer(void)
{
	int other = open_wide();

	attach_and_detach(other, AT(0), RANGE_KEY(READ, 0, 1));
	step_from_here();
	int result = pindown_consumer_remove(other);
	step_to_here();
	ck_assert_int_eq(result, PINDOWN_OK);
}

static void step_statistics(void)
{
	struct pindown_consumer_stats of;

	step_from_here();
	pindown_consumer_stats(wide, &of, sizeof(of));
	step_to_here();
	ck_assert_uint_eq(of.objects, 1);
}

START_TEST(ends_beside_many_of_others)
{
	static void (*const steps[])(void) = {step_end_of_owner, step_end_of_consumer,
					      step_statistics};
	static const char *const names[] = {"the end of an owner", "the end of a consumer",
					    "a consumer's statistics"};
	unsigned few[3], many;

	wide = open_wide();
	make_wide(0, 1);
	make_exact(0, FEW);
	for (unsigned i = 0; i < 3; i++)
		few[i] = fewest_instructions(steps[i]);
	make_exact(FEW, MANY);
	for (unsigned i = 0; i < 3; i++) {
		many = fewest_instructions(steps[i]);
		printf("instructions of %s: %u beside few, %u beside many\n", names[i], few[i],
		       many);
		ck_assert_uint_lt(many, few[i] + few[i] / 2);
	}
}
END_TEST

/* ---- what is found -------------------------------------------------------------------------- */

static unsigned made_at(pindown_object *object)
{
	unsigned place = (unsigned)(made_by(object) - books.made);

	pindown_detach(object);
	return place;
}

/* Each of many is found by its key, also when others have gone, and by what it serves for. */
START_TEST(each_of_many_is_found)
{
	const unsigned n = 3000;

	wide = open_wide();
	for (unsigned i = 0; i < n; i++) {
		unsigned at = i * 1009 % n; /* a prime that is no factor of n */

		attach_and_detach(wide, AT(0),
				  &(const struct pindown_key){.owner = i % 3,
							      .word = {i % 2 ? READ | WRITE : READ,
								       RANGE(PLACE(at), 16)}});
	}
	ck_assert_int_eq(pindown_end_owner(wide, 1), 0);
	ck_assert_uint_eq(books.destroys, n / 3);
	for (unsigned i = 0; i < n; i++) {
		unsigned at = i * 1009 % n;
		struct pindown_key key = {.owner = i % 3};

		if (i % 3 == 1)
			continue;
		for (unsigned narrower = 0; narrower <= 8; narrower++) {
			key.word[0] = i % 2 && narrower % 2 ? WRITE : READ;
			key.word[1] = RANGE(PLACE(at) + narrower, 16 - 2 * narrower);
			if (narrower == 8)
				key.word[1] = RANGE(PLACE(at) + 15, 1);
			ck_assert_uint_eq(made_at(must_attach(wide, AT(0), &key)), i);
		}
	}
	ck_assert_uint_eq(books.creates, n);
	/* One page too far, or one right more, and it is another object. */
	ck_assert_uint_eq(made_at(must_attach(wide, AT(0), RANGE_KEY(READ, 8, 16))), n);
}
END_TEST

/* An object that is held at its owner's end is found no more, one of an owner that lives on is. */
START_TEST(held_objects_among_many)
{
	const unsigned n = 200;

	wide = open_wide();
	for (unsigned i = 0; i < n; i++)
		held[i] = must_attach(wide, AT(0),
				      &(const struct pindown_key){
					      .owner = i % 2, .word = {READ, RANGE(PLACE(i), 16)}});
	pdn_drop_idle_of(wide, 0);
	ck_assert_int_eq(pindown_end_owner(wide, 1), n / 2);
	for (unsigned i = 0; i < n; i++) {
		struct pindown_key key = {.owner = i % 2, .word = {READ, RANGE(PLACE(i), 16)}};
		struct pindown_key less = {.owner = i % 2, .word = {0, RANGE(PLACE(i) + 1, 3)}};
		unsigned found = made_at(must_attach(wide, AT(0), i % 4 < 2 ? &key : &less));

		ck_assert_uint_eq(found, i % 2 ? n + i / 2 : i);
	}
	for (unsigned i = 0; i < n; i++)
		pindown_detach(held[i]);
}
END_TEST

/*
 * Threads attach to some of many objects, while each of them also ends owners: an object that is
 * returned has the key, or the rights, and lives while it is held.
 */
static int failures;

static void attach_some(void *arg)
{
	uint64_t dice = (uintptr_t)arg;

	for (unsigned i = 0; i < 3000; i++) {
		int whose = i % 2 ? consumer : wide;
		pindown_object *object = NULL;
		struct pindown_key key = {0};
		struct made *made;

		dice = dice * 6364136223846793005u + 1442695040888963407u;
		key.owner = dice >> 33 & 3;
		key.word[0] = dice >> 35 & 3;
		key.word[1] = RANGE(dice >> 37 & 7, 1);
		if (pindown_attach(whose, AT(0), 1, 0, &key, NULL, &object) != PINDOWN_OK) {
			__atomic_store_n(&failures, 1, __ATOMIC_RELAXED);
			return;
		}
		made = made_by(object);
		if (made->owner != key.owner ||
		    (whose == wide ? key.word[0] & ~made->access : key.word[0] ^ made->access) ||
		    __atomic_load_n(&made->destroyed, __ATOMIC_RELAXED))
			__atomic_store_n(&failures, 2, __ATOMIC_RELAXED);
		pindown_detach(object);
		if (i % 64 == 0)
			pindown_end_owner(whose, key.owner);
	}
}

START_TEST(threads_that_attach_to_many)
{
	struct worker workers[3];

	wide = open_wide();
	for (unsigned i = 0; i < 3; i++)
		worker_start(&workers[i], attach_some, (void *)(uintptr_t)(i + 1));
	for (unsigned i = 0; i < 3; i++)
		worker_join(&workers[i]);
	ck_assert_int_eq(failures, 0);
}
END_TEST

START_TEST(the_free_of_a_region_with_30000)
{
	wide = open_wide();
	make_exact(0, MANY / 2);
	make_wide(0, MANY / 2);
	ck_assert_uint_eq(stats().objects, MANY);
	watched_free(AT(0));
	ck_assert_uint_eq(books.destroys, MANY);
	ck_assert_uint_eq(stats().objects, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: many objects on a region");
	TCase *tc = objects_case(suite, "many objects");

	if (CAN_COUNT) {
		tcase_add_test(tc, a_hit_on_one_of_many);
		tcase_add_test(tc, a_hit_by_the_rules_on_one_of_many);
		tcase_add_test(tc, a_new_object_beside_many);
		tcase_add_test(tc, the_free_of_a_region_with_many);
		tcase_add_test(tc, the_last_detach_of_one_of_many);
		tcase_add_test(tc, ends_beside_many_of_others);
	}
	tcase_add_test(tc, each_of_many_is_found);
	tcase_add_test(tc, held_objects_among_many);
	tcase_add_test(tc, threads_that_attach_to_many);
	tcase_add_test(tc, the_free_of_a_region_with_30000);
	return run_suite(suite);
}
