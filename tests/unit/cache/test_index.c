/* SPDX-License-Identifier: MIT */
/* The index against a plain list: random regions of all sizes that come and go. */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/support/cache_test.h"
#include "cache/driver/driver.h"
#include "cache/hit/index.h"
#include "cache/hit/index_nodes.h"
#include "cache/hit/region.h"

#define MOST 300u

static struct {
	uint64_t base, end;
	uint32_t number;
} list[MOST];
static unsigned count;
static uint64_t seed;

static uint64_t below(uint64_t limit)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 20) % limit;
}

static bool overlaps(unsigned i, uint64_t begin, uint64_t end)
{
	return list[i].base < end && begin < list[i].end;
}

static bool is_free(uint64_t begin, uint64_t end)
{
	for (unsigned i = 0; i < count; i++)
		if (overlaps(i, begin, end))
			return false;
	return true;
}

static void add(uint64_t base, uint64_t end)
{
	uint32_t number = pdn_region_alloc();

	ck_assert_uint_ne(number, 0);
	ck_assert(pdn_index_insert(number, base, end));
	pdn_regions[number].base = base;
	pdn_regions[number].end = end;
	list[count].base = base;
	list[count].end = end;
	list[count++].number = number;
}

static void drop(unsigned i)
{
	pdn_index_remove(list[i].number, list[i].base, list[i].end);
	pdn_region_free(list[i].number);
	list[i] = list[--count];
}

static bool is_found(uint64_t addr, unsigned i)
{
	return pdn_index_find(addr) == list[i].number;
}

/* If a region is found for an address that is in none, its extent must tell. */
static void check_address(uint64_t addr)
{
	uint32_t found = pdn_index_find(addr);

	for (unsigned i = 0; i < count; i++)
		if (overlaps(i, addr, addr + 1)) {
			ck_assert_uint_eq(found, list[i].number);
			return;
		}
	ck_assert(!found || !pdn_region_holds(&pdn_regions[found], addr, 1));
}

static void check_range(uint64_t begin, uint64_t end)
{
	uint64_t at = begin;
	uint32_t found = pdn_index_next(&at, end);
	bool good = false;

	for (unsigned i = 0; i < count; i++)
		good |= list[i].number == found && overlaps(i, begin, end);
	ck_assert_msg(good == !is_free(begin, end) && good == (found != 0),
		      "region %u for 0x%llx to 0x%llx", found, (unsigned long long)begin,
		      (unsigned long long)end);
}

static void check_all(void)
{
	for (unsigned i = 0; i < count; i++) {
		ck_assert(is_found(list[i].base, i));
		ck_assert(is_found(list[i].end - 1, i));
		check_address(list[i].base - 1);
		check_address(list[i].end);
	}
}

/*
 * From a few bytes to some GiB, and more often at the edges of pages and blocks than chance would
 * have it.
 */
static uint64_t some_size(void)
{
	uint64_t size = 1ull << below(33);

	size += below(size);
	return below(2) ? size : (size + 0xffff) & ~UINT64_C(0xffff);
}

static uint64_t some_address(uint64_t span)
{
	uint64_t addr = BASE + below(span);

	switch (below(3)) {
	case 0:
		return addr;
	case 1:
		return addr & ~UINT64_C(0xffff);
	default:
		return addr & ~UINT64_C(0x1fffff);
	}
}

static void random_operations(unsigned operations, uint64_t span, uint64_t max_size)
{
	while (operations--) {
		uint64_t begin = some_address(span), end = begin + some_size() % max_size + 1;

		if (count < MOST && below(2)) {
			if (is_free(begin, end))
				add(begin, end);
		} else if (count) {
			drop((unsigned)below(count));
		}
		check_address(begin);
		check_range(begin, end);
		check_range(begin, begin + some_size());
		if (operations % 64 == 0)
			check_all();
	}
}

static void drop_all(void)
{
	while (count)
		drop(0);
	check_range(BASE - GIB(1), BASE + GIB(600));
	ck_assert_uint_eq(pdn_index_changes.count & 1, 0);
}

START_TEST(small_regions_close_together)
{
	random_operations(20000, MIB(8), KIB(200));
	drop_all();
}
END_TEST

START_TEST(regions_of_all_sizes)
{
	random_operations(20000, GIB(500), GIB(8));
	drop_all();
}
END_TEST

START_TEST(after_a_trim_it_starts_afresh)
{
	random_operations(5000, MIB(64), MIB(3));
	drop_all();
	pdn_index_trim();
	random_operations(5000, MIB(64), MIB(3));
	drop_all();
}
END_TEST

/* A child begins again in the middle of a look of its parent's. */
START_TEST(what_was_found_before_a_reset_is_not_true_after_it)
{
	uint64_t seq;

	for (unsigned changes = 1; changes < 4; changes++) {
		for (uint32_t i = 1; i <= changes; i++)
			ck_assert(pdn_index_insert(i, BASE + MIB(2) * i, BASE + MIB(2) * (i + 1)));
		seq = pdn_index_read_begin();
		ck_assert_uint_eq(pdn_index_find(BASE + MIB(2)), 1);
		ck_assert(pdn_index_unchanged(seq));
		pdn_index_reset();
		ck_assert(!pdn_index_unchanged(seq));
		for (uint32_t i = 1; i <= changes; i++) {
			ck_assert(pdn_index_insert(i, BASE + MIB(2) * i, BASE + MIB(2) * (i + 1)));
			ck_assert(!pdn_index_unchanged(seq));
		}
		pdn_index_reset();
	}
}
END_TEST

START_TEST(a_range_beyond_all_addresses_is_refused)
{
	uint64_t at = PDN_ADDRESS_LIMIT;

	ck_assert(!pdn_index_insert(1, PDN_ADDRESS_LIMIT - 1, PDN_ADDRESS_LIMIT + 1));
	ck_assert(!pdn_index_insert(1, BASE, BASE));
	ck_assert_uint_eq(pdn_index_find(PDN_ADDRESS_LIMIT), 0);
	ck_assert_uint_eq(pdn_index_next(&at, ~0ull), 0);
	check_range(0, ~0ull);
}
END_TEST

/* More pages of several regions than memory is made usable for at a time. */
START_TEST(thousands_of_shared_pages)
{
	enum { PAGES = 3000 };

	for (uint32_t i = 1; i <= PAGES; i++) {
		ck_assert_uint_eq(pdn_shared_new(), i);
		pdn_shared_nodes[i].place[0] = i;
	}
	for (uint32_t i = 1; i <= PAGES; i++) {
		ck_assert_uint_eq(pdn_shared_nodes[i].place[0], i);
		pdn_shared_nodes[i].place[0] = 0;
		pdn_shared_free(i);
	}
	ck_assert_uint_eq(pdn_shared_new(), PAGES); /* the last one given back */
}
END_TEST

static void begin(void)
{
	const char *given = getenv("INDEX_SEED");

	seed = given ? strtoull(given, NULL, 0) : (uint64_t)getpid() << 32 ^ (uint64_t)time(NULL);
	printf("INDEX_SEED=0x%llx\n", (unsigned long long)seed);
	fflush(stdout);
}

int main(void)
{
	Suite *suite = suite_create("cache: the index");
	TCase *tc = suite_case(suite, "against a list", begin, NULL);

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, small_regions_close_together);
	tcase_add_test(tc, regions_of_all_sizes);
	tcase_add_test(tc, after_a_trim_it_starts_afresh);
	tcase_add_test(tc, what_was_found_before_a_reset_is_not_true_after_it);
	tcase_add_test(tc, a_range_beyond_all_addresses_is_refused);
	tcase_add_test(tc, thousands_of_shared_pages);
	return run_suite(suite);
}
