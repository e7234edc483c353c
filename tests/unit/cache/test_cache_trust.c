/* SPDX-License-Identifier: MIT */
/*
 * The cache notices that it is wrong: from the first sign of a missed free on, every hit is
 * checked.
 */
#define _GNU_SOURCE
#include "tests/unit/support/cache_test.h"

#include <stdio.h>

#include "cache/hook_events.h"
#include "cache/pindown.h"
#include "cache/trust/trust.h"

#define AT(i) (BASE + MIB(16) * (i))

static void must_be_checked(uint64_t addr, bool checked)
{
	unsigned before = fake_count(FAKE_QUERY);

	get_and_put(addr, 1);
	ck_assert_uint_eq(fake_count(FAKE_QUERY) - before, checked ? 1 : 0);
}

static void distrust(void)
{
	pdn_distrust("%s was handed out", "cuMemFree_v9");
}

START_TEST(from_then_on_every_hit_is_checked)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	pindown_region *held = must_get(AT(1), 1);
	must_be_checked(AT(0), false);
	must_be_checked(AT(1), false);
	ck_assert_uint_eq(stats().distrusted, 0);

	distrust();
	must_be_checked(AT(0), true);
	must_be_checked(AT(1), true);
	ck_assert_uint_eq(stats().distrusted, 1);
	ck_assert_uint_eq(stats().intercepting, 0);
	pindown_put(held);

	/* This is so for later pins, too, and for memory that is handed out again. */
	fake_alloc(AT(2), MIB(2), FAKE_LINEAR);
	get_and_put(AT(2), 1);
	must_be_checked(AT(2), true);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	must_be_checked(AT(0), true);
}
END_TEST

START_TEST(it_is_for_good)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	distrust();
	pdn_set_intercepting(true);
	must_be_checked(BASE, true);
	ck_assert_uint_eq(stats().intercepting, 0);

	/*
	 * A notice of an allocation makes volatile memory trusted again; this is not such a notice.
	 */
	pdn_volatile(BASE, MIB(2));
	pdn_allocated(BASE, MIB(2));
	must_be_checked(BASE, true);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
}
END_TEST

START_TEST(one_line_says_why)
{
	const char *said = stderr_of(distrust);

	ck_assert_str_eq(said,
			 "pindown: cuMemFree_v9 was handed out; from now on every hit is checked "
			 "by buffer id\n");
	ck_assert_str_eq(stderr_of(distrust), "");
}
END_TEST

START_TEST(it_may_come_before_anything_is_pinned)
{
	pdn_set_intercepting(false);
	distrust();
	pdn_set_intercepting(true);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	must_be_checked(BASE, true);
}
END_TEST

START_TEST(with_verify_never_a_line_says_that_hits_are_not_checked)
{
	setenv("PINDOWN_VERIFY", "never", 1);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	ck_assert_str_eq(stderr_of(distrust),
			 "pindown: cuMemFree_v9 was handed out; hits are still not checked, "
			 "because PINDOWN_VERIFY is never\n");
	must_be_checked(BASE, false);
	ck_assert_uint_eq(stats().distrusted, 1);
}
END_TEST

START_TEST(switched_off_it_says_nothing)
{
	setenv("PINDOWN", "0", 1);
	ck_assert_str_eq(stderr_of(distrust), "");
}
END_TEST

/* ---- a miss ---- */

/*
 * Memory of pool POOL lies at AT(0), is registered, and is freed unseen; an unrelated region is at
 * AT(1).
 */
#define POOL ((void *)0xb1)

static void miss_one(enum fake_kind kind)
{
	fake_alloc_in(AT(0), MIB(2), kind, kind == FAKE_LINEAR ? FAKE_CONTEXT : NULL, 0,
		      kind == FAKE_POOL ? POOL : NULL);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	get_and_put(AT(1), 1);
	must_be_checked(AT(1), false);
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS);
}

static void alloc_in_its_place(void)
{
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
}

static void recheck(void)
{
	pdn_recheck(NULL);
}

static void recheck_its_pool(void)
{
	pdn_recheck(POOL);
}

/* Pins a range that continues into another allocation, so that it is no hit. */
static void pin_in_its_place(void)
{
	fake_alloc(AT(0), MIB(4), FAKE_LINEAR);
	get_and_put(AT(0), MIB(4));
}

static void hit_until_found(void)
{
	pindown_region *region;

	for (unsigned i = 0; i < 3 * pdn_hits_for_a_look && !stats().distrusted; i++)
		if (pindown_get(AT(0), 1, 0, &region) == PINDOWN_OK)
			pindown_put(region);
}

static const struct {
	void (*notice)(void);
	enum fake_kind kind;
	const char *line;
} ways[] = {
	{alloc_in_its_place, FAKE_LINEAR,
	 "memory of a context, as cuMemAlloc makes it; buffer id 42): the driver handed out its "
	 "address "
	 "again"},
	{alloc_in_its_place, FAKE_VMM,
	 "memory of no context and no pool, as cuMemMap makes it; buffer id 42): the driver handed "
	 "out its "
	 "address again"},
	{recheck, FAKE_LINEAR,
	 "memory of a context, as cuMemAlloc makes it; buffer id 42): gone after a call that may "
	 "free "
	 "memory"},
	{recheck_its_pool, FAKE_POOL,
	 "memory of a pool, as cuMemAllocAsync makes it; buffer id 42): gone after a call that may "
	 "free "
	 "memory"},
	{pin_in_its_place, FAKE_LINEAR,
	 "memory of a context, as cuMemAlloc makes it; buffer id 42): a pin found it gone"},
	{hit_until_found, FAKE_LINEAR,
	 "memory of a context, as cuMemAlloc makes it; buffer id 42): a hit found it gone"},
};

START_TEST(from_a_miss_on_every_hit_is_checked)
{
	char line[400];

	miss_one(ways[_i].kind);
	snprintf(line, sizeof(line),
		 "pindown: a free went unseen, of 2097152 bytes at 0x7f4400000000 (%s; from now on "
		 "every "
		 "hit is checked by buffer id\n",
		 ways[_i].line);
	ck_assert_str_eq(stderr_of(ways[_i].notice), line);
	expected_missed = 1;
	ck_assert_uint_eq(stats().distrusted, 1);
	ck_assert_uint_eq(stats().intercepting, 0);
	must_be_checked(AT(1), true);

	/* A later miss is counted, and found by the next hit. It prints no second line. */
	ck_assert_int_eq(fake_free(AT(1)), FAKE_SUCCESS);
	must_refuse(AT(1), 1, PINDOWN_ERR_NOT_DEVICE);
	expected_missed = 2;
}
END_TEST

static void miss_two(void)
{
	alloc_in_its_place();
	ck_assert_int_eq(fake_free(AT(1)), FAKE_SUCCESS);
	watched_alloc(AT(1), MIB(2), FAKE_LINEAR);
}

START_TEST(a_second_miss_is_counted_in_silence)
{
	miss_one(FAKE_LINEAR);
	ck_assert_uint_eq(lines_of(stderr_of(miss_two)), 1);
	expected_missed = 2;
}
END_TEST

START_TEST(volatile_memory_that_goes_unseen_is_no_miss)
{
	miss_one(FAKE_LINEAR);
	pdn_volatile(AT(0), MIB(2));
	must_refuse(AT(0), 1, PINDOWN_ERR_NOT_DEVICE);
	pdn_recheck(NULL);
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	ck_assert_uint_eq(stats().distrusted, 0);
	must_be_checked(AT(1), false);
}
END_TEST

/* There each hit is checked from the beginning, and this is how frees are found. */
START_TEST(where_frees_are_not_watched_none_is_missed)
{
	pdn_set_intercepting(false);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS);
	ck_assert_str_eq(stderr_of(alloc_in_its_place), "");
	ck_assert_uint_eq(stats().distrusted, 0);
	expected_missed = stats().missed_invalidations;
}
END_TEST

/* A free that is seen, of memory that a hit is just being checked for. */
static void free_seen(void *arg)
{
	(void)arg;
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
}

static struct worker freeing;

/* It waits for the answer, which is that the memory is there. */
static void begin_to_free(void *arg)
{
	worker_start(&freeing, free_seen, arg);
	worker_wait_idle(&freeing);
	ck_assert(!worker_is_done(&freeing));
}

START_TEST(a_free_that_is_seen_during_a_check_is_no_miss)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pdn_volatile(AT(0), 1);
	get_and_put(AT(0), 1);
	pdn_volatile(AT(2), 1);
	fake_at_edge(FAKE_QUERY, FAKE_ENTERING(0), begin_to_free, NULL);
	must_refuse(AT(0), 1, PINDOWN_ERR_NOT_DEVICE);
	worker_join(&freeing);
	ck_assert(fake_edge_met());
	ck_assert_uint_eq(stats().distrusted, 0);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
}
END_TEST

/* ---- by chance ---- */

START_TEST(few_hits_are_compared)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pdn_hits_for_a_look = 64;
	get_and_put(AT(0), 1);
	for (unsigned i = 0; i < 64; i++)
		get_and_put(AT(0), 1);
	unsigned before = fake_count(FAKE_QUERY);
	for (unsigned i = 0; i < 64 * 100; i++)
		get_and_put(AT(0), 1);
	ck_assert_uint_gt(fake_count(FAKE_QUERY) - before, 80);
	ck_assert_uint_lt(fake_count(FAKE_QUERY) - before, 125);
	ck_assert_uint_ge(stats().tag_checks, fake_count(FAKE_QUERY) - before);
	ck_assert_uint_eq(stats().hits, 64 + 64 * 100);
}
END_TEST

START_TEST(with_verify_never_no_hit_is_compared_by_chance)
{
	setenv("PINDOWN_VERIFY", "never", 1);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pdn_hits_for_a_look = 4;
	get_and_put(AT(0), 1);
	unsigned before = fake_count(FAKE_CALLS);
	for (unsigned i = 0; i < 100; i++)
		get_and_put(AT(0), 1);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), before);
}
END_TEST

static bool find(uint64_t addr, uint64_t dead)
{
	pindown_region *region = must_get(addr, 1);
	bool found = pindown_region_buffer_id(region) != dead;

	pindown_put(region);
	return found;
}

/*
 * The program goes through its buffers in turn, in step with the random checks: the buffer that
 * died unseen is found whichever it is, also one that shares its page with others.
 */
START_TEST(whichever_has_died_unseen_is_found)
{
	const unsigned buffers = 8;
	uint64_t at = _i == 8 ? AT(9) + KIB(4) : AT(_i), dead;
	unsigned hits = 0;

	pdn_hits_for_a_look = 64;
	for (unsigned i = 0; i < buffers; i++)
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(9), KIB(4), FAKE_LINEAR);
	fake_alloc(AT(9) + KIB(4), KIB(4), FAKE_LINEAR);
	for (unsigned i = 0; i < buffers; i++)
		get_and_put(AT(i), 1);
	get_and_put(AT(9), 1);
	get_and_put(AT(9) + KIB(4), 1);
	dead = fake_id(at);
	ck_assert_int_eq(fake_free(at), FAKE_SUCCESS);
	fake_alloc(at, KIB(4), FAKE_LINEAR);
	for (; !find(at, dead) && hits < 64 * buffers * 16; hits += buffers)
		for (unsigned i = 1; i < buffers; i++)
			get_and_put(AT((_i + i) % buffers), 1);
	ck_assert_uint_lt(hits, 64 * buffers * 16);
	ck_assert_uint_eq(stats().distrusted, 1);
	expected_missed = 1;
}
END_TEST

/* Hits that are checked in any case don't delay the random checks of others. */
START_TEST(checked_hits_put_off_no_look)
{
	pindown_region *region;

	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	pdn_hits_for_a_look = 64;
	pdn_volatile(AT(1), MIB(2));
	get_and_put(AT(0), 1);
	get_and_put(AT(1), 1);
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS);
	for (unsigned i = 0; i < 64 * 16 && !stats().distrusted; i++) {
		get_and_put(AT(1), 1);
		if (pindown_get(AT(0), 1, 0, &region) == PINDOWN_OK)
			pindown_put(region);
	}
	ck_assert_uint_eq(stats().distrusted, 1);
	expected_missed = 1;
}
END_TEST

/* The driver can't answer just now: that does not say that the memory is gone. */
START_TEST(an_answer_about_something_else_is_no_miss)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pdn_hits_for_a_look = 4;
	get_and_put(AT(0), 1);
	unsigned before = fake_count(FAKE_QUERY);
	fake_fail(FAKE_QUERY, 0, 1000, FAKE_UNKNOWN);
	for (unsigned i = 0; i < 100; i++)
		get_and_put(AT(0), 1);
	ck_assert_uint_ge(fake_count(FAKE_QUERY) - before, 10);
	pdn_recheck(NULL);
	fake_fail(FAKE_QUERY, 0, 0, 0);
	ck_assert_uint_eq(stats().distrusted, 0);
	ck_assert_uint_eq(stats().pins, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: trust");
	TCase *door = cache_case(suite, "distrust");

	tcase_add_test(door, from_then_on_every_hit_is_checked);
	tcase_add_test(door, it_is_for_good);
	tcase_add_test(door, one_line_says_why);
	tcase_add_test(door, it_may_come_before_anything_is_pinned);
	tcase_add_test(door, with_verify_never_a_line_says_that_hits_are_not_checked);
	tcase_add_test(door, switched_off_it_says_nothing);
	TCase *miss = cache_case(suite, "misses");
	tcase_add_loop_test(miss, from_a_miss_on_every_hit_is_checked, 0,
			    sizeof(ways) / sizeof(ways[0]));
	tcase_add_test(miss, a_second_miss_is_counted_in_silence);
	tcase_add_test(miss, volatile_memory_that_goes_unseen_is_no_miss);
	tcase_add_test(miss, where_frees_are_not_watched_none_is_missed);
	tcase_add_test(miss, a_free_that_is_seen_during_a_check_is_no_miss);
	TCase *chance = cache_case(suite, "by chance");
	tcase_add_test(chance, few_hits_are_compared);
	tcase_add_test(chance, with_verify_never_no_hit_is_compared_by_chance);
	tcase_add_loop_test(chance, whichever_has_died_unseen_is_found, 0, 9);
	tcase_add_test(chance, checked_hits_put_off_no_look);
	tcase_add_test(chance, an_answer_about_something_else_is_no_miss);
	return run_suite(suite);
}
