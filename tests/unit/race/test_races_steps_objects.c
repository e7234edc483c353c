/* SPDX-License-Identifier: MIT */
/* Races at every single instruction of an attach and of a detach; see stepping.h. */
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>

#include "tests/unit/support/objects_test.h"
#include "tests/unit/support/stepping.h"

/* when there are more instructions, only this many are stopped at; or as many as STEP_TURNS says */
#define TURNS 100
#define PD    1

static int result, others_result;
static uint64_t old_id;
static pindown_object *object, *others_object;
static unsigned exports_after_end, destroys_after_end;

/* Rights in the key that the stepped thread asks for: the object's, or 0, which it serves too. */
static uint64_t wanted = 1;

static void open_by_rights(void)
{
	const struct pindown_consumer ops = {.name = "books",
					     .create = books_create,
					     .destroy = books_destroy,
					     .arg = &books,
					     .rights = 1};

	consumer = pindown_consumer_add(&ops, sizeof(ops));
	ck_assert_int_gt(consumer, 0);
	wanted = 0;
}

static void start_afresh(void)
{
	if (!consumer)
		consumer = books_open(&books);
	pindown_flush();
	fake_free(AT(0));
	memset(&books, 0, sizeof(books));
	fake_alloc(AT(0), PAGE, FAKE_LINEAR);
	old_id = fake_id(AT(0));
	object = others_object = NULL;
	result = others_result = exports_after_end = destroys_after_end = 0;
}

static void one_region_without_object(void)
{
	start_afresh();
	pindown_region *region = must_get(AT(0), 1);
	pindown_put(region);
}

static void one_idle_object(void)
{
	start_afresh();
	attach_and_detach(consumer, AT(0), KEY(PD, 1));
}

static void one_held_object(void)
{
	start_afresh();
	object = must_attach(consumer, AT(0), KEY(PD, 1));
}

static void stepped_attach(void)
{
	step_from_here();
	result = pindown_attach(consumer, AT(0), 1, 0, KEY(PD, wanted), NULL, &object);
	step_to_here();
}

static void stepped_detach(void)
{
	step_from_here();
	pindown_detach(object);
	step_to_here();
}

static void other_frees(void)
{
	pdn_guard guard = pdn_end_range(AT(0), 0);

	exports_after_end = fake_open_exports_of(old_id);
	destroys_after_end = books.destroys;
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS);
	pdn_ended(guard);
}

static void other_ends_the_owner(void)
{
	others_result = pindown_end_owner(consumer, PD);
}

static void other_flushes(void)
{
	pindown_flush();
}

static void other_attaches(void)
{
	others_result = pindown_attach(consumer, AT(0), 1, 0, KEY(PD, 1), NULL, &others_object);
}

static void other_detaches(void)
{
	pindown_detach(others_object);
	others_object = NULL;
}

static void each_was_destroyed_once(void)
{
	ck_assert_msg(books.creates == books.destroys, "instruction %u: %u made, %u destroyed",
		      race_instruction(), books.creates, books.destroys);
	for (unsigned i = 0; i < books.creates; i++)
		ck_assert_uint_eq(books.made[i].destroyed, 1);
	ck_assert_msg(!books.pin_is_gone, "instruction %u: destroyed after the unpin",
		      race_instruction());
}

static void assert_all_gone(void)
{
	pindown_flush();
	each_was_destroyed_once();
	ck_assert_msg(fake_open_exports_of(old_id) == 0, "instruction %u: a lost unpin",
		      race_instruction());
	assert_books_balance();
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_uint_eq(stats().objects, 0);
}

/* ---- an attach ---------------------------------------------------------------------------- */

static void check_attach(void)
{
	if (result == PINDOWN_OK) {
		/* The hold came first: it counts, so the object and the pin outlive the free. */
		ck_assert_uint_eq(made_by(object)->id, old_id);
		ck_assert_uint_eq(made_by(object)->destroyed, 0);
		ck_assert_msg(fake_open_exports_of(old_id) == 1,
			      "instruction %u: unpinned under its holder", race_instruction());
		pindown_detach(object);
	} else {
		ck_assert_int_eq(result, PINDOWN_ERR_NOT_DEVICE);
		/* The attach held the pin that it looked at, if only for a moment. */
		ck_assert_uint_le(exports_after_end, 1);
		ck_assert_uint_eq(destroys_after_end, books.creates);
	}
	assert_all_gone();
}

START_TEST(an_attach_against_a_free)
{
	static const struct race race = {one_idle_object, stepped_attach, other_frees,
					 check_attach};

	run_race("attach against free", &race, TURNS);
}
END_TEST

START_TEST(an_attach_by_fewer_rights_against_a_free)
{
	static const struct race race = {one_idle_object, stepped_attach, other_frees,
					 check_attach};

	open_by_rights();
	run_race("attach by fewer rights against free", &race, TURNS);
}
END_TEST

START_TEST(a_making_attach_against_a_free)
{
	static const struct race race = {one_region_without_object, stepped_attach, other_frees,
					 check_attach};

	run_race("attach that makes against free", &race, 2 * TURNS);
}
END_TEST

static void check_attach_and_owner(void)
{
	ck_assert_int_eq(result, PINDOWN_OK);
	ck_assert_uint_eq(made_by(object)->destroyed, 0);
	/* It was held when the owner's end counted, or was made again after that. */
	ck_assert_int_le(others_result, 1);
	if (race_was_inside() && others_result == 1)
		ck_assert_uint_eq(books.creates, 1);
	pindown_detach(object);
	ck_assert_int_eq(pindown_end_owner(consumer, PD), 0);
	each_was_destroyed_once();
	ck_assert_int_eq(pindown_flush(), 1);
	assert_all_gone();
}

START_TEST(an_attach_against_the_owners_end)
{
	static const struct race race = {one_idle_object, stepped_attach, other_ends_the_owner,
					 check_attach_and_owner};

	run_race("attach against the owner's end", &race, TURNS);
}
END_TEST

START_TEST(an_attach_by_fewer_rights_against_the_owners_end)
{
	static const struct race race = {one_idle_object, stepped_attach, other_ends_the_owner,
					 check_attach_and_owner};

	open_by_rights();
	run_race("attach by fewer rights against the owner's end", &race, TURNS);
}
END_TEST

START_TEST(a_making_attach_against_the_owners_end)
{
	static const struct race race = {one_region_without_object, stepped_attach,
					 other_ends_the_owner, check_attach_and_owner};

	run_race("attach that makes against the owner's end", &race, 2 * TURNS);
}
END_TEST

static void check_attach_and_flush(void)
{
	ck_assert_int_eq(result, PINDOWN_OK);
	ck_assert_uint_eq(made_by(object)->destroyed, 0);
	ck_assert_uint_eq(made_by(object)->id, old_id);
	pindown_detach(object);
	assert_all_gone();
}

START_TEST(an_attach_against_a_flush)
{
	static const struct race race = {one_idle_object, stepped_attach, other_flushes,
					 check_attach_and_flush};

	run_race("attach against flush", &race, TURNS);
}
END_TEST

static void check_two_attaches(void)
{
	ck_assert_int_eq(result, PINDOWN_OK);
	ck_assert_int_eq(others_result, PINDOWN_OK);
	if (others_object) { /* the other thread ran, possibly after the end of the first */
		ck_assert_ptr_eq(object, others_object);
		pindown_detach(others_object);
	}
	ck_assert_uint_eq(books.creates, 1);
	pindown_detach(object);
	assert_all_gone();
}

START_TEST(two_that_make_the_same)
{
	static const struct race race = {one_region_without_object, stepped_attach, other_attaches,
					 check_two_attaches};

	run_race("attach against attach", &race, 2 * TURNS);
}
END_TEST

/* The object's record is used again, for another key of the same region. */
static void other_reuses_the_record(void)
{
	pindown_end_owner(consumer, PD);
	attach_and_detach(consumer, AT(0), KEY(PD + 1, 1));
}

static void check_reuse(void)
{
	ck_assert_int_eq(result, PINDOWN_OK);
	ck_assert_uint_eq(made_by(object)->owner, PD);
	ck_assert_uint_eq(made_by(object)->destroyed, 0);
	pindown_detach(object);
	assert_all_gone();
}

START_TEST(an_attach_against_a_record_used_again)
{
	static const struct race race = {one_idle_object, stepped_attach, other_reuses_the_record,
					 check_reuse};

	run_race("attach against reuse of its record", &race, TURNS);
}
END_TEST

/* The same where newer objects of the region hide it: it is found by the hash, or in the tree. */
static void one_idle_object_of_many(void)
{
	one_idle_object();
	for (unsigned i = 0; i < 6; i++)
		attach_and_detach(consumer, AT(0), KEY(PD + 2, 2 * i));
}

START_TEST(an_attach_to_one_of_many_against_its_record_used_again)
{
	static const struct race race = {one_idle_object_of_many, stepped_attach,
					 other_reuses_the_record, check_reuse};

	run_race("attach to one of many against reuse of its record", &race, TURNS);
}
END_TEST

START_TEST(an_attach_by_fewer_rights_to_one_of_many_against_its_record_used_again)
{
	static const struct race race = {one_idle_object_of_many, stepped_attach,
					 other_reuses_the_record, check_reuse};

	open_by_rights();
	run_race("attach by fewer rights to one of many against reuse of its record", &race, TURNS);
}
END_TEST

/*
 * Another object of the region is being destroyed, and its record is then used for an object of
 * another region. A walk over the region's objects must not continue there.
 */
static struct worker ender;
static struct gate inside, go_on;
static bool dies;

static void stop_in_destroy(struct books *b, const struct pindown_object_end *what)
{
	(void)what;
	b->in_destroy = NULL;
	gate_open(&inside);
	gate_wait(&go_on);
}

static void end_the_other_owner(void *arg)
{
	(void)arg;
	pindown_end_owner(consumer, PD + 1);
}

static void one_object_behind_another_that_is_dying(void)
{
	start_afresh();
	fake_free(AT(1));
	fake_alloc(AT(1), PAGE, FAKE_LINEAR);
	attach_and_detach(consumer, AT(1), KEY(PD, 1));
	attach_and_detach(consumer, AT(0), KEY(PD, 1));
	attach_and_detach(consumer, AT(0), KEY(PD + 1, 1));
	gate_init(&inside);
	gate_init(&go_on);
	books.in_destroy = stop_in_destroy;
	worker_start(&ender, end_the_other_owner, NULL);
	gate_wait(&inside);
	dies = true;
}

static void let_it_die(void)
{
	if (!dies)
		return;
	gate_open(&go_on);
	worker_join(&ender);
	dies = false;
}

/* It must not sleep: the stopped thread takes a sleep for waiting, and continues. */
static void other_gives_its_record_to_another_region(void)
{
	gate_open(&go_on);
	while (!worker_is_done(&ender))
		sched_yield();
	attach_and_detach(consumer, AT(1), KEY(PD + 2, 1));
}

static void check_walk(void)
{
	let_it_die();
	ck_assert_int_eq(result, PINDOWN_OK);
	ck_assert_msg(made_by(object)->base == AT(0), "instruction %u: an object of another region",
		      race_instruction());
	pindown_detach(object);
	assert_all_gone();
}

START_TEST(an_attach_against_a_record_given_to_another_region)
{
	static const struct race race = {one_object_behind_another_that_is_dying, stepped_attach,
					 other_gives_its_record_to_another_region, check_walk};

	run_race("attach against a record of another region", &race, TURNS);
}
END_TEST

/* ---- a detach ----------------------------------------------------------------------------- */

static void check_detach(void)
{
	ck_assert_uint_le(exports_after_end, 1);
	assert_all_gone();
}

/* A lost destroy (each thread leaves it to the other), or a double one (both destroy). */
START_TEST(a_detach_against_a_free)
{
	static const struct race race = {one_held_object, stepped_detach, other_frees,
					 check_detach};

	run_race("detach against free", &race, TURNS);
}
END_TEST

static void check_detach_of_revoked(void)
{
	if (race_met())
		ck_assert_uint_eq(exports_after_end, 0);
	assert_all_gone();
}

START_TEST(a_detach_against_a_revocation)
{
	static const struct race race = {one_held_object, stepped_detach, other_frees,
					 check_detach_of_revoked};

	setenv("PINDOWN_HELD", "revoke", 1);
	run_race("detach against revocation", &race, TURNS);
}
END_TEST

static void one_ended_object_with_two_holds(void)
{
	one_held_object();
	others_object = must_attach(consumer, AT(0), KEY(PD, 1));
	other_frees();
}

static void check_two_detaches(void)
{
	if (others_object)
		other_detaches();
	assert_all_gone();
}

START_TEST(the_last_two_detaches_of_a_kept_object)
{
	static const struct race race = {one_ended_object_with_two_holds, stepped_detach,
					 other_detaches, check_two_detaches};

	run_race("detach against detach", &race, TURNS);
}
END_TEST

START_TEST(the_last_two_detaches_of_a_revoked_object)
{
	static const struct race race = {one_ended_object_with_two_holds, stepped_detach,
					 other_detaches, check_two_detaches};

	setenv("PINDOWN_HELD", "revoke", 1);
	run_race("detach against detach, revoked", &race, TURNS);
}
END_TEST

static void check_detach_and_owner(void)
{
	/* Destroyed by the owner's end; or by the detach, if that end has seen the object held. */
	if (race_met())
		ck_assert_uint_eq(books.destroys, 1);
	ck_assert_int_eq(pindown_end_owner(consumer, PD), 0);
	each_was_destroyed_once();
	assert_all_gone();
}

START_TEST(a_detach_against_the_owners_end)
{
	static const struct race race = {one_held_object, stepped_detach, other_ends_the_owner,
					 check_detach_and_owner};

	run_race("detach against the owner's end", &race, TURNS);
}
END_TEST

static void one_kept_object(void)
{
	one_held_object();
	other_frees();
}

static void other_removes_the_consumer(void)
{
	ck_assert_int_eq(pindown_consumer_remove(consumer), PINDOWN_OK);
	consumer = 0; /* the next turn adds a consumer again */
}

START_TEST(a_detach_against_the_consumers_end)
{
	static const struct race race = {one_held_object, stepped_detach,
					 other_removes_the_consumer, assert_all_gone};

	run_race("detach against the consumer's end", &race, TURNS);
}
END_TEST

START_TEST(a_detach_of_a_kept_object_against_the_consumers_end)
{
	static const struct race race = {one_kept_object, stepped_detach,
					 other_removes_the_consumer, assert_all_gone};

	run_race("detach of a kept object against the consumer's end", &race, TURNS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: single instructions of attaches and detaches");
	TCase *tc = cache_case(suite, "single instructions");

	tcase_add_test(tc, an_attach_against_a_free);
	tcase_add_test(tc, an_attach_by_fewer_rights_against_a_free);
	tcase_add_test(tc, a_making_attach_against_a_free);
	tcase_add_test(tc, an_attach_against_the_owners_end);
	tcase_add_test(tc, an_attach_by_fewer_rights_against_the_owners_end);
	tcase_add_test(tc, a_making_attach_against_the_owners_end);
	tcase_add_test(tc, an_attach_against_a_flush);
	tcase_add_test(tc, two_that_make_the_same);
	tcase_add_test(tc, an_attach_against_a_record_used_again);
	tcase_add_test(tc, an_attach_to_one_of_many_against_its_record_used_again);
	tcase_add_test(tc, an_attach_by_fewer_rights_to_one_of_many_against_its_record_used_again);
	tcase_add_test(tc, an_attach_against_a_record_given_to_another_region);
	tcase_add_test(tc, a_detach_against_a_free);
	tcase_add_test(tc, a_detach_against_a_revocation);
	tcase_add_test(tc, the_last_two_detaches_of_a_kept_object);
	tcase_add_test(tc, the_last_two_detaches_of_a_revoked_object);
	tcase_add_test(tc, a_detach_against_the_owners_end);
	tcase_add_test(tc, a_detach_against_the_consumers_end);
	tcase_add_test(tc, a_detach_of_a_kept_object_against_the_consumers_end);
	return run_stepped_suite(suite);
}
