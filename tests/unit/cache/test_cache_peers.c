/* SPDX-License-Identifier: MIT */
/*
 * Peers: what other registration caches test, and no other file here has. The names are those of
 * their tests; docs/internals/invariants.md lists which test here stands for which of theirs.
 */
#define _GNU_SOURCE
#include "tests/unit/support/cache_test.h"

#define MANY  1024
#define AT(i) (BASE + MIB(2) * (i))

/*
 * libfabric (gni): register_1024_distinct_regions. The counts are what was asked for, and return to
 * zero.
 */
START_TEST(register_1024_distinct_regions)
{
	static pindown_region *regions[MANY];

	setenv("PINDOWN_BACKEND", "none", 1); /* needs no descriptors */
	setenv("PINDOWN_MAX_REGIONS", "2000", 1);
	for (unsigned i = 0; i < MANY; i++)
		fake_alloc(AT(i), KIB(64), FAKE_LINEAR);
	for (unsigned i = 0; i < MANY; i++)
		regions[i] = must_get(AT(i), KIB(64));
	ck_assert_uint_eq(stats().regions, MANY);
	ck_assert_int_eq(pindown_flush(), 0);
	for (unsigned i = 0; i < MANY; i++) {
		ck_assert_uint_eq(pindown_region_base(regions[i]), AT(i));
		pindown_put(regions[i]);
	}
	ck_assert_uint_eq(stats().regions, MANY);
	ck_assert_uint_eq(stats().pins, MANY);
	ck_assert_int_eq(pindown_flush(), MANY);
}
END_TEST

/* libfabric (gni): register_1024_non_unique_regions. Parts of one allocation are one region. */
START_TEST(register_1024_non_unique_regions)
{
	pindown_region *first;

	fake_alloc(BASE, MANY * KIB(1), FAKE_LINEAR);
	first = must_get(BASE, MANY * KIB(1));
	for (unsigned i = 0; i < MANY; i++)
		ck_assert_ptr_eq(must_get(BASE + i * KIB(1), KIB(1)), first);
	ck_assert_uint_eq(stats().regions, 1);
	ck_assert_uint_eq(stats().pins, 1);
	for (unsigned i = 0; i < MANY; i++)
		pindown_put(first);
	ck_assert_int_eq(pindown_flush(), 0);
	pindown_put(first);
	ck_assert_int_eq(pindown_flush(), 1);
}
END_TEST

/*
 * libfabric (gni): cyclic_register_128_distinct_regions. In use and idle by turns, and pinned once.
 */
START_TEST(cyclic_register_128_distinct_regions)
{
	pindown_region *regions[128];

	for (unsigned i = 0; i < 128; i++)
		fake_alloc(AT(i), KIB(64), FAKE_LINEAR);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 128; i++) {
			regions[i] = must_get(AT(i), 1);
			ck_assert_uint_le(stats().regions, 128);
		}
		ck_assert_int_eq(pindown_flush(), 0);
		for (unsigned i = 0; i < 128; i++)
			pindown_put(regions[i]);
	}
	ck_assert_uint_eq(stats().regions, 128);
	ck_assert_uint_eq(stats().pins, 128);
	ck_assert_uint_eq(stats().hits, 2 * 128);
}
END_TEST

static void same_address_another_size(uint64_t size)
{
	uint64_t id;

	watched_alloc(BASE, size, FAKE_LINEAR);
	id = fake_id(BASE);
	pindown_region *region = must_get(BASE, size);
	ck_assert_uint_eq(pindown_region_length(region), size);
	ck_assert_uint_eq(pindown_region_buffer_id(region), id);
	ck_assert_uint_eq(stats().regions, 1);
	pindown_put(region);
	must_refuse(BASE, size + 1, PINDOWN_ERR_RANGE);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports_of(id), 0);
}

/* libfabric (gni): same_addr_incr_size */
START_TEST(same_addr_incr_size)
{
	for (uint64_t size = 2; size <= MIB(256); size *= 2)
		same_address_another_size(size);
}
END_TEST

/* libfabric (gni): same_addr_decr_size */
START_TEST(same_addr_decr_size)
{
	for (uint64_t size = MIB(256); size >= 2; size /= 2)
		same_address_another_size(size);
}
END_TEST

/* libfabric (gni): lru_evict_middle_entry. A region in the middle of the queue is in use again. */
START_TEST(evict_middle_entry)
{
	for (unsigned i = 0; i < 9; i++) {
		fake_alloc(AT(i), KIB(64), FAKE_LINEAR);
		get_and_put(AT(i), 1);
	}
	pindown_region *middle = must_get(AT(4), 1);
	ck_assert_int_eq(pindown_flush(), 8);
	for (unsigned i = 0; i < 9; i++)
		ck_assert_int_eq(is_cached(AT(i), 1), i == 4);
	get_and_put(AT(3), 1);
	get_and_put(AT(5), 1);
	pindown_put(middle);
	ck_assert_int_eq(pindown_flush(), 3);
}
END_TEST

/*
 * libfabric (gni): regression_615. First a part, then all of it, then another part: here, of
 * mappings.
 */
START_TEST(regression_615)
{
	for (unsigned i = 0; i < 4; i++)
		fake_alloc(AT(i), MIB(2), FAKE_VMM);
	get_and_put(AT(1), MIB(2));
	get_and_put(AT(0), MIB(8));
	ck_assert_uint_eq(stats().regions, 1);
	pindown_region *part = must_get(AT(2), MIB(1));
	ck_assert_uint_eq(pindown_region_length(part), MIB(8));
	ck_assert_uint_eq(stats().regions, 1);
	ck_assert_uint_eq(stats().hits, 1);
	pindown_put(part);
}
END_TEST

static void get_and_put_often(void *arg)
{
	for (unsigned i = 0; i < 200; i++)
		get_and_put(*(uint64_t *)arg, KIB(64));
}

/*
 * UCX: basic and shared_region, which run in ten and in six threads, each thread on its own region
 * or all on one.
 */
START_TEST(basic_and_shared_region_in_ten_threads)
{
	struct worker workers[10];
	uint64_t addresses[10];

	for (unsigned i = 0; i < 10; i++) {
		addresses[i] = AT(_i ? 0 : i);
		if (!_i || i == 0)
			fake_alloc(addresses[i], MIB(1), FAKE_LINEAR);
	}
	for (unsigned i = 0; i < 10; i++)
		worker_start(&workers[i], get_and_put_often, &addresses[i]);
	for (unsigned i = 0; i < 10; i++)
		worker_join(&workers[i]);
	ck_assert_uint_eq(stats().regions, _i ? 1 : 10);
	ck_assert_uint_eq(stats().pins, _i ? 1 : 10);
	ck_assert_uint_eq(stats().hits + stats().misses, 2000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: what other caches test");
	TCase *tc = cache_case(suite, "peers");

	tcase_add_test(tc, register_1024_distinct_regions);
	tcase_add_test(tc, register_1024_non_unique_regions);
	tcase_add_test(tc, cyclic_register_128_distinct_regions);
	tcase_add_test(tc, same_addr_incr_size);
	tcase_add_test(tc, same_addr_decr_size);
	tcase_add_test(tc, evict_middle_entry);
	tcase_add_test(tc, regression_615);
	tcase_add_loop_test(tc, basic_and_shared_region_in_ten_threads, 0, 2);
	return run_suite(suite);
}
