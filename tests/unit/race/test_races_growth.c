/* SPDX-License-Identifier: MIT */
/*
 * A get that replaces a region by a wider one, against an action in another thread: at each edge of
 * each driver call that the get makes (as in test_races_pin), and at single instructions of it, and
 * of a hit and a put of the replaced region (as in test_races_steps).
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/stepping.h"

/* Four mappings in a reservation. The first two are pinned; a window crosses into the third. */
#define PIECE	   MIB(2)
#define MAPPING(n) (BASE + (uint64_t)(n)*PIECE)
#define WINDOW	   (MAPPING(2) - MIB(1))
#define TURNS	   140
#define FEW_TURNS  30 /* of a get that pins: it has 25 000 instructions */

static uint64_t ids[4];

static void map(unsigned n)
{
	watched_alloc(MAPPING(n), PIECE, FAKE_VMM);
	ids[n] = fake_id(MAPPING(n));
}

static void unmap_what_is_left(void)
{
	for (unsigned n = 0; n < 4; n++)
		if (fake_id(MAPPING(n)))
			ck_assert_int_eq(watched_unmap(MAPPING(n), PIECE), FAKE_SUCCESS);
}

static void pin_first_two(void)
{
	fake_reserved = BASE;
	fake_reserved_size = 4 * PIECE;
	for (unsigned n = 0; n < 4; n++)
		map(n);
	get_and_put(MAPPING(0), 2 * PIECE);
}

static void assert_all_gone(const char *where, unsigned place)
{
	unmap_what_is_left();
	ck_assert_msg(fake_open_exports() == 0, "%s %u: a lost unpin", where, place);
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
	assert_books_balance();
}

/* ---- what the other thread does ---- */

static unsigned unmapped; /* the mapping that is, or was; 4: none */
static unsigned exports_after_end;
static bool is_held; /* by the test: the first two mappings */

static void unmap_one(unsigned n)
{
	pdn_guard guard = pdn_end_range(MAPPING(n), PIECE);

	exports_after_end = fake_open_exports_of(ids[n]);
	ck_assert_int_eq(fake_free(MAPPING(n)), FAKE_SUCCESS);
	pdn_ended(guard);
}

static void unmap_it(void)
{
	unmap_one(unmapped);
}

static void unmap_and_map_it(void)
{
	unmap_one(unmapped);
	map(unmapped);
}

static void flush(void)
{
	pindown_flush();
}

/* Another window, which grows too. */
static void get_beside(void)
{
	get_and_put(MAPPING(3) - MIB(1), MIB(2));
}

static void get_the_same(void)
{
	get_and_put(WINDOW, MIB(2));
}

/* The driver's call comes when the get has returned. */
static struct gate may_unmap;

static void unmap_it_later(void)
{
	pdn_guard guard = pdn_end_range(MAPPING(unmapped), PIECE);

	exports_after_end = fake_open_exports_of(ids[unmapped]);
	gate_wait(&may_unmap);
	ck_assert_int_eq(fake_free(MAPPING(unmapped)), FAKE_SUCCESS);
	pdn_ended(guard);
}

/* ---- at the edges ---- */

static struct worker worker;
static void (*act)(void);

static void act_now(void *arg)
{
	(void)arg;
	act();
}

static void start_other(void *arg)
{
	(void)arg;
	worker_start(&worker, act_now, NULL);
	worker_wait_idle(&worker);
}

static bool window_is_there(void)
{
	return unmapped != 1 && unmapped != 2;
}

/* After the unmap: which part of the window is gone depends on what the get had seen of it. */
static bool is_right(int result)
{
	return window_is_there() ? result == PINDOWN_OK
				 : result == PINDOWN_ERR_NOT_DEVICE || result == PINDOWN_ERR_RANGE;
}

/* Returns false if the get has no such edge. */
static bool grow_at(unsigned edge)
{
	pindown_region *region = NULL, *old = NULL;
	bool met;

	pin_first_two();
	if (is_held)
		old = must_get(MAPPING(0), 2 * PIECE);
	exports_after_end = 0;
	gate_init(&may_unmap);
	fake_at_edge(FAKE_CALLS, edge, start_other, NULL);
	int result = pindown_get(WINDOW, MIB(2), 0, &region);
	met = fake_edge_met();
	fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
	if (met && act == unmap_it_later) {
		ck_assert_msg(!is_cached(MAPPING(unmapped), 1),
			      "edge %u: memory is found that is being unmapped", edge);
		gate_open(&may_unmap);
	}
	if (met)
		worker_join(&worker);
	if (result == PINDOWN_OK) {
		uint64_t base = pindown_region_base(region);

		ck_assert_uint_le(base, WINDOW);
		ck_assert_uint_ge(base + pindown_region_length(region), WINDOW + MIB(2));
		/* It was returned before the unmap and has ended, or lacks the mapping. */
		if (met && pindown_region_is_live(region) && !fake_id(MAPPING(unmapped % 4)))
			ck_assert(!is_cached(MAPPING(unmapped), 1));
		pindown_put(region);
	}
	if (met && (act == unmap_it || act == unmap_it_later))
		ck_assert_msg(is_right(result), "edge %u, mapping %u: %s", edge, unmapped,
			      pindown_strerror(result));
	else if (act != unmap_and_map_it)
		ck_assert_msg(result == PINDOWN_OK, "edge %u: %s", edge, pindown_strerror(result));
	/* Only what the test holds has kept the memory when the free continued. */
	if (met)
		ck_assert_msg(exports_after_end == (old && unmapped < 2),
			      "edge %u, mapping %u: pinned still when the free went on", edge,
			      unmapped);
	if (old)
		pindown_put(old);
	ck_assert_msg(fake_open_exports_of_dead() == 0, "edge %u: dead memory is pinned", edge);
	assert_all_gone("edge", edge);
	return met;
}

static void sweep(void (*what)(void))
{
	unsigned edge = 0;

	act = what;
	while (grow_at(edge))
		edge++;
	/* Three descriptions, the export, and the comparison have at least two edges each. */
	ck_assert_uint_ge(edge, 10);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
}

/* Of each mapping: of the replaced region, of the request, and of what the region doubles over. */
START_TEST(growing_against_an_unmap)
{
	unmapped = (unsigned)_i % 4;
	is_held = _i / 4;
	sweep(unmap_it);
}
END_TEST

/* Only of mappings that the request does not need: it would wait for the unmap. */
START_TEST(growing_against_an_unmap_that_takes_its_time)
{
	unmapped = _i & 1 ? 3 : 0;
	is_held = _i / 2;
	sweep(unmap_it_later);
}
END_TEST

START_TEST(growing_against_an_unmap_and_a_new_mapping)
{
	unmapped = (unsigned)_i % 4;
	is_held = _i / 4;
	sweep(unmap_and_map_it);
}
END_TEST

START_TEST(growing_against_gets_and_a_flush)
{
	static void (*const acts[])(void) = {flush, get_beside, get_the_same};

	unmapped = 4;
	is_held = _i / 3;
	sweep(acts[_i % 3]);
}
END_TEST

/* ---- at single instructions ---- */

static pindown_region *region;
static int result;

static void prepare(void)
{
	pindown_flush();
	unmap_what_is_left();
	pin_first_two();
	region = NULL;
	exports_after_end = 0;
}

static void prepare_held(void)
{
	prepare();
	region = must_get(MAPPING(0), 2 * PIECE);
}

static void stepped_hit(void)
{
	step_from_here();
	result = pindown_get(MAPPING(0), 2 * PIECE, 0, &region);
	step_to_here();
}

static void stepped_put(void)
{
	step_from_here();
	pindown_put(region);
	step_to_here();
}

static void stepped_growth(void)
{
	step_from_here();
	result = pindown_get(WINDOW, MIB(2), 0, &region);
	step_to_here();
}

/* The replaced region, kept for this hit, or the wide one. */
static void check_hit(void)
{
	ck_assert_int_eq(result, PINDOWN_OK);
	ck_assert_uint_eq(pindown_region_base(region), MAPPING(0));
	ck_assert_msg(fake_open_exports_of(ids[0]) ==
			      1u + (race_met() && pindown_region_length(region) == 2 * PIECE),
		      "instruction %u: unpinned under its holder", race_instruction());
	pindown_put(region);
	ck_assert_msg(fake_open_exports_of(ids[0]) == 1, "instruction %u: a lost unpin",
		      race_instruction());
	ck_assert_uint_eq(stats().kept_regions, 0);
}

START_TEST(a_hit_against_growth)
{
	static const struct race race = {prepare, stepped_hit, get_the_same, check_hit};

	run_race("hit against growth", &race, TURNS);
}
END_TEST

static void check_put(void)
{
	ck_assert_msg(fake_open_exports_of(ids[0]) == 1, "instruction %u: a lost unpin",
		      race_instruction());
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_uint_eq(stats().regions, 1);
}

START_TEST(a_put_against_growth)
{
	static const struct race race = {prepare_held, stepped_put, get_the_same, check_put};

	run_race("put against growth", &race, TURNS);
}
END_TEST

static void check_growth(void)
{
	bool is_there = result == PINDOWN_OK;

	if (window_is_there() || !race_met())
		ck_assert_msg(is_there, "instruction %u: %s", race_instruction(),
			      pindown_strerror(result));
	if (is_there) {
		ck_assert_uint_le(pindown_region_base(region), WINDOW);
		pindown_put(region);
	}
	ck_assert_msg(fake_open_exports_of_dead() == 0, "instruction %u: dead memory is pinned",
		      race_instruction());
	if (race_met() && !is_there)
		ck_assert_uint_eq(exports_after_end, 0);
	assert_all_gone("instruction", race_instruction());
}

/* Of a mapping of the replaced region, and of one that only the twofold reach has. */
START_TEST(growth_against_an_unmap_at_single_instructions)
{
	static const struct race race = {prepare, stepped_growth, unmap_it, check_growth};

	unmapped = _i ? 3 : 0;
	run_race("growth against unmap", &race, FEW_TURNS);
}
END_TEST

START_TEST(growth_against_growth)
{
	static const struct race race = {prepare, stepped_growth, get_beside, check_growth};

	unmapped = 4;
	run_race("growth against growth", &race, FEW_TURNS);
}
END_TEST

/* ---- windows of an allocation that can't be pinned as a whole, against its free ---- */

#define LARGE (BASE + GIB(1)) /* 16 MiB, where 8 can be pinned */

static uint64_t large_id;
static bool has_first; /* a window is pinned before, far behind the one that is asked for */

static void alloc_large(void)
{
	watched_alloc(LARGE, MIB(16), FAKE_LINEAR);
	large_id = fake_id(LARGE);
}

static void prepare_large(void)
{
	pindown_flush();
	if (fake_id(LARGE))
		watched_free(LARGE);
	fake_pin_space(MIB(8));
	alloc_large();
	if (has_first)
		get_and_put(LARGE + MIB(12), 1);
	exports_after_end = 0;
}

static void free_large(void)
{
	pdn_guard guard = pdn_end_range(LARGE, 0);

	exports_after_end = fake_open_exports_of(large_id);
	ck_assert_int_eq(fake_free(LARGE), FAKE_SUCCESS);
	pdn_ended(guard);
}

static void free_and_alloc_large(void)
{
	free_large();
	alloc_large();
}

static void get_other_window(void)
{
	get_and_put(LARGE + MIB(9), 1);
}

static void get_same_window(void)
{
	get_and_put(LARGE + MIB(4), 1);
}

static void get_both_windows(void)
{
	get_and_put(LARGE + MIB(5) - 1, 2);
}

static void end_large(const char *where, unsigned place)
{
	if (fake_id(LARGE))
		watched_free(LARGE);
	ck_assert_msg(fake_open_exports() == 0, "%s %u: a lost unpin", where, place);
	ck_assert_uint_eq(stats().regions, 0);
	assert_books_balance();
}

static bool act_frees(void)
{
	return act == free_large || act == free_and_alloc_large;
}

static bool window_at(unsigned edge)
{
	pindown_region *found = NULL;
	bool met;

	prepare_large();
	fake_at_edge(FAKE_CALLS, edge, start_other, NULL);
	int got = pindown_get(LARGE + MIB(4), 1, 0, &found);
	met = fake_edge_met();
	fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
	if (met)
		worker_join(&worker);
	if (got == PINDOWN_OK)
		pindown_put(found);
	ck_assert_msg(got == PINDOWN_OK || (met && act_frees() && got == PINDOWN_ERR_NOT_DEVICE),
		      "edge %u: %s", edge, pindown_strerror(got));
	if (act == free_large && met)
		ck_assert(!is_cached(LARGE + MIB(4), 1));
	ck_assert_msg(exports_after_end == 0, "edge %u: pinned still when the free went on", edge);
	ck_assert_msg(fake_open_exports_of_dead() == 0, "edge %u: dead memory is pinned", edge);
	end_large("edge", edge);
	return met;
}

START_TEST(a_window_against_another_thread)
{
	static void (*const acts[])(void) = {free_large,      free_and_alloc_large,
					     flush,	      get_other_window,
					     get_same_window, get_both_windows};
	unsigned edge = 0;

	has_first = _i < 6;
	act = acts[_i % 6];
	while (window_at(edge))
		edge++;
	ck_assert_uint_ge(edge, 10);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
}
END_TEST

static void stepped_free(void)
{
	step_from_here();
	free_large();
	step_to_here();
}

static void check_free(void)
{
	ck_assert_msg(exports_after_end == 0, "instruction %u: pinned still when the free went on",
		      race_instruction());
	ck_assert_msg(fake_open_exports_of_dead() == 0, "instruction %u: dead memory is pinned",
		      race_instruction());
	end_large("instruction", race_instruction());
}

static void try_other_window(void)
{
	pindown_region *found;

	if (pindown_get(LARGE + MIB(9), 1, 0, &found) == PINDOWN_OK)
		pindown_put(found);
}

/* A free finds windows behind the address that it names, and waits for another thread's unpin. */
START_TEST(a_free_against_windows_at_single_instructions)
{
	static const struct race races[] = {
		{prepare_large, stepped_free, flush, check_free},
		{prepare_large, stepped_free, try_other_window, check_free},
	};

	has_first = true;
	run_race("free against windows", &races[_i], TURNS / 2);
}
END_TEST

/* A free of the whole that stays in the driver until the recheck is over. */
static struct gate recheck_is_over;
static unsigned asked_in_free;

static void prepare_recheck(void)
{
	prepare_large();
	get_and_put(LARGE + MIB(4), 1);
	asked_in_free = 0;
	gate_init(&recheck_is_over);
}

static void stepped_recheck(void)
{
	step_from_here();
	pdn_recheck(NULL);
	step_to_here();
	gate_open(&recheck_is_over);
}

static void free_slowly(void)
{
	pdn_guard guard = pdn_end_range(LARGE, 0);

	fake_watch_questions(LARGE, LARGE + MIB(16));
	race_ends_here();
	gate_wait(&recheck_is_over);
	asked_in_free = fake_watched_questions();
	fake_watch_questions(0, 0);
	ck_assert_int_eq(fake_free(LARGE), FAKE_SUCCESS);
	pdn_ended(guard);
}

static void check_recheck(void)
{
	ck_assert_msg(asked_in_free == 0, "instruction %u: asked about it in the free",
		      race_instruction());
	end_large("instruction", race_instruction());
}

/* The guard has the address of the allocation, not that of a window. */
START_TEST(a_recheck_does_not_ask_about_a_window_in_the_free)
{
	static const struct race race = {prepare_recheck, stepped_recheck, free_slowly,
					 check_recheck};

	run_race("recheck of a window against a free", &race, TURNS);
}
END_TEST

/* ---- many threads in one segment ---- */

#define MAPPINGS   16u
#define GETTERS	   4u
#define OPERATIONS 2000u
#define MAX_IDS	   65536u

/* By buffer id: the number of the death, from 1 on, once pdn_end_range() has returned. */
static uint32_t died_at[MAX_IDS], deaths;

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void unmap_and_map_randomly(void *arg)
{
	uint32_t random = 7;

	(void)arg;
	for (unsigned n = 0; n < OPERATIONS; n++) {
		uint64_t at = MAPPING(next_random(&random) % MAPPINGS), id = fake_id(at);

		if (!id) {
			watched_alloc(at, PIECE, FAKE_VMM);
			continue;
		}
		ck_assert_uint_lt(id, MAX_IDS);
		pdn_guard guard = pdn_end_range(at, PIECE);
		__atomic_store_n(&died_at[id], __atomic_add_fetch(&deaths, 1, __ATOMIC_SEQ_CST),
				 __ATOMIC_SEQ_CST);
		/* Time for some pins to begin and, if nothing stops them, to end. */
		usleep(n % 2 * 100);
		ck_assert_int_eq(fake_free(at), FAKE_SUCCESS);
		pdn_ended(guard);
	}
}

static void check_region(pindown_region *found, uint64_t addr, uint64_t length, uint32_t before)
{
	uint32_t died =
		__atomic_load_n(&died_at[pindown_region_buffer_id(found)], __ATOMIC_SEQ_CST);

	ck_assert_msg(!died || died > before, "stale: died as number %u, the get began after %u",
		      died, before);
	ck_assert_uint_le(pindown_region_base(found), addr);
	ck_assert_uint_ge(pindown_region_base(found) + pindown_region_length(found), addr + length);
}

static void get_windows(void *arg)
{
	uint32_t random = (uint32_t)(uintptr_t)arg;
	pindown_region *held = NULL;

	for (unsigned n = 0; n < OPERATIONS; n++) {
		uint64_t addr = BASE + next_random(&random) % (MAPPINGS * 2) * MIB(1);
		uint64_t length = MIB(1 + next_random(&random) % 4);
		uint32_t before = __atomic_load_n(&deaths, __ATOMIC_SEQ_CST);
		pindown_region *found;
		int got = pindown_get(addr, length, 0, &found);

		ck_assert_msg(got == PINDOWN_OK || got == PINDOWN_ERR_NOT_DEVICE ||
				      got == PINDOWN_ERR_RANGE || got == PINDOWN_ERR_BUSY ||
				      got == PINDOWN_ERR_NO_SPACE || got == PINDOWN_ERR_TIMED_OUT,
			      "%s", pindown_strerror(got));
		if (got != PINDOWN_OK)
			continue;
		check_region(found, addr, length, before);
		/* Hold some over a few gets. */
		if (held && n % 4 == 0) {
			pindown_put(held);
			held = NULL;
		}
		if (held)
			pindown_put(found);
		else
			held = found;
	}
	if (held)
		pindown_put(held);
}

/* With room for all, for some, and for hardly any. */
START_TEST(threads_in_one_segment)
{
	static const uint64_t space[] = {UINT64_MAX, MIB(40), MIB(12)};
	struct worker mapper, getters[GETTERS];

	fake_pin_space(space[_i]);
	fake_reserved = BASE;
	fake_reserved_size = MAPPINGS * PIECE;
	for (unsigned n = 0; n < MAPPINGS; n++)
		watched_alloc(MAPPING(n), PIECE, FAKE_VMM);
	worker_start(&mapper, unmap_and_map_randomly, NULL);
	for (uintptr_t i = 0; i < GETTERS; i++)
		worker_start(&getters[i], get_windows, (void *)(i + 1));
	worker_join(&mapper);
	for (unsigned i = 0; i < GETTERS; i++)
		worker_join(&getters[i]);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_uint_le(stats().bytes, MAPPINGS * PIECE);
	assert_books_balance();
	for (unsigned n = 0; n < MAPPINGS; n++)
		if (fake_id(MAPPING(n)))
			watched_unmap(MAPPING(n), PIECE);
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: regions that replace others");
	TCase *tc = cache_case(suite, "at the edges of driver calls");

	tcase_add_loop_test(tc, growing_against_an_unmap, 0, 8);
	tcase_add_loop_test(tc, growing_against_an_unmap_that_takes_its_time, 0, 4);
	tcase_add_loop_test(tc, growing_against_an_unmap_and_a_new_mapping, 0, 8);
	tcase_add_loop_test(tc, growing_against_gets_and_a_flush, 0, 6);
	tcase_add_loop_test(tc, a_window_against_another_thread, 0, 8);
	tc = cache_case(suite, "many threads");
	tcase_add_loop_test(tc, threads_in_one_segment, 0, 3);
	if (CAN_STEP) {
		tc = cache_case(suite, "at single instructions");
		tcase_add_test(tc, a_hit_against_growth);
		tcase_add_test(tc, a_put_against_growth);
		tcase_add_loop_test(tc, growth_against_an_unmap_at_single_instructions, 0, 2);
		tcase_add_test(tc, growth_against_growth);
		tcase_add_loop_test(tc, a_free_against_windows_at_single_instructions, 0, 2);
		tcase_add_test(tc, a_recheck_does_not_ask_about_a_window_in_the_free);
	}
	return run_suite(suite);
}
