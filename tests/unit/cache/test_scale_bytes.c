/* SPDX-License-Identifier: MIT */
/*
 * The memory that regions take, counted in the pages that they have touched: with small pages only,
 * so that the count is the same in each run.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cache/base/process/descriptor.h"
#include "cache/hit/region.h"
#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/fake_state.h"
#include "tests/unit/support/sanitizers.h"

static bool counts_pages(void)
{
	if (UNDER_SANITIZER)
		skip_test("a sanitizer takes memory of its own");
	else if (sysconf(_SC_PAGESIZE) != 4096)
		skip_test("the bounds are for pages of 4096 bytes");
	else if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0)
		skip_test("huge pages can't be turned off");
	else
		return true;
	return false;
}

static uint64_t resident(void)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[512];
	uint64_t sum = 0;
	unsigned long kib;

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Anonymous: %lu kB", &kib) == 1)
			sum += kib;
	fclose(file);
	return sum * 1024;
}

/* The driver's only memory is here now; what was pinned before stays in the cache. */
static void pin_at(uint64_t base)
{
	pindown_region *region = NULL;

	fake_memory[0].base = base;
	fake_memory[0].id = ++fake_last_id;
	ck_assert_int_eq(pindown_get(base, 1, 0, &region), PINDOWN_OK);
	pindown_put(region);
}

static const struct {
	uint32_t regions;
	uint64_t stride;
	uint32_t most; /* bytes for each of them */
} cases[] = {
	/* A record, a brief, a hold count and a leaf's number; an eighth more is there ahead. */
	{1000, PAGE, 86},
	{10000, PAGE, 89},
	{100000, PAGE, 89},
	/* A word of the index instead of a leaf's number. */
	{100000, MIB(2), 93},
};
#define CASES ((int)(sizeof(cases) / sizeof(cases[0])))

START_TEST(bytes_of_a_region)
{
	uint64_t before, bytes;

	if (!counts_pages())
		return;
	setenv("PINDOWN_BACKEND", "none", 1);
	fake_alloc(BASE, PAGE, FAKE_LINEAR);
	pin_at(BASE);
	resident(); /* for what it takes itself */
	before = resident();
	for (uint32_t i = 1; i < cases[_i].regions; i++)
		pin_at(BASE + cases[_i].stride * i);
	bytes = resident() - before;
	ck_assert_uint_eq(stats().regions, cases[_i].regions);
	printf("%u regions, one in %ju KiB: %.1f bytes a region\n", cases[_i].regions,
	       (uintmax_t)cases[_i].stride / 1024, (double)bytes / cases[_i].regions);
	ck_assert_uint_le(bytes, (uint64_t)cases[_i].most * cases[_i].regions);
	pindown_flush();
}
END_TEST

static unsigned pages_touched(void *start, size_t bytes)
{
	static unsigned char in[4096];
	size_t pages = (bytes + 4095) / 4096;
	unsigned sum = 0;

	ck_assert_uint_le(pages, sizeof(in));
	ck_assert_int_eq(mincore(start, bytes, in), 0);
	for (size_t i = 0; i < pages; i++)
		sum += in[i] & 1;
	return sum;
}

#define SOME 4000u
static const struct {
	const char *backend;
	uint32_t bytes;
} backends[] = {{"none", 0}, {"dmabuf", 16}};

/* What not all regions need takes no memory where none does. */
START_TEST(memory_for_what_few_regions_need)
{
	const uint32_t bytes = backends[_i].bytes * SOME;

	if (!counts_pages())
		return;
	if (pdn_descriptor_limit() / 2 < SOME + 100) {
		skip_test("this process can't have %u descriptors", 2 * (SOME + 100));
		return;
	}
	setenv("PINDOWN_BACKEND", backends[_i].backend, 1);
	fake_alloc(BASE, PAGE, FAKE_LINEAR);
	for (uint32_t i = 0; i < SOME; i++)
		pin_at(BASE + PAGE * i);
	ck_assert_uint_eq(pages_touched(pdn_kind_data, SOME * sizeof(*pdn_kind_data)), 0);
	ck_assert_uint_eq(pages_touched(pdn_backings, SOME * sizeof(*pdn_backings)),
			  (bytes + 4095) / 4096);
	ck_assert_uint_eq(pages_touched(pdn_objects_of, SOME * sizeof(uint32_t)), 0);
	pindown_flush();
}
END_TEST

/* The line of /proc/self/smaps with the flags of the memory at `at`; false: there is none. */
static bool flags_of(const void *at, char flags[512])
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long begin, end;
	bool in = false, found = false;

	ck_assert_ptr_nonnull(file);
	while (!found && fgets(flags, 512, file)) {
		if (sscanf(flags, "%lx-%lx ", &begin, &end) == 2)
			in = (uintptr_t)at >= begin && (uintptr_t)at < end;
		found = in && strncmp(flags, "VmFlags:", 8) == 0;
	}
	fclose(file);
	return found;
}

/* With so many regions each table has grown by steps that are large enough for huge pages. */
START_TEST(huge_pages_for_what_hits_read)
{
	const uint32_t many = 300000;
	char first[512], records[512], briefs[512], counts[512];

	if (UNDER_SANITIZER) {
		skip_test("it takes too long under a sanitizer");
		return;
	}
	setenv("PINDOWN_BACKEND", "none", 1);
	fake_alloc(BASE, PAGE, FAKE_LINEAR);
	for (uint32_t i = 0; i < many; i++)
		pin_at(BASE + PAGE * i);
	if (!flags_of(&pdn_regions[100000], first) || !flags_of(&pdn_regions[many - 1], records) ||
	    !flags_of(&pdn_briefs[many - 1], briefs) ||
	    !flags_of(&pdn_holds[PDN_STRIPE_SHARED][many - 1], counts)) {
		skip_test("/proc/self/smaps does not say how memory is used here");
		return;
	}
	if (!strstr(briefs, " hg")) {
		skip_test("the kernel has no huge pages");
		return;
	}
	ck_assert_ptr_nonnull(strstr(counts, " hg"));
	ck_assert_ptr_nonnull(strstr(first, " hg"));
	ck_assert_ptr_null(strstr(records, " hg"));
	pindown_flush();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: the memory that regions take");
	TCase *tc = cache_case(suite, "bytes");

	tcase_add_loop_test(tc, bytes_of_a_region, 0, CASES);
	tcase_add_loop_test(tc, memory_for_what_few_regions_need, 0, 2);
	tcase_add_test(tc, huge_pages_for_what_hits_read);
	return run_suite(suite);
}
