/* SPDX-License-Identifier: MIT */
/*
 * The driver refuses to export memory of a pool, though nobody has freed it: it is asked again, at
 * once, then after pauses. The test counts the pauses, and acts in them.
 */
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "cache/driver/cuda_abi.h"
#include "cache/driver/driver.h"
#include "cache/end/work.h"
#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/syscalls.h"

#define TRIES_AT_ONCE 4u  /* the first one, and three more */
#define TRIES_AT_MOST 11u /* and one after each pause */
#define MOST_PAUSED   (uint64_t)5000000

static __thread bool gets; /* this thread; others may wait for a lock */
static unsigned pauses;
static uint64_t paused;
static void (*in_pause)(void);

static void pause_instead(const struct timespec *request)
{
	pauses++;
	paused += (uint64_t)request->tv_sec * 1000000000u + (uint64_t)request->tv_nsec;
	if (in_pause)
		in_pause();
}

bool play_syscall(long number, const long args[6], long *result)
{
	if (number != SYS_nanosleep || !gets)
		return false;
	pause_instead((const struct timespec *)args[0]);
	*result = 0;
	return true;
}

/* A machine without NVLink-C2C: elsewhere each try may ask for both mappings. */
static int device_attribute(int *value, int attribute, int device)
{
	(void)device;
	*value = attribute != CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES;
	return FAKE_SUCCESS;
}

static void *symbol(const char *name)
{
	return strcmp(name, "cuDeviceGetAttribute") ? fake_symbol(name) : (void *)device_attribute;
}

static void begin(void)
{
	cache_begin();
	pdn_find_driver_symbol = symbol;
	gets = true;
}

static void refuse(unsigned times)
{
	fake_fail(FAKE_EXPORT, 0, times, FAKE_INVALID_VALUE);
}

static unsigned tries_of(uint64_t addr, unsigned flags, int result)
{
	unsigned before = fake_count(FAKE_EXPORT);
	pindown_region *region = NULL;

	pauses = 0;
	paused = 0;
	ck_assert_int_eq(pindown_get(addr, 1, flags, &region), result);
	if (result == PINDOWN_OK)
		pindown_put(region);
	return fake_count(FAKE_EXPORT) - before;
}

START_TEST(some_refusals_are_asked_about_again_at_once)
{
	fake_alloc(BASE, MIB(2), FAKE_POOL);
	refuse(3);
	ck_assert_uint_eq(tries_of(BASE, 0, PINDOWN_OK), 4);
	ck_assert_uint_eq(pauses, 0);
	ck_assert_uint_eq(stats().pin_failures, 0);
	ck_assert_uint_eq(stats().lost_races, 0);
}
END_TEST

START_TEST(more_refusals_are_asked_about_again_after_pauses)
{
	fake_alloc(BASE, MIB(2), FAKE_POOL);
	refuse(5);
	ck_assert_uint_eq(tries_of(BASE, 0, PINDOWN_OK), 6);
	ck_assert_uint_eq(pauses, 2);
	ck_assert_uint_eq(stats().pin_failures, 0);
}
END_TEST

START_TEST(a_refusal_for_ever_is_the_drivers_answer)
{
	fake_alloc(BASE, MIB(2), FAKE_POOL);
	refuse(1000);
	ck_assert_uint_eq(tries_of(BASE, 0, PINDOWN_ERR_DRIVER), TRIES_AT_MOST);
	ck_assert_uint_eq(pauses, TRIES_AT_MOST - TRIES_AT_ONCE);
	ck_assert_uint_le(paused, MOST_PAUSED);
	ck_assert_int_eq(pindown_driver_error(), FAKE_INVALID_VALUE);
	ck_assert_uint_eq(stats().pin_failures, 1);
	refuse(0);
	get_and_put(BASE, 1);
}
END_TEST

/* A program may ask for such memory with each message that it sends. */
START_TEST(the_next_refusals_for_ever_take_no_pauses)
{
	fake_alloc(BASE, MIB(2), FAKE_POOL);
	fake_alloc(BASE + MIB(2), MIB(2), FAKE_POOL);
	refuse(1000);
	tries_of(BASE, 0, PINDOWN_ERR_DRIVER);
	for (unsigned i = 0; i < 10; i++) {
		uint64_t addr = BASE + MIB(2) * (i % 2);

		ck_assert_uint_eq(tries_of(addr, 0, PINDOWN_ERR_DRIVER), TRIES_AT_ONCE);
		ck_assert_uint_eq(pauses, 0);
		ck_assert_int_eq(pindown_driver_error(), FAKE_INVALID_VALUE);
	}
	refuse(0);
}
END_TEST

START_TEST(a_get_that_does_not_wait_is_refused_without_a_pause)
{
	fake_alloc(BASE, MIB(2), FAKE_POOL);
	refuse(3);
	ck_assert_uint_eq(tries_of(BASE, PINDOWN_GET_NOWAIT, PINDOWN_OK), 4);
	pindown_flush();
	refuse(5);
	ck_assert_uint_eq(tries_of(BASE, PINDOWN_GET_NOWAIT, PINDOWN_ERR_DRIVER), TRIES_AT_ONCE);
	ck_assert_uint_eq(pauses, 0);
	ck_assert_int_eq(pindown_driver_error(), FAKE_INVALID_VALUE);
	/* It says nothing of what pauses would have done. */
	refuse(5);
	ck_assert_uint_eq(tries_of(BASE, 0, PINDOWN_OK), 6);
}
END_TEST

START_TEST(other_memory_and_other_errors_are_not_asked_about_again)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	fake_alloc(BASE + MIB(2), MIB(2), FAKE_POOL);
	refuse(1);
	ck_assert_uint_eq(tries_of(BASE, 0, PINDOWN_ERR_DRIVER), 1);
	fake_fail(FAKE_EXPORT, 0, 1, FAKE_NOT_SUPPORTED);
	ck_assert_uint_eq(tries_of(BASE + MIB(2), 0, PINDOWN_ERR_DRIVER), 1);
	ck_assert_uint_eq(pauses, 0);
}
END_TEST

/* ---- a free in a pause ---------------------------------------------------------------------- */

static void free_there(void *arg)
{
	(void)arg;
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
}

static void free_meanwhile(void)
{
	ck_assert(!pdn_works_any()); /* a free would wait for it */
	in_other_thread(free_there, NULL);
	in_pause = NULL;
}

static void free_and_allocate_meanwhile(void)
{
	free_meanwhile();
	refuse(0);
	watched_alloc(BASE, MIB(2), FAKE_LINEAR);
}

START_TEST(a_free_in_a_pause_does_not_wait)
{
	fake_alloc(BASE, MIB(2), FAKE_POOL);
	refuse(1000);
	in_pause = free_meanwhile;
	ck_assert_uint_eq(tries_of(BASE, 0, PINDOWN_ERR_NOT_DEVICE), TRIES_AT_ONCE);
	ck_assert_uint_eq(pauses, 1);
	ck_assert_uint_eq(stats().pin_failures, 0);
	refuse(0);
}
END_TEST

START_TEST(what_takes_the_place_of_the_memory_in_a_pause_is_pinned)
{
	uint64_t id;

	fake_alloc(BASE, MIB(2), FAKE_POOL);
	id = fake_id(BASE);
	refuse(1000);
	in_pause = free_and_allocate_meanwhile;
	ck_assert_uint_eq(tries_of(BASE, 0, PINDOWN_OK), TRIES_AT_ONCE + 1);
	ck_assert_uint_ne(fake_id(BASE), id);
	ck_assert_uint_eq(fake_open_exports_of(fake_id(BASE)), 1);
	ck_assert_uint_eq(fake_open_exports(), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: memory of pools that the driver refuses");
	TCase *tc = suite_case(suite, "refusals", begin, cache_end);

	tcase_add_test(tc, some_refusals_are_asked_about_again_at_once);
	tcase_add_test(tc, more_refusals_are_asked_about_again_after_pauses);
	tcase_add_test(tc, a_refusal_for_ever_is_the_drivers_answer);
	tcase_add_test(tc, the_next_refusals_for_ever_take_no_pauses);
	tcase_add_test(tc, a_get_that_does_not_wait_is_refused_without_a_pause);
	tcase_add_test(tc, other_memory_and_other_errors_are_not_asked_about_again);
	tcase_add_test(tc, a_free_in_a_pause_does_not_wait);
	tcase_add_test(tc, what_takes_the_place_of_the_memory_in_a_pause_is_pinned);
	return run_suite(suite);
}
