/* SPDX-License-Identifier: MIT */
/*
 * What the tests that step through a hit, a put, a free and so on share: one region, and checks of
 * what became of it.
 */
#ifndef STEPS_TEST_H
#define STEPS_TEST_H

#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/stepping.h"

#define AT(i) (BASE + MIB(16) * (i))
/* when there are more instructions, only this many are stopped at; or as many as STEP_TURNS says */
#define TURNS 140

static uint64_t old_id;
static pindown_region *region, *others_region;
static int result;
static unsigned exports_after_end;

static inline void flush_and_forget(void)
{
	pindown_flush();
	for (unsigned i = 0; i < 3; i++)
		fake_free(AT(i));
}

static inline void one_idle_region(void)
{
	flush_and_forget();
	fake_alloc(AT(0), PAGE, FAKE_LINEAR);
	old_id = fake_id(AT(0));
	get_and_put(AT(0), 1);
	region = others_region = NULL;
	exports_after_end = 0;
}

static inline void one_held_region(void)
{
	one_idle_region();
	region = must_get(AT(0), 1);
}

static inline void stepped_hit(void)
{
	step_from_here();
	result = pindown_get(AT(0), 1, 0, &region);
	step_to_here();
}

static inline void stepped_put(void)
{
	step_from_here();
	pindown_put(region);
	step_to_here();
}

static inline void other_frees(void)
{
	pdn_guard guard = pdn_end_range(AT(0), 0);

	exports_after_end = fake_open_exports_of(old_id);
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS);
	pdn_ended(guard);
}

static inline void assert_all_gone(void)
{
	ck_assert_msg(fake_open_exports_of(old_id) == 0, "instruction %u: a lost unpin",
		      race_instruction());
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	assert_books_balance();
	ck_assert_uint_eq(stats().kept_regions, 0);
}

static inline void check_hit(void)
{
	if (result == PINDOWN_OK) {
		/* The hold came first: it counts, so the pin outlives the free. */
		ck_assert_uint_eq(pindown_region_buffer_id(region), old_id);
		ck_assert_msg(fake_open_exports_of(old_id) == 1,
			      "instruction %u: unpinned under its holder", race_instruction());
		pindown_put(region);
	} else {
		ck_assert_int_eq(result, PINDOWN_ERR_NOT_DEVICE);
		ck_assert_uint_eq(exports_after_end, 0);
	}
	if (race_met())
		assert_all_gone();
}

#endif
