/* SPDX-License-Identifier: MIT */
/*
 * What a miss, and the end of a region, cost: driver calls, each of which has a reason,
 * instructions, and system calls.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "cache/driver/cuda_abi.h"
#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/stepping.h"

#define AT(i) (BASE + PAGE * (i))

struct calls {
	unsigned query, sync, export, other;
};

static struct calls calls_so_far(void)
{
	return (struct calls){fake_count(FAKE_QUERY), fake_count(FAKE_SYNC),
			      fake_count(FAKE_EXPORT), fake_count(FAKE_OTHER)};
}

/* Of a miss that is not the first one, with the end of the region. */
static void assert_calls(enum fake_kind kind, struct calls expected)
{
	struct calls before, after;

	fake_alloc(BASE, MIB(2), kind);
	fake_alloc(BASE + MIB(4), MIB(2), kind);
	get_and_put(BASE + MIB(4), 1);
	before = calls_so_far();
	get_and_put(BASE + MIB(1), 1);
	watched_free(BASE);
	after = calls_so_far();
	ck_assert_uint_eq(after.query - before.query, expected.query);
	ck_assert_uint_eq(after.sync - before.sync, expected.sync);
	ck_assert_uint_eq(after.export - before.export, expected.export);
	ck_assert_uint_eq(after.other - before.other, expected.other);
}

/*
 * Whether calls are permitted; the buffer id before all others, the attributes, the range of the
 * allocation; SYNC_MEMOPS; the export; the buffer id after it. And how far the memory reaches that
 * is freed. (The scripted driver has no capture mode to be exchanged.)
 */
START_TEST(driver_calls_for_linear_memory)
{
	assert_calls(FAKE_LINEAR, (struct calls){.query = 5, .sync = 1, .export = 1, .other = 1});
}
END_TEST

/* And where the piece begins that the allocation was cut from. */
START_TEST(driver_calls_for_memory_of_a_pool)
{
	assert_calls(FAKE_POOL, (struct calls){.query = 6, .sync = 1, .export = 1, .other = 1});
}
END_TEST

/* The driver has said for other mapped memory that it has no SYNC_MEMOPS. */
START_TEST(driver_calls_for_mapped_memory)
{
	assert_calls(FAKE_VMM, (struct calls){.query = 5, .export = 1, .other = 1});
}
END_TEST

/* A free of other memory makes no difference to a miss. It asks for itself, in two ways. */
START_TEST(driver_calls_while_other_memory_is_freed)
{
	pdn_guard guard;
	unsigned before;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	guard = pdn_end_range(BASE + GIB(1), 0);
	before = fake_count(FAKE_CALLS);
	get_and_put(BASE, 1);
	pdn_ended(guard);
	ck_assert_uint_eq(fake_count(FAKE_QUERY), 4 + 2);
	ck_assert_uint_gt(fake_count(FAKE_CALLS), before);
}
END_TEST

/* ---- instructions ---- */

static unsigned present;

static void register_all(void)
{
	for (unsigned i = 0; i < present; i++)
		get_and_put(AT(i), 1);
}

static void step_range(void)
{
	register_all();
	step_from_here();
	pdn_guard guard = pdn_end_range(BASE, PAGE * present);
	step_to_here();
	pdn_ended(guard);
}

static unsigned length_of(void (*step)(void), unsigned count)
{
	present = count;
	return fewest_instructions(step);
}

/*
 * For each region of a range, and for each miss. The limits leave room for other versions of the
 * compiler; other compilers are not measured.
 */
#if defined(__OPTIMIZE__) && !defined(__clang__)
#define LIMIT	   680u
#define MISS_LIMIT 2000u
#else
#define LIMIT	   8000u
#define MISS_LIMIT 40000u
#endif

START_TEST(instructions_of_a_range)
{
	unsigned few, many;

	setenv("PINDOWN_BACKEND", "none", 1);
	for (unsigned i = 0; i < 60; i++)
		fake_alloc(AT(i), PAGE, FAKE_LINEAR);
	few = length_of(step_range, 20);
	many = length_of(step_range, 60);
	printf("instructions for each region that a range ends: %u\n", (many - few) / 40);
	ck_assert_uint_le((many - few) / 40, LIMIT);
}
END_TEST

/* ---- instructions of a miss, on a driver that takes next to none ---- */

static int a_context;

static CUresult plain_attribute(void *data, CUpointer_attribute which, CUdeviceptr addr)
{
	switch (which) {
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = addr / PAGE;
		break;
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(void **)data = &a_context;
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(void **)data = NULL;
		break;
	default:
		*(int *)data = which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? CU_MEMORYTYPE_DEVICE : 0;
	}
	return CUDA_SUCCESS;
}

static CUresult plain_attributes(unsigned count, CUpointer_attribute *which, void **data,
				 CUdeviceptr addr)
{
	for (unsigned i = 0; i < count; i++)
		plain_attribute(data[i], which[i], addr);
	return CUDA_SUCCESS;
}

static CUresult plain_range(CUdeviceptr *base, size_t *size, CUdeviceptr addr)
{
	*base = addr / PAGE * PAGE;
	*size = PAGE;
	return CUDA_SUCCESS;
}

static void *plain_symbol(const char *name)
{
	if (strcmp(name, "cuPointerGetAttribute") == 0)
		return (void *)plain_attribute;
	if (strcmp(name, "cuPointerGetAttributes") == 0)
		return (void *)plain_attributes;
	return strcmp(name, "cuMemGetAddressRange_v2") == 0 ? (void *)plain_range : NULL;
}

static void step_gets(void)
{
	struct pindown_region *region;

	step_from_here();
	for (unsigned i = 0; i < present; i++)
		if (pindown_get(AT(i), 1, 0, &region) == PINDOWN_OK)
			pindown_put(region);
	step_to_here();
}

static void step_misses(void)
{
	pindown_invalidate(BASE, PAGE * present);
	step_gets();
}

START_TEST(instructions_of_a_miss)
{
	struct pindown_stats stats;
	unsigned few, many;

	setenv("PINDOWN_BACKEND", "none", 1);
	pdn_find_driver_symbol = plain_symbol;
	few = length_of(step_misses, 4);
	many = length_of(step_misses, 12);
	ck_assert_int_eq(pindown_stats(&stats, sizeof(stats), -1), PINDOWN_OK);
	ck_assert_uint_eq(stats.regions, 12);
	printf("instructions for each miss: %u\n", (many - few) / 8);
	ck_assert_uint_le((many - few) / 8, MISS_LIMIT);
}
END_TEST

/* ---- system calls of the first pins of a process ---- */

/*
 * Most of them give memory to tables, only to the parts of them that are needed now; the second
 * region gets the index its first leaf. With memory for each column of the tables at once they
 * would be 56. The limit leaves room for one part that lies across a boundary of huge pages.
 */
START_TEST(system_calls_of_the_first_pins)
{
	const unsigned limit = 40;
	unsigned calls;

	setenv("PINDOWN_BACKEND", "none", 1);
	setenv("PINDOWN_TOP", "0", 1);
	pdn_find_driver_symbol = plain_symbol;
	present = 2;
	calls = count_system_calls(step_gets);
	ck_assert_uint_eq(stats().regions, 2);
	printf("system calls of the first two pins: %u\n", calls);
	ck_assert_uint_le(calls, limit);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: the cost of a miss and of an end");
	TCase *tc = cache_case(suite, "driver calls");

	tcase_add_test(tc, driver_calls_for_linear_memory);
	tcase_add_test(tc, driver_calls_for_memory_of_a_pool);
	tcase_add_test(tc, driver_calls_for_mapped_memory);
	tcase_add_test(tc, driver_calls_while_other_memory_is_freed);
	if (CAN_COUNT) {
		tc = cache_case(suite, "instructions");
		tcase_add_test(tc, instructions_of_a_range);
		tcase_add_test(tc, instructions_of_a_miss);
		tcase_add_test(tc, system_calls_of_the_first_pins);
	}
	return run_suite(suite);
}
