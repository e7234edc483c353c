/* SPDX-License-Identifier: MIT */
/*
 * What an eviction costs, counted in instructions: regions in use do not make it longer, however
 * many there are. And the order of eviction, of regions that come and go between held and idle.
 */
#define _GNU_SOURCE
#include <stdio.h>

#include "cache/end/dispatch.h"
#include "cache/room/evict.h"
#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/stepping.h"

#define REGIONS 1000u
#define IDLE	20u
#define AT(i)	(BASE + MIB(2) * (i))

static pindown_region *held[REGIONS];
static struct pdn_ending ending;

static void make_regions(unsigned from, unsigned to, bool hold)
{
	for (unsigned i = from; i < to; i++) {
		fake_alloc(AT(i), PAGE, FAKE_LINEAR);
		if (hold)
			held[i] = must_get(AT(i), 1);
		else
			get_and_put(AT(i), 1);
	}
}

static void let_go(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		pindown_put(held[i]);
}

static void step_eviction(void)
{
	ending = (struct pdn_ending){0};
	pdn_lock();
	step_from_here();
	bool found = pdn_evict_one(&ending, -1);
	step_to_here();
	pdn_unlock();
	ck_assert(found);
	ck_assert_int_eq(pdn_ending_dispatch(&ending), 1);
}

static unsigned length_with(unsigned count)
{
	unsigned length;

	make_regions(0, count, true);
	make_regions(count, count + IDLE, false);
	length = fewest_instructions(step_eviction);
	let_go(0, count);
	return length;
}

START_TEST(held_regions_do_not_make_evictions_longer)
{
	unsigned few, many;

	setenv("PINDOWN_BACKEND", "none", 1);
	few = length_with(40);
	ck_assert_int_eq(pindown_flush(), 40 + IDLE - 5);
	for (unsigned i = 0; i < 40 + IDLE; i++)
		fake_free(AT(i));
	many = length_with(REGIONS - IDLE);
	printf("instructions of an eviction with 40 held regions: %u, with %u: %u\n", few,
	       REGIONS - IDLE, many);
	ck_assert_uint_le(many, few + few / 2);
}
END_TEST

/* Also those that were passed as newcomers, and have been used. */
START_TEST(used_and_held_regions_do_not_make_evictions_longer)
{
	unsigned few, many;

	setenv("PINDOWN_BACKEND", "none", 1);
	make_regions(0, REGIONS - IDLE, true);
	for (unsigned turn = 0; turn < 3; turn++)
		for (unsigned i = 40; i < REGIONS - IDLE; i++)
			get_and_put(AT(i), 1);
	make_regions(REGIONS - IDLE, REGIONS, false);
	many = fewest_instructions(step_eviction);
	let_go(40, REGIONS - IDLE);
	ck_assert_int_eq(pindown_flush(), REGIONS - 40 - 5);
	make_regions(REGIONS - IDLE, REGIONS, false);
	few = fewest_instructions(step_eviction);
	ck_assert_uint_le(many, few + few / 2);
	let_go(0, 40);
}
END_TEST

static unsigned spare;

/* It was in use at an eviction, and no longer is: the only one that can go. */
static void step_eviction_of_the_newest(void)
{
	make_regions(spare, spare + 1, true);
	ending = (struct pdn_ending){0};
	pdn_lock();
	ck_assert(!pdn_evict_one(&ending, -1));
	pdn_unlock();
	let_go(spare, spare + 1);
	step_eviction();
	ck_assert(!is_cached(AT(spare), 1));
	fake_free(AT(spare));
}

START_TEST(the_one_that_was_used_last_is_found_among_many_held)
{
	unsigned few, many;

	setenv("PINDOWN_BACKEND", "none", 1);
	make_regions(0, 40, true);
	spare = REGIONS - 1;
	few = fewest_instructions(step_eviction_of_the_newest);
	make_regions(40, REGIONS - 1, true);
	many = fewest_instructions(step_eviction_of_the_newest);
	printf("instructions of the eviction of the newest of 40 held: %u, of %u: %u\n", few,
	       REGIONS, many);
	ck_assert_uint_le(many, few + few / 2);
	let_go(0, REGIONS - 1);
}
END_TEST

static void evict_one(unsigned wanted)
{
	bool found;

	ending = (struct pdn_ending){0};
	pdn_lock();
	found = pdn_evict_one(&ending, -1);
	pdn_unlock();
	ck_assert(found);
	ck_assert_int_eq(pdn_ending_dispatch(&ending), 1);
	ck_assert_msg(!is_cached(AT(wanted), 1), "another region than %u was evicted", wanted);
}

static void evict_none(void)
{
	bool found;

	ending = (struct pdn_ending){0};
	pdn_lock();
	found = pdn_evict_one(&ending, -1);
	pdn_unlock();
	ck_assert(!found);
}

/* A region that was passed over because it was held is the next to go when it is idle. */
START_TEST(a_region_that_was_held_goes_when_it_is_its_turn)
{
	make_regions(0, 3, true);
	make_regions(3, 6, false);
	evict_one(3);
	let_go(1, 3);
	evict_one(1);
	evict_one(2);
	evict_one(4);
	evict_one(5);
	evict_none();
	let_go(0, 1);
	evict_one(0);
}
END_TEST

/* More than one eviction looks at: each of them is found where nothing else can go. */
START_TEST(every_region_that_was_held_is_found)
{
	const unsigned many = 200;

	setenv("PINDOWN_BACKEND", "none", 1);
	make_regions(0, many, true);
	evict_none();
	for (unsigned i = 0; i < many; i++) {
		unsigned which = (i * 77 + 13) % many;

		let_go(which, which + 1);
		evict_one(which);
	}
	evict_none();
}
END_TEST

/* All that were held are idle now, and one of them is of the other device. */
START_TEST(the_one_of_another_device_is_found_among_all_that_were_held)
{
	const unsigned many = 20;

	setenv("PINDOWN_BACKEND", "none", 1);
	for (unsigned its = 0; its < many; its++) {
		bool found;

		make_regions(0, its, true);
		fake_alloc_in(AT(its), PAGE, FAKE_LINEAR, FAKE_CONTEXT, 1, NULL);
		held[its] = must_get(AT(its), 1);
		make_regions(its + 1, many, true);
		evict_none();
		let_go(0, many);
		ending = (struct pdn_ending){0};
		pdn_lock();
		found = pdn_evict_one(&ending, 1);
		pdn_unlock();
		ck_assert_msg(found, "it was not found as number %u", its);
		pdn_ending_dispatch(&ending);
		ck_assert(!is_cached(AT(its), 1));
		ck_assert_int_eq(pindown_flush(), many - 1);
		for (unsigned i = 0; i < many; i++)
			fake_free(AT(i));
	}
}
END_TEST

/* Many more are met in use before those that were held are looked at. */
START_TEST(an_idle_one_is_found_beside_many_that_are_newly_held)
{
	const unsigned many = 20, more = 60;

	setenv("PINDOWN_BACKEND", "none", 1);
	for (unsigned its = 0; its < many; its++) {
		make_regions(0, many, true);
		evict_none();
		evict_none(); /* the next look does not begin with the first one */
		let_go(its, its + 1);
		make_regions(many, more, true);
		evict_one(its);
		let_go(0, its);
		let_go(its + 1, more);
		ck_assert_int_eq(pindown_flush(), more - 1);
		for (unsigned i = 0; i < more; i++)
			fake_free(AT(i));
	}
}
END_TEST

/* They count as before: for budgets, for a flush, for ends by context. */
START_TEST(what_was_held_is_still_there)
{
	make_regions(0, 4, true);
	evict_none();
	ck_assert_uint_eq(stats().regions, 4);
	ck_assert_int_eq(pindown_flush(), 0);
	let_go(0, 2);
	ck_assert_int_eq(pindown_flush(), 2);
	ck_assert_int_eq(pindown_invalidate_context(FAKE_CONTEXT), 2);
	let_go(2, 4);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: evictions among held regions");
	TCase *tc = cache_case(suite, "order");

	tcase_add_test(tc, a_region_that_was_held_goes_when_it_is_its_turn);
	tcase_add_test(tc, every_region_that_was_held_is_found);
	tcase_add_test(tc, the_one_of_another_device_is_found_among_all_that_were_held);
	tcase_add_test(tc, an_idle_one_is_found_beside_many_that_are_newly_held);
	tcase_add_test(tc, what_was_held_is_still_there);
	if (CAN_COUNT) {
		tc = cache_case(suite, "instructions");
		tcase_add_test(tc, held_regions_do_not_make_evictions_longer);
		tcase_add_test(tc, used_and_held_regions_do_not_make_evictions_longer);
		tcase_add_test(tc, the_one_that_was_used_last_is_found_among_many_held);
	}
	return run_suite(suite);
}
