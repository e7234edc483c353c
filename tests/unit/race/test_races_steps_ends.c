/* SPDX-License-Identifier: MIT */
/* Races at single instructions of a free, a flush, and the end of a pin; see stepping.h. */
#define _GNU_SOURCE
#include "tests/unit/support/steps_test.h"

static int others_result;

/* ---- a free, stepped ---- */

static void stepped_free(void)
{
	step_from_here();
	pdn_guard guard = pdn_end_range(AT(0), 0);
	step_to_here();
	exports_after_end = fake_open_exports_of(old_id);
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS);
	pdn_ended(guard);
}

static void other_gets(void)
{
	others_result = pindown_get(AT(0), 1, 0, &others_region);
}

static void check_free_against_get(void)
{
	if (others_region) {
		/*
		 * The free had been entered, but the hold was there before the free looked, so the
		 * free saw it.
		 */
		ck_assert_int_eq(others_result, PINDOWN_OK);
		ck_assert_uint_eq(exports_after_end, 1);
		ck_assert_int_eq(pindown_region_is_live(others_region), 0);
		pindown_put(others_region);
	} else {
		ck_assert_uint_eq(exports_after_end, 0);
	}
	assert_all_gone();
}

START_TEST(a_free_against_a_hit)
{
	static const struct race race = {one_idle_region, stepped_free, other_gets,
					 check_free_against_get};

	run_race("free against hit", &race, TURNS);
}
END_TEST

/*
 * The memory is not registered. The free takes its fast path, and must not miss a pin that begins.
 */
static void nothing_pinned(void)
{
	one_idle_region();
	pindown_flush();
}

/*
 * To the end, where the guard is lowered: a pin that began in between has had to wait, or has lost.
 */
static void stepped_whole_free(void)
{
	step_from_here();
	pdn_guard guard = pdn_end_range(AT(0), 0);
	fake_free(AT(0));
	pdn_ended(guard);
	step_to_here();
}

static void check_free_against_pin(void)
{
	if (others_region) {
		/* The get ran before the guard was up. */
		ck_assert_int_eq(pindown_region_is_live(others_region), 0);
		pindown_put(others_region);
	} else if (race_met()) {
		ck_assert_int_eq(others_result, PINDOWN_ERR_NOT_DEVICE);
	}
	assert_all_gone();
}

START_TEST(a_free_of_nothing_registered_against_a_pin)
{
	static const struct race race = {nothing_pinned, stepped_whole_free, other_gets,
					 check_free_against_pin};

	run_race("free of nothing registered against pin", &race, TURNS);
}
END_TEST

static void other_puts_its_own(void)
{
	pindown_put(region);
	region = NULL;
}

static void check_free_against_put(void)
{
	if (region)
		other_puts_its_own();
	assert_all_gone();
}

START_TEST(a_free_against_the_last_put)
{
	static const struct race race = {one_held_region, stepped_free, other_puts_its_own,
					 check_free_against_put};

	run_race("free against put", &race, TURNS);
}
END_TEST

/* Neighbours in one page share a list in the index, and it changes while the free reads it. */
#define NEAR(i) (AT(0) + 512 * (i))

static void five_neighbours(void)
{
	flush_and_forget();
	for (unsigned i = 0; i < 5; i++)
		fake_free(NEAR(i));
	for (unsigned i = 0; i < 5; i++) {
		fake_alloc(NEAR(i), 512, FAKE_LINEAR);
		get_and_put(NEAR(i), 1);
	}
	old_id = fake_id(NEAR(2));
	exports_after_end = 0;
}

static void stepped_free_of_the_middle_one(void)
{
	step_from_here();
	pdn_guard guard = pdn_end_range(NEAR(2), 0);
	step_to_here();
	exports_after_end = fake_open_exports_of(old_id);
	ck_assert_int_eq(fake_free(NEAR(2)), FAKE_SUCCESS);
	pdn_ended(guard);
}

static void stepped_hit_of_the_middle_one(void)
{
	step_from_here();
	result = pindown_get(NEAR(2), 1, PINDOWN_GET_CACHED, &region);
	step_to_here();
}

static void other_stirs_the_page(void)
{
	for (unsigned i = 0; i < 5; i++)
		if (i != 2)
			pindown_invalidate(NEAR(i), 0);
	for (unsigned i = 5; i-- > 0;)
		if (i != 2)
			get_and_put(NEAR(i), 1);
}

static void check_middle_one_gone(void)
{
	ck_assert_msg(exports_after_end == 0, "instruction %u: overlooked", race_instruction());
	ck_assert(!is_cached(NEAR(2), 1));
	assert_all_gone();
}

START_TEST(a_free_against_changes_in_its_page)
{
	static const struct race race = {five_neighbours, stepped_free_of_the_middle_one,
					 other_stirs_the_page, check_middle_one_gone};

	run_race("free against changes in its page", &race, TURNS);
}
END_TEST

static void check_middle_one_found(void)
{
	ck_assert_msg(result == PINDOWN_OK, "instruction %u: not found", race_instruction());
	ck_assert_uint_eq(pindown_region_buffer_id(region), old_id);
	pindown_put(region);
}

START_TEST(a_hit_against_changes_in_its_page)
{
	static const struct race race = {five_neighbours, stepped_hit_of_the_middle_one,
					 other_stirs_the_page, check_middle_one_found};

	run_race("hit against changes in its page", &race, TURNS);
}
END_TEST

/* ---- a flush, stepped ---- */

static void stepped_flush(void)
{
	step_from_here();
	pindown_flush();
	step_to_here();
}

/*
 * Two threads want to unpin the region at once; the free must not continue before it is unpinned.
 */
static void check_flush_against_free(void)
{
	ck_assert_msg(exports_after_end == 0, "instruction %u: pinned when the free went on",
		      race_instruction());
	if (race_met())
		assert_all_gone();
}

START_TEST(a_flush_against_a_free)
{
	static const struct race race = {one_idle_region, stepped_flush, other_frees,
					 check_flush_against_free};

	run_race("flush against free", &race, TURNS);
}
END_TEST

static void check_flush_against_get(void)
{
	if (others_region) {
		ck_assert_uint_eq(pindown_region_buffer_id(others_region), old_id);
		ck_assert_uint_ge(fake_open_exports_of(old_id), 1);
		pindown_put(others_region);
	}
	pindown_flush();
	assert_all_gone();
}

START_TEST(a_flush_against_a_get)
{
	static const struct race race = {one_idle_region, stepped_flush, other_gets,
					 check_flush_against_get};

	run_race("flush against get", &race, TURNS);
}
END_TEST

/* A flush leaves a region in use alone, and its holder must see it live all the time. */
static void other_asks_whether_it_is_live(void)
{
	others_result = pindown_region_is_live(region);
}

static void check_still_live(void)
{
	if (race_met())
		ck_assert_msg(others_result == 1, "instruction %u: not live, it says",
			      race_instruction());
	ck_assert(is_cached(AT(0), 1));
	pindown_put(region);
	ck_assert_int_eq(pindown_flush(), 1);
	assert_all_gone();
}

START_TEST(a_flush_of_a_region_in_use)
{
	static const struct race race = {one_held_region, stepped_flush,
					 other_asks_whether_it_is_live, check_still_live};

	run_race("flush against holder", &race, TURNS);
}
END_TEST

static void check_put_against_flush(void)
{
	if (region)
		other_puts_its_own();
	pindown_flush();
	assert_all_gone();
}

START_TEST(a_flush_against_the_last_put)
{
	static const struct race race = {one_held_region, stepped_flush, other_puts_its_own,
					 check_put_against_flush};

	run_race("flush against put", &race, TURNS);
}
END_TEST

/* ---- the end of a pin ---- */

static void start_stepping(void *arg)
{
	(void)arg;
	step_from_here();
}

static unsigned edges_of_a_pin;

static void go_on(void *arg)
{
	(void)arg;
}

static void count_edges(void)
{
	bool met = true;

	for (unsigned edge = 0; met; edge++) {
		nothing_pinned();
		fake_at_edge(FAKE_CALLS, edge, go_on, NULL);
		get_and_put(AT(0), 1);
		met = fake_edge_met();
		edges_of_a_pin = edge;
	}
}

/* From the driver's last answer, which has the same buffer id, to the get's return. */
static void stepped_pin(void)
{
	fake_at_edge(FAKE_CALLS, edges_of_a_pin - 1, start_stepping, NULL);
	result = pindown_get(AT(0), 1, 0, &region);
	step_to_here();
}

START_TEST(the_end_of_a_pin_against_a_free)
{
	static const struct race race = {nothing_pinned, stepped_pin, other_frees, check_hit};

	count_edges();
	run_race("end of a pin against free", &race, TURNS);
}
END_TEST

static void check_pin_against_get(void)
{
	ck_assert_int_eq(result, PINDOWN_OK);
	if (others_region) {
		ck_assert_ptr_eq(others_region, region);
		pindown_put(others_region);
	}
	pindown_put(region);
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert_int_eq(pindown_flush(), 1);
	assert_all_gone();
}

START_TEST(the_end_of_a_pin_against_a_get)
{
	static const struct race race = {nothing_pinned, stepped_pin, other_gets,
					 check_pin_against_get};

	count_edges();
	run_race("end of a pin against get", &race, TURNS);
}
END_TEST

/* ---- the closing of a descriptor ---- */

/* A region without holders; a thread that borrowed its descriptor is giving it back. */
static void one_idle_region_with_a_descriptor(void)
{
	one_held_region();
	pindown_put(region);
}

static void stepped_close(void)
{
	step_from_here();
	pindown_region_close_dmabuf(region);
	step_to_here();
}

static void check_close(void)
{
	ck_assert_msg(exports_after_end == 0, "instruction %u: open still when the free went on",
		      race_instruction());
	if (race_met())
		assert_all_gone();
}

START_TEST(the_closing_of_a_descriptor_against_a_free)
{
	static const struct race race = {one_idle_region_with_a_descriptor, stepped_close,
					 other_frees, check_close};

	run_race("closing against free", &race, TURNS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: single instructions of frees, flushes and pins");
	TCase *tc = cache_case(suite, "single instructions");

	tcase_add_test(tc, a_free_against_a_hit);
	tcase_add_test(tc, a_free_of_nothing_registered_against_a_pin);
	tcase_add_test(tc, a_free_against_the_last_put);
	tcase_add_test(tc, a_free_against_changes_in_its_page);
	tcase_add_test(tc, a_hit_against_changes_in_its_page);
	tcase_add_test(tc, a_flush_against_a_free);
	tcase_add_test(tc, a_flush_against_a_get);
	tcase_add_test(tc, a_flush_of_a_region_in_use);
	tcase_add_test(tc, a_flush_against_the_last_put);
	tcase_add_test(tc, the_end_of_a_pin_against_a_free);
	tcase_add_test(tc, the_end_of_a_pin_against_a_get);
	tcase_add_test(tc, the_closing_of_a_descriptor_against_a_free);
	return run_stepped_suite(suite);
}
