/* SPDX-License-Identifier: MIT */
/*
 * Races at every single instruction of a notice of an allocation, in memory that was volatile: a
 * region whose memory died there unseen must not be found once hits there are no longer compared.
 * See stepping.h.
 */
#define _GNU_SOURCE
#include "tests/unit/support/steps_test.h"

static uint64_t found_id; /* the id in a hit that began when the memory was there; 0: none */

static void replace_unseen(void)
{
	ck_assert_int_eq(fake_free_unseen(AT(0)), FAKE_SUCCESS);
	fake_alloc(AT(0), PAGE, FAKE_LINEAR);
}

static void volatile_memory(void)
{
	flush_and_forget();
	pdn_volatile(AT(0), PAGE);
	fake_alloc(AT(0), PAGE, FAKE_LINEAR);
	old_id = fake_id(AT(0));
	found_id = 0;
}

static void stepped_allocation(void)
{
	step_from_here();
	pdn_allocated(AT(0), PAGE);
	step_to_here();
}

static void look_if_cached(void)
{
	pindown_region *found;

	if (pindown_get(AT(0), 1, PINDOWN_GET_CACHED, &found) != PINDOWN_OK)
		return;
	found_id = pindown_region_buffer_id(found);
	pindown_put(found);
}

static void assert_not_stale(void)
{
	ck_assert_msg(!found_id || found_id == fake_id(AT(0)),
		      "instruction %u: a hit returned the dead buffer id %lu", race_instruction(),
		      (unsigned long)found_id);
	pindown_flush();
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
}

/* ---- against a hit on a region whose memory has died ---- */

static void a_dead_region(void)
{
	volatile_memory();
	get_and_put(AT(0), 1);
	replace_unseen();
}

START_TEST(an_allocation_against_a_hit)
{
	static const struct race race = {a_dead_region, stepped_allocation, look_if_cached,
					 assert_not_stale};

	run_race("allocation against hit", &race, TURNS);
}
END_TEST

/* ---- against a pin of memory that died after the pin's last question to the driver ---- */

static struct worker pinner;
static struct gate pinner_has_asked, pinner_may_go;
static unsigned questions; /* how many questions a pin asks the driver */

static void hold_up_pinner(void *arg)
{
	(void)arg;
	gate_open(&pinner_has_asked);
	gate_wait(&pinner_may_go);
}

static void pin(void *arg)
{
	(void)arg;
	get_and_put(AT(0), 1);
}

static void a_pin_of_what_dies(void)
{
	volatile_memory();
	gate_init(&pinner_has_asked);
	gate_init(&pinner_may_go);
	fake_at_edge(FAKE_QUERY, FAKE_LEAVING(questions - 1), hold_up_pinner, NULL);
	worker_start(&pinner, pin, NULL);
	gate_wait(&pinner_has_asked);
	replace_unseen();
}

static void let_pinner_end(void)
{
	gate_open(&pinner_may_go);
	worker_join(&pinner);
}

static void let_pinner_end_and_look(void)
{
	let_pinner_end();
	look_if_cached();
}

static void check_pinner(void)
{
	if (!race_met())
		let_pinner_end();
	assert_not_stale();
}

START_TEST(an_allocation_against_a_pin_of_what_has_died)
{
	static const struct race race = {a_pin_of_what_dies, stepped_allocation,
					 let_pinner_end_and_look, check_pinner};

	volatile_memory();
	questions = fake_count(FAKE_QUERY);
	in_other_thread(pin, NULL);
	questions = fake_count(FAKE_QUERY) - questions;
	run_race("allocation against pin of the dead", &race, 4 * TURNS);
}
END_TEST

/* ---- against a pin of the new memory ---- */

static void other_pins(void)
{
	get_and_put(AT(0), 1);
}

static void check_that_hits_are_not_compared(void)
{
	uint64_t checks = stats().tag_checks;

	get_and_put(AT(0), 1);
	get_and_put(AT(0), 1);
	/* One of the two may be compared by chance. */
	ck_assert_msg(stats().tag_checks < checks + 2, "instruction %u: it is checked for ever",
		      race_instruction());
	assert_not_stale();
}

START_TEST(an_allocation_against_a_pin_of_the_new_memory)
{
	static const struct race race = {volatile_memory, stepped_allocation, other_pins,
					 check_that_hits_are_not_compared};

	run_race("allocation against pin of the new", &race, 4 * TURNS);
}
END_TEST

/* ---- a pin of memory that a stream frees later, against its turn and what comes then ---- */

static void memory_that_leaves(void)
{
	pdn_guard guard;

	flush_and_forget();
	fake_alloc(AT(0), PAGE, FAKE_LINEAR);
	pdn_allocated(AT(0), PAGE);
	old_id = fake_id(AT(0));
	found_id = 0;
	guard = pdn_end_in_order(AT(0));
	ck_assert(pdn_ends_later(AT(0), PAGE));
	pdn_ended(guard);
}

static void its_turn_comes(void)
{
	replace_unseen();
	look_if_cached();
	pdn_allocated(AT(0), PAGE);
	look_if_cached();
	get_and_put(AT(0), 1);
}

static void check_what_was_pinned(void)
{
	if (result == PINDOWN_OK) {
		uint64_t id = pindown_region_buffer_id(region);

		ck_assert(id == old_id || id == fake_id(AT(0)));
		ck_assert(race_met() || !pindown_region_is_live(region));
		pindown_put(region);
	}
	look_if_cached();
	if (race_met())
		check_that_hits_are_not_compared();
	else
		ck_assert_uint_eq(fake_open_exports_of(old_id), 0);
	assert_not_stale();
	ck_assert_msg(!stats().missed_invalidations, "instruction %u: its end is counted as missed",
		      race_instruction());
}

START_TEST(the_turn_against_a_pin_of_what_it_frees)
{
	static const struct race race = {memory_that_leaves, stepped_hit, its_turn_comes,
					 check_what_was_pinned};

	run_race("turn against pin of what it frees", &race, 8 * TURNS);
}
END_TEST

/* The same with a hit in another thread on what was just pinned. */
static void other_gets(void)
{
	pindown_region *found;

	found_id = 0;
	if (pindown_get(AT(0), 1, 0, &found) == PINDOWN_OK) {
		found_id = pindown_region_buffer_id(found);
		pindown_put(found);
	}
}

static void check_that_both_are_gone(void)
{
	ck_assert_int_eq(result, PINDOWN_OK);
	ck_assert(!pindown_region_is_live(region));
	pindown_put(region);
	ck_assert_uint_eq(found_id, race_met() ? old_id : 0);
	ck_assert_msg(fake_open_exports_of(old_id) == 0, "instruction %u: pinned for nobody",
		      race_instruction());
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
}

START_TEST(two_gets_of_what_a_stream_frees_later)
{
	static const struct race race = {memory_that_leaves, stepped_hit, other_gets,
					 check_that_both_are_gone};

	run_race("two gets of what a stream frees later", &race, 8 * TURNS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: single instructions of an allocation");
	TCase *tc = cache_case(suite, "single instructions");

	tcase_add_test(tc, an_allocation_against_a_hit);
	tcase_add_test(tc, an_allocation_against_a_pin_of_what_has_died);
	tcase_add_test(tc, an_allocation_against_a_pin_of_the_new_memory);
	tcase_add_test(tc, the_turn_against_a_pin_of_what_it_frees);
	tcase_add_test(tc, two_gets_of_what_a_stream_frees_later);
	return run_stepped_suite(suite);
}
