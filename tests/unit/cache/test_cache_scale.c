/* SPDX-License-Identifier: MIT */
/*
 * The cost of the frequent paths, counted in instructions, so that no clock is needed: a hit, a
 * put, a free of memory that was never registered, and a look at the counters take the same
 * instructions, whatever else is cached or being invalidated. The end of a region hardly takes more
 * among many, and the end of many grows as they do.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/stepping.h"

#define REGIONS 600u
#define AT(i)	(BASE + MIB(2) * (i))
#define UNKNOWN (BASE + GIB(300))

/* The limits are those of optimized code. */
#if defined(__OPTIMIZE__)
#define IS_AS_SHIPPED true
#else
#define IS_AS_SHIPPED false
#endif

static pindown_region *held[REGIONS];

static void step_hit(void)
{
	pindown_region *region = NULL;

	step_from_here();
	int result = pindown_get(AT(0), 1, 0, &region);
	step_to_here();
	ck_assert_int_eq(result, PINDOWN_OK);
	pindown_put(region);
}

static void step_put(void)
{
	pindown_region *region = must_get(AT(0), 1);

	step_from_here();
	pindown_put(region);
	step_to_here();
}

static void step_free_of_unknown(void)
{
	step_from_here();
	pdn_ended(pdn_end_range(UNKNOWN, 0));
	step_to_here();
}

static void step_free_of_wide_range(void)
{
	step_from_here();
	pdn_ended(pdn_end_range(BASE + GIB(16), GIB(2)));
	step_to_here();
}

static unsigned count;

/* A region in the middle of the others. */
static void step_end_of_one(void)
{
	get_and_put(AT(count / 2), 1);
	step_from_here();
	pdn_ended(pdn_end_range(AT(count / 2), 0));
	step_to_here();
}

static void step_end_of_all(void)
{
	for (unsigned i = 0; i < count; i++)
		get_and_put(AT(i), 1);
	step_from_here();
	pdn_ended(pdn_end_range(AT(0), MIB(2) * count));
	step_to_here();
}

static void step_flush(void)
{
	for (unsigned i = 0; i < count; i++)
		get_and_put(AT(i), 1);
	step_from_here();
	int flushed = pindown_flush();
	step_to_here();
	ck_assert_int_eq(flushed, (int)count);
}

static void step_stats(void)
{
	struct pindown_stats now;

	step_from_here();
	int result = pindown_stats(&now, sizeof(now), -1);
	step_to_here();
	ck_assert_int_eq(result, PINDOWN_OK);
	ck_assert_uint_eq(now.regions, count);
}

struct lengths {
	unsigned hit, put, unknown, wide;
};

static struct lengths all_lengths(void)
{
	return (struct lengths){fewest_instructions(step_hit), fewest_instructions(step_put),
				fewest_instructions(step_free_of_unknown),
				fewest_instructions(step_free_of_wide_range)};
}

static void get(unsigned from, unsigned to, pindown_region **regions)
{
	for (unsigned i = from; i < to; i++) {
		pindown_region *region = must_get(AT(i), 1);

		if (regions)
			regions[i] = region;
		else
			pindown_put(region);
	}
}

/* A free asks how far its memory reaches. The fake driver would search for that. */
static int answer_at_once(uint64_t *base, size_t *size, uint64_t addr)
{
	*base = addr & -PAGE;
	*size = PAGE;
	return FAKE_SUCCESS;
}

static void *symbol(const char *name)
{
	return strcmp(name, "cuMemGetAddressRange_v2") ? fake_symbol(name) : (void *)answer_at_once;
}

static void make_memory(void)
{
	pdn_find_driver_symbol = symbol;
	for (unsigned i = 0; i < REGIONS; i++)
		fake_alloc(AT(i), PAGE, FAKE_LINEAR);
}

START_TEST(with_one_region_and_with_many)
{
	struct lengths one, many;

	make_memory();
	get(0, 1, NULL);
	one = all_lengths();
	get(1, REGIONS, NULL);
	many = all_lengths();
	printf("instructions with one region: hit %u, put %u, free of something else %u\n", one.hit,
	       one.put, one.unknown);
	ck_assert_uint_eq(one.hit, many.hit);
	ck_assert_uint_eq(one.put, many.put);
	ck_assert_uint_eq(one.unknown, many.unknown);
	ck_assert_uint_eq(one.wide, many.wide);
}
END_TEST

/* The end of a region may look at a few more nodes of the index, in each of its levels. */
START_TEST(an_end_does_not_depend_on_the_others)
{
	unsigned few, many;

	make_memory();
	get(0, 10, NULL);
	count = 10;
	few = fewest_instructions(step_end_of_one);
	get(0, REGIONS, NULL);
	count = REGIONS;
	many = fewest_instructions(step_end_of_one);
	printf("instructions of the end of a region: %u of 10, %u of %u\n", few, many, REGIONS);
	ck_assert_uint_lt(many, few + few / 2);
	if (IS_AS_SHIPPED)
		ck_assert_uint_le(few, 1800);
}
END_TEST

static void hear(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
}

/* The places of other subscribers, of which there may be 64, cost next to nothing. */
START_TEST(a_subscriber_costs_what_it_does)
{
	unsigned with_none, with_one;
	int id;

	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	count = 1;
	with_none = fewest_instructions(step_end_of_one);
	id = pindown_subscribe(hear, NULL);
	with_one = fewest_instructions(step_end_of_one);
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
	printf("instructions of the end of a region: %u without a subscriber, %u with one\n",
	       with_none, with_one);
	if (IS_AS_SHIPPED)
		ck_assert_uint_le(with_one, 2 * with_none);
}
END_TEST

/* How `stepped` grows from FEW regions to MANY: as they do, and a little. */
static void must_be_linear(const char *what, void (*stepped)(void))
{
	enum { FEW = 8, MANY = 64 }; /* a step takes some microseconds */
	unsigned few, many;

	count = FEW;
	few = fewest_instructions(stepped);
	count = MANY;
	many = fewest_instructions(stepped);
	printf("instructions of %s: %u with %d regions, %u with %d\n", what, few, FEW, many, MANY);
	ck_assert_uint_lt(many, MANY / FEW * (few + few / 4));
}

START_TEST(the_end_of_a_range_is_linear)
{
	make_memory();
	must_be_linear("the end of a range", step_end_of_all);
}
END_TEST

/*
 * Side by side, a page each: what each region adds to the end of a range. The driver's own close of
 * its dma-buf takes a hundred times as long; a look at the whole tree for each of them takes more.
 */
static void step_end_of_pages(void)
{
	for (unsigned i = 0; i < count; i++)
		get_and_put(BASE + PAGE * i, 1);
	step_from_here();
	pdn_ended(pdn_end_range(BASE, PAGE * count));
	step_to_here();
}

START_TEST(a_region_adds_little_to_the_end_of_a_range)
{
	enum { FEW = 32, MANY_PAGES = 96 };
	unsigned few, many, each;

	for (unsigned i = 0; i < MANY_PAGES; i++)
		fake_alloc(BASE + PAGE * i, PAGE, FAKE_LINEAR);
	count = FEW;
	few = fewest_instructions(step_end_of_pages);
	count = MANY_PAGES;
	many = fewest_instructions(step_end_of_pages);
	each = (many - few) / (MANY_PAGES - FEW);
	printf("instructions that each of many regions adds to the end of a range: %u\n", each);
	if (IS_AS_SHIPPED)
		ck_assert_uint_le(each, 980);
}
END_TEST

START_TEST(a_flush_is_linear)
{
	make_memory();
	must_be_linear("a flush", step_flush);
}
END_TEST

START_TEST(stats_do_not_depend_on_regions)
{
	unsigned few, many;

	make_memory();
	get(0, 1, NULL);
	count = 1;
	few = fewest_instructions(step_stats);
	get(1, REGIONS, NULL);
	count = REGIONS;
	many = fewest_instructions(step_stats);
	ck_assert_uint_eq(few, many);
}
END_TEST

/* Their memory was freed while they were in use: they wait for their last put. */
START_TEST(with_regions_that_wait_for_their_last_put)
{
	struct lengths before, meanwhile;

	make_memory();
	get(0, 1, NULL);
	get(1, REGIONS, held);
	before = all_lengths();
	for (unsigned i = 1; i < REGIONS; i++)
		watched_free(AT(i));
	ck_assert_uint_eq(stats().kept_regions, REGIONS - 1);
	meanwhile = all_lengths();
	ck_assert_uint_eq(before.hit, meanwhile.hit);
	ck_assert_uint_eq(before.put, meanwhile.put);
	ck_assert_uint_eq(before.unknown, meanwhile.unknown);
	for (unsigned i = 1; i < REGIONS; i++)
		pindown_put(held[i]);
}
END_TEST

/* ---- a vector, and the gets that it replaces ---- */

#define MANY 64u

static struct pindown_range ranges[MANY];
static pindown_region *got[MANY];

static void step_gets(void)
{
	step_from_here();
	for (unsigned i = 0; i < MANY; i++)
		pindown_get(ranges[i].addr, ranges[i].length, 0, &got[i]);
	step_to_here();
	pindown_putv(got, MANY);
}

static void step_vector(void)
{
	step_from_here();
	pindown_getv(ranges, MANY, 0, got, NULL);
	step_to_here();
	pindown_putv(got, MANY);
}

static void step_puts(void)
{
	pindown_getv(ranges, MANY, 0, got, NULL);
	step_from_here();
	for (unsigned i = 0; i < MANY; i++)
		pindown_put(got[i]);
	step_to_here();
}

static void step_puts_of_vector(void)
{
	pindown_getv(ranges, MANY, 0, got, NULL);
	step_from_here();
	pindown_putv(got, MANY);
	step_to_here();
}

/* Of one region, of eight, and of a region for each range. A compiler's choices may differ. */
START_TEST(a_vector_takes_no_more_than_its_gets)
{
	const unsigned regions = _i == 0 ? 1 : _i == 1 ? 8 : MANY;
	unsigned gets, vector, puts, puts_of_vector;

	make_memory();
	for (unsigned i = 0; i < MANY; i++)
		ranges[i] = (struct pindown_range){AT(i * regions / MANY) + i, 1};
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(pindown_getv(ranges, MANY, 0, got, NULL), PINDOWN_OK);
		pindown_putv(got, MANY);
	}
	gets = fewest_instructions(step_gets);
	vector = fewest_instructions(step_vector);
	puts = fewest_instructions(step_puts);
	puts_of_vector = fewest_instructions(step_puts_of_vector);
	printf("instructions for %u ranges of %u regions: gets %u, vector %u; puts %u, vector %u\n",
	       MANY, regions, gets, vector, puts, puts_of_vector);
	if (IS_AS_SHIPPED) {
		ck_assert_uint_le(16 * vector, 17 * gets);
		ck_assert_uint_le(16 * puts_of_vector, 17 * puts);
	}
}
END_TEST

/* ---- windows ---- */

/* In front of the windows, and behind them: far behind, so that a walk would take long. */
#define BEFORE (BASE - GIB(3))

static void step_free_before(void)
{
	step_from_here();
	pdn_ended(pdn_end_range(BEFORE, 0));
	step_to_here();
}

#define WINDOWED    8u
#define LARGE	    MIB(16)
#define LARGE_AT(i) (BASE + GIB(1) + GIB(3) * (i))

static void pin_windows(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++) {
		fake_alloc(LARGE_AT(i), LARGE, FAKE_LINEAR);
		get_and_put(LARGE_AT(i) + MIB(4), 1);
	}
}

/* Allocations that are pinned by windows: a free of something else looks for them in a table. */
START_TEST(with_windows)
{
	unsigned none[2], one[2], many[2];

	setenv("PINDOWN_MAX_BYTES", "8M", 1);
	fake_alloc(AT(0), PAGE, FAKE_LINEAR);
	get_and_put(AT(0), 1);
	none[0] = fewest_instructions(step_free_before);
	none[1] = fewest_instructions(step_free_of_unknown);
	pin_windows(0, 1);
	one[0] = fewest_instructions(step_free_before);
	one[1] = fewest_instructions(step_free_of_unknown);
	pin_windows(1, WINDOWED);
	ck_assert_uint_eq(stats().regions, 8);
	many[0] = fewest_instructions(step_free_before);
	many[1] = fewest_instructions(step_free_of_unknown);
	printf("instructions of a free of something else, in front of windows: %u with none, %u "
	       "with one, %u with many; behind them: %u, %u, %u\n",
	       none[0], one[0], many[0], none[1], one[1], many[1]);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_uint_le(one[i], 8 * none[i]);
		ck_assert_uint_le(many[i], 2 * one[i]);
	}
}
END_TEST

static struct gate is_told, may_go_on;

static void wait_in_callback(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	gate_open(&is_told);
	gate_wait(&may_go_on);
}

static void free_one(void *arg)
{
	(void)arg;
	watched_free(AT(1));
}

/* Another thread is in the middle of the invalidation. */
START_TEST(with_an_invalidation_under_way)
{
	struct lengths before, meanwhile;
	struct worker worker;
	int id;

	gate_init(&is_told);
	gate_init(&may_go_on);
	make_memory();
	get(0, 2, NULL);
	before = all_lengths();
	id = pindown_subscribe(wait_in_callback, NULL);
	worker_start(&worker, free_one, NULL);
	gate_wait(&is_told);
	meanwhile.hit = fewest_instructions(step_hit);
	meanwhile.put = fewest_instructions(step_put);
	gate_open(&may_go_on);
	worker_join(&worker);
	pindown_unsubscribe(id);
	ck_assert_uint_eq(before.hit, meanwhile.hit);
	ck_assert_uint_eq(before.put, meanwhile.put);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: the frequent paths at scale");
	TCase *tc = cache_case(suite, "instructions");

	tcase_add_test(tc, a_subscriber_costs_what_it_does);
	tcase_add_test(tc, with_one_region_and_with_many);
	tcase_add_test(tc, an_end_does_not_depend_on_the_others);
	tcase_add_test(tc, the_end_of_a_range_is_linear);
	tcase_add_test(tc, a_region_adds_little_to_the_end_of_a_range);
	tcase_add_test(tc, a_flush_is_linear);
	tcase_add_test(tc, stats_do_not_depend_on_regions);
	tcase_add_test(tc, with_regions_that_wait_for_their_last_put);
	tcase_add_loop_test(tc, a_vector_takes_no_more_than_its_gets, 0, 3);
	tcase_add_test(tc, with_windows);
	tcase_add_test(tc, with_an_invalidation_under_way);
	return run_counting_suite(suite);
}
