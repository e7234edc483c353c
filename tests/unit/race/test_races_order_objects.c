/* SPDX-License-Identifier: MIT */
/*
 * Attaches and detaches of consumer objects against the end of their regions, where one side's
 * stores become visible late: see order_test.h and test_races_order.c.
 */
#define _GNU_SOURCE
#include "cache/objects/end.h"
#include "cache/pindown.h"
#include "tests/unit/support/order_test.h"

#define OWNER 7

static const struct pindown_key key = {.owner = OWNER};
static int consumer;
static pindown_object *object; /* attached by the other thread */

static int create(const struct pindown_object_request *what, void **data, void *arg)
{
	(void)what;
	*data = arg;
	return 0;
}

static int destroy(const struct pindown_object_end *what, void *arg)
{
	(void)what;
	(void)arg;
	return 0;
}

static void run(const struct race *race, enum payers who)
{
	const struct pindown_consumer ops = {
		.name = "order", .create = create, .destroy = destroy, .arg = &consumer};

	setenv("PINDOWN_BACKEND", "none", 1);
	fake_alloc(BASE, PAGE, FAKE_LINEAR);
	consumer = pindown_consumer_add(&ops, sizeof(ops));
	ck_assert_int_gt(consumer, 0);
	play_race(race, who);
}

static pindown_object *must_attach(unsigned flags)
{
	pindown_object *found = NULL;

	ck_assert_int_eq(pindown_attach(consumer, BASE, 1, flags, &key, NULL, &found), PINDOWN_OK);
	return found;
}

static void idle_object(void)
{
	pindown_detach(must_attach(0));
}

/* ---- an attach ---- */

static void known_object(void)
{
	pindown_detach(must_attach(PINDOWN_GET_CACHED));
}

static void attach(void)
{
	stores_come_late();
	if (pindown_attach(consumer, BASE, 1, PINDOWN_GET_CACHED, &key, NULL, &object) !=
	    PINDOWN_OK)
		object = NULL;
}

static void end_region(void)
{
	skip_barrier_if_broken();
	pindown_invalidate(BASE, 1);
}

static enum outcome is_region_kept(void)
{
	enum outcome outcome = FREQUENT_SAW;

	if (object)
		outcome = stats().kept_regions ? RARE_SAW : NEITHER;
	pindown_detach(object);
	return outcome;
}

START_TEST(an_attach_against_an_end)
{
	static const struct race race = {
		.what = "an attach against an end",
		.prepare = idle_object,
		.duel = {.ready = known_object, .there = attach, .here = end_region},
		.judge = is_region_kept,
		.wrong = "an object was destroyed, and its region unpinned, under its holder",
	};

	run(&race, (enum payers)_i);
}
END_TEST

static int known_holders;

static void end_owner(void)
{
	skip_barrier_if_broken();
	known_holders = pindown_end_owner(consumer, OWNER);
}

static enum outcome is_holder_known(void)
{
	enum outcome outcome = FREQUENT_SAW;

	if (object)
		outcome = known_holders ? RARE_SAW : NEITHER;
	pindown_detach(object);
	return outcome;
}

START_TEST(an_attach_against_the_owners_end)
{
	static const struct race race = {
		.what = "an attach against the owner's end",
		.prepare = idle_object,
		.duel = {.ready = known_object, .there = attach, .here = end_owner},
		.judge = is_holder_known,
		.wrong = "an object was destroyed under its holder",
	};

	run(&race, (enum payers)_i);
}
END_TEST

/* The same for a region that the other thread holds. */
static pindown_region *region;

static void known_object_of_held_region(void)
{
	known_object();
	region = must_get(BASE, 1);
}

static void attach_region(void)
{
	stores_come_late();
	if (pindown_attach_region(consumer, region, 0, 0, PINDOWN_GET_CACHED, &key, NULL,
				  &object) != PINDOWN_OK)
		object = NULL;
}

static enum outcome is_holder_of_object_known(void)
{
	pindown_put(region);
	return is_holder_known();
}

START_TEST(an_attach_to_a_region_against_the_owners_end)
{
	static const struct race race = {
		.what = "an attach to a region against the owner's end",
		.prepare = idle_object,
		.duel = {.ready = known_object_of_held_region,
			 .there = attach_region,
			 .here = end_owner},
		.judge = is_holder_of_object_known,
		.wrong = "an object was destroyed under its holder",
	};

	run(&race, (enum payers)_i);
}
END_TEST

/* ---- a detach ---- */

static void held_object(void)
{
	object = must_attach(PINDOWN_GET_CACHED);
}

static void detach(void)
{
	stores_come_late();
	pindown_detach(object);
}

static enum outcome is_nothing_kept(void)
{
	if (!stats().kept_regions)
		return ONE_SAW; /* which of the two, can't be told any more */
	pdn_object_let_go(pdn_object_number(object));
	ck_assert_uint_eq(stats().kept_regions, 0);
	return NEITHER;
}

START_TEST(a_detach_against_an_end)
{
	static const struct race race = {
		.what = "a detach against an end",
		.prepare = idle_object,
		.duel = {.ready = held_object, .there = detach, .here = end_region},
		.judge = is_nothing_kept,
		.wrong = "the last detach did not let the region go: it is kept for ever",
	};

	run(&race, (enum payers)_i);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: the order of a store and a load, objects");
	TCase *tc = cache_case(suite, "the frequent side's stores come late");

	tcase_add_loop_test(tc, an_attach_against_an_end, 0, PAYERS);
	tcase_add_loop_test(tc, an_attach_against_the_owners_end, 0, PAYERS);
	tcase_add_loop_test(tc, an_attach_to_a_region_against_the_owners_end, 0, PAYERS);
	tcase_add_loop_test(tc, a_detach_against_an_end, 0, PAYERS);
	return run_order_suite(suite);
}
