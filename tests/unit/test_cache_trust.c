/* SPDX-License-Identifier: MIT */
/*
 * The cache notices when it is wrong: from the first sign of a missed free on, every hit is
 * checked.
 */
#define _GNU_SOURCE
#include "cache_test.h"

#include <string.h>

#define AT(i) (BASE + MIB(16) * (i))

static void must_be_checked(uint64_t addr, bool checked)
{
	unsigned before = fake_count(FAKE_QUERY);

	get_and_put(addr, 1);
	ck_assert_uint_eq(fake_count(FAKE_QUERY) - before, checked ? 1 : 0);
}

static void distrust(void)
{
	pd_distrust("%s was handed out", "cuMemFree_v9");
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

	/* Also what is pinned later, and what is handed out anew. */
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
	pd_set_intercepting(true);
	must_be_checked(BASE, true);
	ck_assert_uint_eq(stats().intercepting, 0);

	/* An allocation makes volatile memory trusted again; this is not that. */
	pd_volatile(BASE, MIB(2));
	pd_allocated(BASE, MIB(2));
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
	pd_set_intercepting(false);
	distrust();
	pd_set_intercepting(true);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	must_be_checked(BASE, true);
}
END_TEST

START_TEST(who_wants_no_checks_is_told_that_there_are_none)
{
	setenv("PINDOWN_VERIFY", "never", 1);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	ck_assert_str_eq(stderr_of(distrust),
			 "pindown: cuMemFree_v9 was handed out; hits go unchecked all the same, as "
			 "PINDOWN_VERIFY=never has it\n");
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

int main(void)
{
	Suite *suite = suite_create("cache: trust");
	TCase *door = cache_case(suite, "distrust");

	tcase_add_test(door, from_then_on_every_hit_is_checked);
	tcase_add_test(door, it_is_for_good);
	tcase_add_test(door, one_line_says_why);
	tcase_add_test(door, it_may_come_before_anything_is_pinned);
	tcase_add_test(door, who_wants_no_checks_is_told_that_there_are_none);
	tcase_add_test(door, switched_off_it_says_nothing);
	return run_suite(suite);
}
