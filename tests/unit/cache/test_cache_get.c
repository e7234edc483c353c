/* SPDX-License-Identifier: MIT */
/*
 * Getting and putting: first gets, hits, refusals, arguments, statistics.
 * Scenarios marked [UCX], [libfabric], [gdrcopy] are known from those projects' suites.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "tests/unit/support/cache_test.h"

static void *no_symbol(const char *name)
{
	(void)name;
	return NULL;
}

/*
 * [UCX] create fails: here there is no create, so the first get must fail, and leave nothing
 * behind.
 */
START_TEST(without_a_driver_get_says_so_until_there_is_one)
{
	pdn_find_driver_symbol = no_symbol;
	must_refuse(BASE, 1, PINDOWN_ERR_NO_CUDA);
	must_refuse(BASE, 1, PINDOWN_ERR_NO_CUDA);

	pdn_find_driver_symbol = fake_symbol;
	fake_alloc(BASE, MIB(1), FAKE_LINEAR);
	get_and_put(BASE, 1);
}
END_TEST

START_TEST(without_a_finder_get_says_no_cuda)
{
	pdn_find_driver_symbol = NULL;
	must_refuse(BASE, 1, PINDOWN_ERR_NO_CUDA);
	pdn_find_driver_symbol = fake_symbol;
}
END_TEST

START_TEST(device_without_dmabuf_has_no_backend)
{
	fake_no_dmabuf();
	fake_alloc(BASE, MIB(1), FAKE_LINEAR);
	must_refuse(BASE, 1, PINDOWN_ERR_NO_BACKEND);
	ck_assert_uint_eq(stats().pins, 0);
}
END_TEST

START_TEST(switched_off_get_is_disabled)
{
	setenv("PINDOWN", "0", 1);
	fake_alloc(BASE, MIB(1), FAKE_LINEAR);
	must_refuse(BASE, 1, PINDOWN_ERR_DISABLED);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), 0);
	unsetenv("PINDOWN");
}
END_TEST

START_TEST(backend_none_caches_without_descriptors)
{
	setenv("PINDOWN_BACKEND", "none", 1);
	fake_alloc(BASE, MIB(1), FAKE_LINEAR);

	pindown_region *region = must_get(BASE, 1);
	uint64_t offset = 7;
	int fd = 7;
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE, &fd, &offset), PINDOWN_ERR_NO_DMABUF);
	ck_assert_int_eq(fd, 7);
	ck_assert_uint_eq(offset, 7);
	ck_assert_uint_eq(fake_count(FAKE_EXPORT), 0);
	ck_assert_str_eq(stats().backend, "none");
	ck_assert_uint_eq(stats().bytes, MIB(1));
	pindown_put(region);
	ck_assert(is_cached(BASE, 1));
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert(!is_cached(BASE, 1));
}
END_TEST

/* [UCX] basic; [gdrcopy] basic. */
START_TEST(get_pins_and_put_keeps_the_pin)
{
	fake_alloc(BASE, MIB(4), FAKE_LINEAR);

	pindown_region *region = must_get(BASE, MIB(4));
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert_uint_eq(pindown_region_base(region), BASE);
	ck_assert_uint_eq(pindown_region_length(region), MIB(4));
	ck_assert_uint_eq(pindown_region_pin_base(region), BASE);
	ck_assert_uint_eq(pindown_region_pin_length(region), MIB(4));
	ck_assert_uint_eq(pindown_region_buffer_id(region), fake_id(BASE));
	ck_assert_ptr_eq(pindown_region_context(region), FAKE_CONTEXT);
	ck_assert_int_eq(pindown_region_device(region), 0);
	ck_assert_int_eq(pindown_region_is_volatile(region), 0);
	ck_assert_int_eq(pindown_region_is_live(region), 1);
	ck_assert_str_eq(stats().backend, "dmabuf");

	pindown_put(region);
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert(is_cached(BASE, MIB(4)));
	ck_assert_uint_eq(stats().regions, 1);
	ck_assert_uint_eq(stats().bytes, MIB(4));
}
END_TEST

START_TEST(pool_memory_has_no_context)
{
	fake_alloc_in(BASE, MIB(2), FAKE_POOL, NULL, 1, (void *)0xb1);
	pindown_region *region = must_get(BASE, 1);
	ck_assert_ptr_null(pindown_region_context(region));
	ck_assert_int_eq(pindown_region_device(region), 1);
	ck_assert_uint_eq(device_stats(1).bytes, MIB(2));
	ck_assert_uint_eq(device_stats(0).bytes, 0);
	pindown_put(region);
}
END_TEST

START_TEST(a_hit_calls_no_driver)
{
	fake_alloc(BASE, MIB(4), FAKE_LINEAR);
	get_and_put(BASE, 1);

	unsigned before = fake_count(FAKE_CALLS);
	for (unsigned i = 0; i < 1000; i++)
		get_and_put(BASE + i, 100);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), before);
	ck_assert_uint_eq(stats().hits, 1000);
	ck_assert_uint_eq(stats().misses, 1);
	ck_assert_uint_eq(stats().tag_checks, 0);
}
END_TEST

static void pin_one(void *arg)
{
	(void)arg;
	get_and_put(BASE, 1);
}

static void hit_a_thousand_times(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < 1000; i++) {
		pindown_region *region;
		if (pindown_get(BASE + i, 100, 0, &region))
			__builtin_trap();
		pindown_put(region);
	}
}

START_TEST(a_hit_makes_no_system_call)
{
	fake_alloc(BASE, MIB(4), FAKE_LINEAR);
	assert_no_system_call(pin_one, hit_a_thousand_times, NULL);
}
END_TEST

/* The parts of one allocation are one region, whichever part is asked for first. */
START_TEST(any_part_finds_the_whole_allocation)
{
	fake_alloc(BASE, MIB(4), FAKE_LINEAR);

	pindown_region *region = must_get(BASE + MIB(1) + 3, 5);
	ck_assert_uint_eq(pindown_region_base(region), BASE);
	ck_assert_uint_eq(pindown_region_length(region), MIB(4));
	for (uint64_t at = 0; at < MIB(4); at += KIB(64) - 1) {
		pindown_region *same = must_get(BASE + at, 1);
		ck_assert_ptr_eq(same, region);
		pindown_put(same);
	}
	ck_assert_ptr_eq(must_get(BASE, MIB(4)), region);
	ck_assert_ptr_eq(must_get(BASE + MIB(4) - 1, 1), region);
	pindown_put(region);
	pindown_put(region);
	pindown_put(region);
	ck_assert_uint_eq(stats().pins, 1);
}
END_TEST

/* [UCX] get_unmapped; [gdrcopy] invalid and null addresses. */
START_TEST(unknown_memory_is_refused)
{
	int on_stack;

	must_refuse(BASE, 1, PINDOWN_ERR_NOT_DEVICE);
	must_refuse((uintptr_t)&on_stack, sizeof(on_stack), PINDOWN_ERR_NOT_DEVICE);
	must_refuse(UINT64_MAX - 1, 1, PINDOWN_ERR_NOT_DEVICE);
	must_refuse(UINT64_C(1) << 60, 4096, PINDOWN_ERR_NOT_DEVICE);
	must_refuse(0, 1, PINDOWN_ERR_NOT_DEVICE);
	fake_alloc(BASE, MIB(1), FAKE_GRAPH);
	must_refuse(BASE, 1, PINDOWN_ERR_NOT_DEVICE);
	ck_assert_uint_eq(fake_exports_made(), 0);
	ck_assert_uint_eq(stats().misses, 6);
}
END_TEST

START_TEST(managed_memory_is_refused)
{
	fake_alloc(BASE, MIB(1), FAKE_MANAGED);
	must_refuse(BASE, 1, PINDOWN_ERR_MANAGED);
	ck_assert_uint_eq(fake_count(FAKE_EXPORT), 0);
	ck_assert_uint_eq(fake_count(FAKE_SYNC), 0);
}
END_TEST

START_TEST(host_memory_is_refused)
{
	fake_alloc(BASE, MIB(1), FAKE_HOST);
	must_refuse(BASE, 1, PINDOWN_ERR_HOST);
	ck_assert_uint_eq(fake_count(FAKE_EXPORT), 0);
	ck_assert_uint_eq(fake_count(FAKE_SYNC), 0);
}
END_TEST

/* On a miss and on a hit alike, whether another allocation follows or nothing. */
START_TEST(past_the_end_is_refused)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	fake_alloc(BASE + MIB(2), MIB(2), FAKE_LINEAR);

	for (int round = 0; round < 2; round++) {
		must_refuse(BASE, MIB(2) + 1, PINDOWN_ERR_RANGE);
		must_refuse(BASE + MIB(2) - 1, 2, PINDOWN_ERR_RANGE);
		must_refuse(BASE + MIB(2), MIB(2) + 1, PINDOWN_ERR_RANGE);
		must_refuse(BASE, MIB(4), PINDOWN_ERR_RANGE);
		get_and_put(BASE, MIB(2));
		get_and_put(BASE + MIB(2), MIB(2));
	}
	ck_assert_uint_eq(stats().regions, 2);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
	pindown_region *region = NULL;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	for (int round = 0; round < 2; round++) {
		must_refuse(BASE, 0, PINDOWN_ERR_INVALID);
		must_refuse(BASE, SIZE_MAX, PINDOWN_ERR_INVALID);
		must_refuse(UINT64_MAX, 2, PINDOWN_ERR_INVALID);
		ck_assert_int_eq(pindown_get(BASE, 1, 0, NULL), PINDOWN_ERR_INVALID);
		for (unsigned bit = 2; bit < 32; bit++) {
			ck_assert_int_eq(pindown_get(BASE, 1, 1u << bit, &region),
					 PINDOWN_ERR_INVALID);
			ck_assert_ptr_null(region);
		}
		get_and_put(BASE, 1);
	}
	pindown_put(NULL);
	ck_assert_int_eq(pindown_invalidate(UINT64_MAX, 2), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_subscribe(NULL, NULL), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_unsubscribe(12345), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_unsubscribe(0), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_unsubscribe(-1), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_stats(NULL, sizeof(struct pindown_stats), -1),
			 PINDOWN_ERR_INVALID);
	ck_assert(is_cached(BASE, 1));
}
END_TEST

START_TEST(asking_the_cache_alone_pins_nothing)
{
	pindown_region *region = NULL;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	ck_assert_int_eq(pindown_get(BASE, 1, PINDOWN_GET_CACHED, &region), PINDOWN_ERR_NOT_DEVICE);
	ck_assert_ptr_null(region);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), 0);
	get_and_put(BASE, 1);
	ck_assert_int_eq(pindown_get(BASE, 1, PINDOWN_GET_CACHED, &region), PINDOWN_OK);
	pindown_put(region);
}
END_TEST

/* [UCX] register failure; the next get tries again. */
START_TEST(a_failed_pin_is_reported_and_tried_again)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	fake_fail(FAKE_EXPORT, 0, 1, FAKE_UNKNOWN);
	must_refuse(BASE, 1, PINDOWN_ERR_DRIVER);
	ck_assert_int_eq(pindown_driver_error(), FAKE_UNKNOWN);
	ck_assert_uint_eq(stats().pin_failures, 1);
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert(!is_cached(BASE, 1));

	get_and_put(BASE, 1);
	ck_assert_uint_eq(stats().pins, 1);
	ck_assert_uint_eq(stats().pin_failures, 1);
}
END_TEST

/*
 * Each driver call of a miss may fail: then the get fails or works without it, and nothing is left
 * behind.
 */
START_TEST(any_driver_call_may_fail)
{
	static const enum fake_call calls[] = {FAKE_QUERY, FAKE_SYNC, FAKE_EXPORT, FAKE_OTHER};

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	for (unsigned c = 0; c < 4; c++) {
		for (unsigned nth = 0; nth < 8; nth++) {
			pindown_region *region = NULL;
			pindown_flush();
			fake_fail(calls[c], nth, 1, FAKE_UNKNOWN);
			int result = pindown_get(BASE, 1, 0, &region);
			fake_fail(FAKE_CALLS, 0, 0, 0);
			ck_assert_int_eq(result == PINDOWN_OK, region != NULL);
			ck_assert_uint_eq(fake_open_exports(), region != NULL);
			ck_assert_uint_eq(stats().regions, region != NULL);
			pindown_put(region);
			get_and_put(BASE, 1);
		}
	}
}
END_TEST

static void expect_no_driver_error(void *arg)
{
	(void)arg;
	ck_assert_int_eq(pindown_driver_error(), 0);
}

START_TEST(driver_error_is_this_threads_last)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	ck_assert_int_eq(pindown_driver_error(), 0);
	fake_fail(FAKE_EXPORT, 0, 1, FAKE_UNKNOWN);
	must_refuse(BASE, 1, PINDOWN_ERR_DRIVER);
	in_other_thread(expect_no_driver_error, NULL);
	get_and_put(BASE, 1);
	ck_assert_int_eq(pindown_driver_error(), FAKE_UNKNOWN);
	/* These results are not about an error of the driver. */
	fake_alloc(BASE + MIB(4), MIB(2), FAKE_MANAGED);
	must_refuse(BASE + MIB(4), 1, PINDOWN_ERR_MANAGED);
	must_refuse(BASE + MIB(1), MIB(2), PINDOWN_ERR_RANGE);
	ck_assert_int_eq(pindown_driver_error(), FAKE_UNKNOWN);
	must_refuse(BASE + MIB(8), 1, PINDOWN_ERR_NOT_DEVICE);
	ck_assert_int_eq(pindown_driver_error(), FAKE_INVALID_VALUE);
}
END_TEST

START_TEST(sync_memops_is_set_at_the_pin)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	get_and_put(BASE, 1);
	ck_assert_uint_eq(fake_count(FAKE_SYNC), 1);
}
END_TEST

/*
 * A progress thread without a context: the export uses the memory's context, and the thread's own
 * is restored.
 */
static void get_without_context(void *arg)
{
	(void)arg;
	fake_no_current_context();
	get_and_put(BASE, 1);
	pindown_region *region = NULL;
	ck_assert_int_ne(pindown_get(BASE + MIB(16), 1, 0, &region), PINDOWN_OK);
	ck_assert_ptr_null(region);
}

/* There CUDA forbids its calls. */
START_TEST(a_callback_of_the_drivers_gets_what_is_pinned)
{
	unsigned before;

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	fake_alloc(BASE + MIB(16), MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	fake_fail(FAKE_OTHER, 0, UINT32_MAX, FAKE_NOT_PERMITTED);
	before = fake_count(FAKE_CALLS);
	get_and_put(BASE, 1);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), before);
	must_refuse(BASE + MIB(16), 1, PINDOWN_ERR_DRIVER);
	ck_assert_int_eq(pindown_driver_error(), FAKE_NOT_PERMITTED);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), before + 1); /* whether calls are permitted */
	fake_fail(FAKE_OTHER, 0, 0, 0);
	get_and_put(BASE + MIB(16), 1);
}
END_TEST

START_TEST(a_thread_without_context_can_pin_what_has_one)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	fake_alloc(BASE + MIB(16), MIB(2), FAKE_POOL); /* and no primary context is active */
	in_other_thread(get_without_context, NULL);
	ck_assert(is_cached(BASE, 1));
	/*
	 * The context is current during the export only: a free of the memory, or the end of its
	 * context, waits for that. Before the export, the context may be ending.
	 */
	ck_assert_uint_eq(fake_pushes, 1);
}
END_TEST

START_TEST(vmm_memory_does_without_sync_memops)
{
	fake_alloc(BASE, MIB(2), FAKE_VMM);
	get_and_put(BASE, 1);
	ck_assert_uint_eq(fake_count(FAKE_SYNC), 1);
	ck_assert(is_cached(BASE, MIB(2)));
}
END_TEST

/* A driver without it for mapped memory is asked once, and for other memory each time. */
START_TEST(whether_mapped_memory_has_sync_memops_is_asked_once)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	ck_assert_uint_eq(fake_count(FAKE_SYNC), 1);
	fake_alloc(BASE + MIB(16), MIB(2), FAKE_VMM);
	get_and_put(BASE + MIB(16), 1);
	ck_assert_uint_eq(fake_count(FAKE_SYNC), 2);
	fake_alloc(BASE + MIB(32), MIB(2), FAKE_VMM);
	get_and_put(BASE + MIB(32), 1);
	ck_assert_uint_eq(fake_count(FAKE_SYNC), 2);
	fake_alloc(BASE + MIB(48), MIB(2), FAKE_LINEAR);
	get_and_put(BASE + MIB(48), 1);
	ck_assert_uint_eq(fake_count(FAKE_SYNC), 3);
}
END_TEST

START_TEST(without_interception_each_hit_is_checked)
{
	pdn_set_intercepting(false);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	ck_assert_uint_eq(stats().intercepting, 0);
	get_and_put(BASE, 1);

	unsigned before = fake_count(FAKE_QUERY);
	for (int i = 0; i < 10; i++)
		get_and_put(BASE, 1);
	ck_assert_uint_eq(fake_count(FAKE_QUERY) - before, 10);
	ck_assert_uint_eq(stats().tag_checks, 10);

	/* A free that was not watched: the check finds it, and it does not count as missed. */
	uint64_t old = fake_id(BASE);
	ck_assert_int_eq(fake_free(BASE), FAKE_SUCCESS);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(BASE, 1);
	ck_assert_uint_ne(pindown_region_buffer_id(region), old);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	pindown_put(region);

	ck_assert_int_eq(fake_free(BASE), FAKE_SUCCESS);
	must_refuse(BASE, 1, PINDOWN_ERR_NOT_DEVICE);
	expected_missed = stats().missed_invalidations;
	pdn_set_intercepting(true);
	ck_assert_uint_eq(stats().intercepting, 1);
}
END_TEST

START_TEST(verify_always_checks_each_hit)
{
	setenv("PINDOWN_VERIFY", "always", 1);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	unsigned before = fake_count(FAKE_QUERY);
	for (int i = 0; i < 10; i++)
		get_and_put(BASE, 1);
	ck_assert_uint_eq(fake_count(FAKE_QUERY) - before, 10);
	ck_assert_uint_eq(stats().tag_checks, 10);
}
END_TEST

START_TEST(verify_never_trusts_even_without_interception)
{
	setenv("PINDOWN_VERIFY", "never", 1);
	pdn_set_intercepting(false);
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	unsigned before = fake_count(FAKE_CALLS);
	get_and_put(BASE, 1);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), before);
	ck_assert_uint_eq(stats().tag_checks, 0);
}
END_TEST

START_TEST(gets_are_hits_or_misses)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	get_and_put(BASE, 1);
	get_and_put(BASE, 1);
	must_refuse(BASE + MIB(2), 1, PINDOWN_ERR_NOT_DEVICE);
	struct pindown_stats s = stats();
	ck_assert_uint_eq(s.hits, 2);
	ck_assert_uint_eq(s.misses, 2);
	ck_assert_uint_eq(s.pins, 1);
	ck_assert_uint_eq(s.peak_bytes, MIB(2));
	ck_assert_uint_eq(s.peak_regions, 1);
	ck_assert_uint_gt(s.max_regions, 0);
}
END_TEST

/*
 * A smaller structure of an older program is not written past; the rest of a larger one of a newer
 * program is zero.
 */
START_TEST(statistics_fit_the_callers_structure)
{
	unsigned char buffer[sizeof(struct pindown_stats) + 64];

	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	memset(buffer, 0xee, sizeof(buffer));
	ck_assert_int_eq(pindown_stats((struct pindown_stats *)buffer, 24, -1), PINDOWN_OK);
	for (unsigned i = 24; i < sizeof(buffer); i++)
		ck_assert_uint_eq(buffer[i], 0xee);

	memset(buffer, 0xee, sizeof(buffer));
	ck_assert_int_eq(pindown_stats((struct pindown_stats *)buffer, sizeof(buffer), -1),
			 PINDOWN_OK);
	for (unsigned i = sizeof(struct pindown_stats); i < sizeof(buffer); i++)
		ck_assert_uint_eq(buffer[i], 0);
}
END_TEST

START_TEST(every_result_has_a_sentence)
{
	for (int result = PINDOWN_ERR_NO_DMABUF - 2; result < 3; result++) {
		const char *text = pindown_strerror(result);
		ck_assert_ptr_nonnull(text);
		ck_assert_uint_gt(strlen(text), 5);
		for (int other = PINDOWN_ERR_NO_DMABUF; other < result && result <= 0; other++)
			ck_assert_str_ne(text, pindown_strerror(other));
	}
	ck_assert_ptr_nonnull(pindown_strerror(INT32_MIN));
	ck_assert_ptr_nonnull(pindown_strerror(INT32_MAX));
}
END_TEST

START_TEST(events_keep_errno)
{
	fake_alloc(BASE, MIB(2), FAKE_LINEAR);
	get_and_put(BASE, 1);
	errno = 4711;
	pdn_ended(pdn_end_range(BASE, 0));
	pdn_ended(pdn_end_context(FAKE_CONTEXT));
	pdn_ended(pdn_end_device(0));
	pdn_ended(pdn_end_all());
	pdn_volatile(BASE, MIB(2));
	pdn_allocated(BASE, MIB(2));
	pdn_recheck(NULL);
	pdn_fork_prepare();
	pdn_fork_parent();
	ck_assert_int_eq(errno, 4711);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: get and put");
	TCase *tc = cache_case(suite, "first gets");

	tcase_add_test(tc, without_a_driver_get_says_so_until_there_is_one);
	tcase_add_test(tc, without_a_finder_get_says_no_cuda);
	tcase_add_test(tc, device_without_dmabuf_has_no_backend);
	tcase_add_test(tc, switched_off_get_is_disabled);
	tcase_add_test(tc, backend_none_caches_without_descriptors);
	tc = cache_case(suite, "get, put, hit");
	tcase_add_test(tc, get_pins_and_put_keeps_the_pin);
	tcase_add_test(tc, pool_memory_has_no_context);
	tcase_add_test(tc, a_hit_calls_no_driver);
	tcase_add_test(tc, a_hit_makes_no_system_call);
	tcase_add_test(tc, any_part_finds_the_whole_allocation);
	tcase_add_test(tc, asking_the_cache_alone_pins_nothing);
	tcase_add_test(tc, a_callback_of_the_drivers_gets_what_is_pinned);
	tcase_add_test(tc, a_thread_without_context_can_pin_what_has_one);
	tcase_add_test(tc, sync_memops_is_set_at_the_pin);
	tcase_add_test(tc, vmm_memory_does_without_sync_memops);
	tcase_add_test(tc, whether_mapped_memory_has_sync_memops_is_asked_once);
	tc = cache_case(suite, "refusals");
	tcase_add_test(tc, unknown_memory_is_refused);
	tcase_add_test(tc, managed_memory_is_refused);
	tcase_add_test(tc, host_memory_is_refused);
	tcase_add_test(tc, past_the_end_is_refused);
	tcase_add_test(tc, bad_arguments_are_refused);
	tcase_add_test(tc, a_failed_pin_is_reported_and_tried_again);
	tcase_add_test(tc, any_driver_call_may_fail);
	tcase_add_test(tc, driver_error_is_this_threads_last);
	tc = cache_case(suite, "checks by buffer id");
	tcase_add_test(tc, without_interception_each_hit_is_checked);
	tcase_add_test(tc, verify_always_checks_each_hit);
	tcase_add_test(tc, verify_never_trusts_even_without_interception);
	tc = cache_case(suite, "statistics and sentences");
	tcase_add_test(tc, gets_are_hits_or_misses);
	tcase_add_test(tc, statistics_fit_the_callers_structure);
	tcase_add_test(tc, every_result_has_a_sentence);
	tcase_add_test(tc, events_keep_errno);
	return run_suite(suite);
}
