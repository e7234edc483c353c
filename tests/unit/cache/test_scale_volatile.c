/* SPDX-License-Identifier: MIT */
/*
 * The cost of volatile memory, counted in instructions: with thousands of ranges, one that comes or
 * goes and an allocation take few instructions more, and no other memory is checked.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/refuse.h"
#include "tests/unit/support/stepping.h"

#define FEW	 20u
#define MANY	 20000u
#define RANGE(i) (BASE + MIB(4) * (i))
/* Between two of them, and beside all of them. */
#define GAP   (RANGE(FEW / 2) + MIB(2))
#define ASIDE (RANGE(MANY) + GIB(1))

/* In an order that is neither that of the addresses nor the opposite. */
static unsigned shuffled(unsigned i)
{
	return i * 7919u % MANY; /* a prime that is no factor of MANY */
}

static void come(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		pdn_volatile(RANGE(shuffled(i)), MIB(2));
}

static void go(void)
{
	for (unsigned i = 0; i < MANY; i++)
		pdn_allocated(RANGE(i), MIB(2));
}

/* ---- instructions -------------------------------------------------------------------------- */

static void step_allocation(void)
{
	step_from_here();
	pdn_allocated(GAP, MIB(2));
	step_to_here();
}

static void step_coming(void)
{
	step_from_here();
	pdn_volatile(GAP + MIB(1), PAGE);
	step_to_here();
	pdn_allocated(GAP + MIB(1), PAGE);
}

static void step_going(void)
{
	pdn_volatile(GAP + MIB(1), PAGE);
	step_from_here();
	pdn_allocated(GAP + MIB(1), PAGE);
	step_to_here();
}

static void step_hit(void)
{
	pindown_region *region = NULL;

	step_from_here();
	int result = pindown_get(ASIDE, 1, 0, &region);
	step_to_here();
	ck_assert_int_eq(result, PINDOWN_OK);
	pindown_put(region);
}

struct lengths {
	unsigned allocation, coming, going, hit;
};

static struct lengths all_lengths(void)
{
	return (struct lengths){fewest_instructions(step_allocation),
				fewest_instructions(step_coming), fewest_instructions(step_going),
				fewest_instructions(step_hit)};
}

static void print(const char *when, const struct lengths *l)
{
	printf("instructions with %s: allocation %u, range comes %u, goes %u, hit %u\n", when,
	       l->allocation, l->coming, l->going, l->hit);
}

/* A thousand times as many: a logarithm grows to little more than the triple. */
START_TEST(with_few_ranges_and_with_many)
{
	struct lengths few, many, gone;

	fake_alloc(ASIDE, MIB(2), FAKE_LINEAR);
	for (unsigned i = 0; i < 8; i++) /* the first uses of a region are counted */
		get_and_put(ASIDE, 1);
	come(0, FEW);
	few = all_lengths();
	come(FEW, MANY);
	many = all_lengths();
	go();
	gone = all_lengths();
	print("few ranges", &few);
	print("many", &many);
	print("none any more", &gone);
	ck_assert_uint_lt(many.allocation, 6 * few.allocation);
	ck_assert_uint_lt(many.coming, 6 * few.coming);
	ck_assert_uint_lt(many.going, 6 * few.going);
	ck_assert_uint_eq(many.hit, few.hit);
	ck_assert_uint_le(gone.coming, few.coming);
	ck_assert_uint_eq(gone.hit, few.hit);
}
END_TEST

/* ---- which memory is checked ---------------------------------------------------------------- */

static bool is_checked(uint64_t addr)
{
	uint64_t before;

	get_and_put(addr, 1);
	before = stats().tag_checks;
	get_and_put(addr, 1);
	return stats().tag_checks != before;
}

START_TEST(other_memory_is_not_checked)
{
	come(0, MANY);
	fake_alloc(RANGE(0), MIB(2), FAKE_LINEAR);
	fake_alloc(RANGE(MANY - 1), MIB(2), FAKE_LINEAR);
	fake_alloc(GAP, MIB(2), FAKE_LINEAR);
	fake_alloc(ASIDE, MIB(2), FAKE_LINEAR);
	ck_assert(is_checked(RANGE(0)));
	ck_assert(is_checked(RANGE(MANY - 1)));
	ck_assert(!is_checked(GAP));
	ck_assert(!is_checked(ASIDE));
	go();
	ck_assert(!is_checked(RANGE(0)));
	ck_assert(!is_checked(RANGE(MANY - 1)));
}
END_TEST

/* Ranges that touch or overlap become one; what is taken out of it leaves two. */
START_TEST(ranges_become_one_and_are_cut)
{
	pdn_volatile(RANGE(0), MIB(2));
	pdn_volatile(RANGE(0) + MIB(4), MIB(2));
	pdn_volatile(RANGE(0) + MIB(2), MIB(2)); /* between them */
	pdn_volatile(RANGE(0) + MIB(5), MIB(5)); /* over the end */
	pdn_volatile(RANGE(0) + MIB(1), MIB(1)); /* within */
	for (unsigned i = 0; i < 6; i++)
		fake_alloc(RANGE(0) + MIB(2) * i, MIB(2), FAKE_LINEAR);
	for (unsigned i = 0; i < 6; i++)
		ck_assert(is_checked(RANGE(0) + MIB(2) * i) == (i < 5));
	pdn_allocated(RANGE(0) + MIB(4), MIB(2));
	for (unsigned i = 0; i < 6; i++)
		ck_assert(is_checked(RANGE(0) + MIB(2) * i) == (i < 5 && i != 2));
	pdn_allocated(RANGE(0), MIB(64));
	for (unsigned i = 0; i < 6; i++)
		ck_assert(!is_checked(RANGE(0) + MIB(2) * i));
}
END_TEST

/* ---- without memory for more ---------------------------------------------------------------- */

#define FITTING 400u /* of these ranges there are records for some at least */

/*
 * Those that there is no record for are checked, and so is all between the first and the last of
 * them. Memory that is allocated there later is not.
 */
START_TEST(ranges_without_a_record)
{
	come(0, FITTING);
	fake_alloc(ASIDE, MIB(2), FAKE_LINEAR);
	get_and_put(ASIDE, 1);
	for (unsigned i = FITTING; i < MANY; i += 1000)
		fake_alloc(RANGE(shuffled(i)), MIB(2), FAKE_LINEAR);
	for (unsigned i = FITTING; i < MANY; i += 1000)
		get_and_put(RANGE(shuffled(i)), 1);
	if (!refuse_system_call(SYS_mprotect, ENOMEM)) {
		printf("skipped: no system call filter can be installed here\n");
		return;
	}
	come(FITTING, MANY);
	for (unsigned i = FITTING; i < MANY; i += 1000)
		ck_assert_msg(is_checked(RANGE(shuffled(i))), "range %u", i);
	ck_assert(!is_checked(ASIDE));
	fake_alloc(GAP, MIB(2), FAKE_LINEAR);
	ck_assert(is_checked(GAP));
	for (uint64_t at = RANGE(0); at < RANGE(MANY); at += MIB(2))
		pdn_allocated(at, MIB(2));
	ck_assert(!is_checked(GAP));
	for (unsigned i = FITTING; i < MANY; i += 1000)
		ck_assert_msg(!is_checked(RANGE(shuffled(i))), "range %u", i);
	/* There are records again for as many as before. */
	come(0, FITTING);
	fake_alloc(RANGE(MANY - 1) + MIB(2), MIB(2), FAKE_LINEAR);
	ck_assert(!is_checked(RANGE(MANY - 1) + MIB(2)));
	ck_assert(!is_checked(GAP));
}
END_TEST

/*
 * AddressSanitizer's search for leaks, when a process ends, needs the system call that one test has
 * had refused.
 */
__attribute__((visibility("default"))) const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

int main(void)
{
	Suite *suite = suite_create("cache: many volatile ranges");
	TCase *tc = cache_case(suite, "many ranges");

	if (CAN_COUNT)
		tcase_add_test(tc, with_few_ranges_and_with_many);
	tcase_add_test(tc, other_memory_is_not_checked);
	tcase_add_test(tc, ranges_become_one_and_are_cut);
	tcase_add_test(tc, ranges_without_a_record);
	return run_suite(suite);
}
