/* SPDX-License-Identifier: MIT */
/*
 * Where device memory has been (hook/cuda/devicemap.h): which addresses may be the device's, and
 * how little address space it takes to know that.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hook/cuda/devicemap.h"
#include "tests/unit/support/suite.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
#define BASE   0x7f0000000000ull
#define TOP    (1ull << PDN_DEVICE_ADDRESS)

START_TEST(seen_memory_may_be_the_devices)
{
	ck_assert(!pdn_may_be_device(BASE));
	pdn_device_seen(BASE, 1);
	ck_assert(pdn_may_be_device(BASE));
	ck_assert(pdn_may_be_device(BASE + MIB(2) - 1));
	ck_assert(!pdn_may_be_device(BASE + MIB(2)));
	ck_assert(!pdn_may_be_device(BASE - 1));
	ck_assert(!pdn_may_be_device(BASE + GIB(64)));
	ck_assert(!pdn_may_be_device(0));
	ck_assert(!pdn_may_be_device(UINT64_MAX));
}
END_TEST

/* What an event of memory asks: any address within it, and any number that is none. */
START_TEST(an_address_within_is_marked)
{
	ck_assert(!pdn_is_marked(PDN_DEVICE_ALL, BASE + 1));
	pdn_device_seen(BASE, 1);
	ck_assert(pdn_is_marked(PDN_DEVICE_ALL, BASE));
	ck_assert(pdn_is_marked(PDN_DEVICE_ALL, BASE + 1));
	ck_assert(pdn_is_marked(PDN_DEVICE_ALL, BASE + 0x12345));
	ck_assert(!pdn_is_marked(PDN_DEVICE_ALL, BASE + MIB(2) + 1));
	ck_assert(!pdn_is_marked(PDN_DEVICE_ALL, TOP));
	ck_assert(!pdn_is_marked(PDN_DEVICE_ALL, UINT64_MAX << 16));
	ck_assert(!pdn_is_marked(PDN_DEVICE_ALL, UINT64_MAX));
}
END_TEST

/* Pools have much memory, which need not be asked about. */
START_TEST(memory_of_cuMemAlloc_is_told_apart)
{
	pdn_device_seen(BASE, MIB(4));
	ck_assert(!pdn_device_may_be_in(PDN_DEVICE_LINEAR, BASE));
	pdn_device_seen_in(PDN_DEVICE_LINEAR, BASE + MIB(2) + 100, 1);
	ck_assert(pdn_device_may_be_in(PDN_DEVICE_LINEAR, BASE + MIB(2)));
	ck_assert(!pdn_device_may_be_in(PDN_DEVICE_LINEAR, BASE));
	ck_assert(!pdn_device_may_be_in(PDN_DEVICE_LINEAR, BASE + MIB(4)));
	pdn_device_seen_in(PDN_DEVICE_LINEAR, BASE + GIB(1), MIB(1));
	ck_assert(pdn_may_be_device(BASE + GIB(1)));
}
END_TEST

/* Across the end of a word of bits, and of two parts of the map. */
START_TEST(long_ranges_are_seen_from_end_to_end)
{
	static const uint64_t ends[] = {MIB(128), GIB(64), GIB(128), GIB(192) + MIB(130)};

	for (unsigned i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		uint64_t first = i * GIB(1024) + GIB(512) - MIB(2);
		uint64_t last = i * GIB(1024) + GIB(512) + ends[i];

		pdn_device_seen(first + 5, last - first);
		for (uint64_t at = first; at < last + MIB(2); at += MIB(2))
			ck_assert_msg(pdn_may_be_device(at), "%llx of %llx to %llx",
				      (unsigned long long)at, (unsigned long long)first,
				      (unsigned long long)last);
		ck_assert(!pdn_may_be_device(first - 1));
		ck_assert(!pdn_may_be_device(last + MIB(2)));
	}
}
END_TEST

START_TEST(nothing_lies_above)
{
	pdn_device_seen(TOP - MIB(2), MIB(8));
	ck_assert(pdn_may_be_device(TOP - 1));
	ck_assert(!pdn_may_be_device(TOP - MIB(2) - 1));
	pdn_device_seen(TOP, MIB(2));
	ck_assert(!pdn_may_be_device(TOP));
	pdn_device_seen(BASE, 0);
	ck_assert(!pdn_may_be_device(BASE));
}
END_TEST

/* ---- address space --------------------------------------------------------------------------- */

START_TEST(it_takes_little_address_space)
{
	uint64_t before = used_address_space();

	pdn_device_seen(BASE, MIB(1));
	pdn_device_seen(BASE + GIB(32), GIB(64));
	ck_assert_uint_le(used_address_space() - before, KIB(256));
}
END_TEST

/* Without memory for a part every address there may be the device's, and the driver is asked. */
START_TEST(without_address_space_it_may_be_everywhere)
{
	struct rlimit limit;
	rlim_t before;

	if (emulator_lacks("limits of address space"))
		return;
	pdn_device_seen(BASE, MIB(1));
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
	before = limit.rlim_cur;
	limit.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	errno = ENXIO;
	pdn_device_seen(BASE + GIB(100), MIB(1));
	ck_assert_int_eq(errno, ENXIO);
	limit.rlim_cur = before; /* a sanitizer needs some at the end */
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	ck_assert(pdn_may_be_device(BASE + GIB(100)));
	ck_assert(pdn_may_be_device(0));
	ck_assert(pdn_device_may_be_in(PDN_DEVICE_LINEAR, 0));
	ck_assert(pdn_may_be_device(BASE));
	ck_assert(!pdn_may_be_device(BASE + GIB(1))); /* which the map knows */
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("where device memory has been");
	TCase *tc = suite_case(suite, "addresses", NULL, NULL);

	tcase_add_test(tc, seen_memory_may_be_the_devices);
	tcase_add_test(tc, an_address_within_is_marked);
	tcase_add_test(tc, memory_of_cuMemAlloc_is_told_apart);
	tcase_add_test(tc, long_ranges_are_seen_from_end_to_end);
	tcase_add_test(tc, nothing_lies_above);
	tc = suite_case(suite, "address space", NULL, NULL);
	tcase_add_test(tc, it_takes_little_address_space);
	tcase_add_test(tc, without_address_space_it_may_be_everywhere);
	return run_suite(suite);
}
