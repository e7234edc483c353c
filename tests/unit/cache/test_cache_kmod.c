/* SPDX-License-Identifier: MIT */
/*
 * The cache on the kernel module: regions over several mappings, each of which the module pins by
 * itself, and memory that the module refuses.
 */
#define _GNU_SOURCE
#include "tests/unit/support/cache_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/fake_kmod.h"
#include "kmod/pindown_ioctl.h"
#include "cache/account.h"
#include "cache/region.h"

#define PARTS 3u
#define PART  MIB(2)
#define ALL   (PARTS * PART)

static void begin_with(const char *backend)
{
	setenv("PINDOWN_BACKEND", backend, 1);
	fake_kmod_load();
	cache_begin();
}

static void begin_kmod(void)
{
	begin_with("kmod");
}

static void begin_auto(void)
{
	begin_with("auto");
}

static void end(void)
{
	cache_end();
	ck_assert_uint_eq(fake_kmod_pins(), 0);
}

static uint64_t part(unsigned i)
{
	return BASE + i * PART;
}

static void map_parts(void)
{
	for (unsigned i = 0; i < PARTS; i++)
		watched_alloc(part(i), PART, FAKE_VMM);
}

static void freed_unseen(uint64_t addr)
{
	ck_assert_int_eq(fake_free(addr), FAKE_SUCCESS);
	fake_kmod_revoke(addr);
}

/* ---- one region of several pins ---- */

START_TEST(each_mapping_is_pinned_by_itself)
{
	unsigned asked;

	map_parts();
	get_and_put(BASE, ALL);
	ck_assert_str_eq(stats().backend, "kmod");
	ck_assert_uint_eq(fake_kmod_pins(), PARTS);
	ck_assert_uint_eq(fake_kmod_bytes(), ALL);
	ck_assert_uint_eq(stats().bytes, ALL);
	ck_assert_uint_eq(stats().regions, 1);
	ck_assert_uint_eq(stats().pins, 1);
	asked = fake_count(FAKE_CALLS);
	for (unsigned i = 0; i < PARTS; i++)
		get_and_put(part(i), PART);
	get_and_put(BASE, ALL);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), asked);
	ck_assert_uint_eq(stats().hits, PARTS + 1);
	ck_assert_uint_eq(stats().regions, 1);
}
END_TEST

START_TEST(an_unmap_of_one_ends_them_all)
{
	map_parts();
	pindown_region *region = must_get(BASE, ALL);
	ck_assert_int_eq(watched_unmap(part((unsigned)_i), PART), FAKE_SUCCESS);
	ck_assert(!is_cached(BASE, ALL));
	ck_assert_uint_eq(fake_kmod_pins(), PARTS); /* held */
	ck_assert_uint_eq(stats().kept_bytes, ALL);
	pindown_put(region);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
}
END_TEST

START_TEST(a_part_that_fails_leaves_none)
{
	map_parts();
	fake_kmod_fail((unsigned)_i, 1, EIO);
	must_refuse(BASE, ALL, PINDOWN_ERR_DRIVER);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
	ck_assert_uint_eq(stats().pin_failures, 1);
	get_and_put(BASE, ALL);
	ck_assert_uint_eq(fake_kmod_pins(), PARTS);
}
END_TEST

/* The number of a pin that has ended is used for a later pin, of another region as well. */
START_TEST(a_number_that_is_used_again_is_another_pins)
{
	map_parts();
	watched_alloc(BASE + GIB(1), PART, FAKE_LINEAR);
	get_and_put(BASE, ALL);
	pindown_flush();
	get_and_put(BASE, 2 * PART);
	get_and_put(BASE + GIB(1), PART);
	ck_assert_int_eq(watched_unmap(part(0), PART), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_kmod_pins(), 1);
	freed_unseen(BASE + GIB(1));
	ck_assert(!is_cached(BASE + GIB(1), PART));
	expected_missed = 1;
}
END_TEST

/* Idle regions make room for the whole region, in the module's space and in the budget. */
START_TEST(the_whole_is_made_room_for)
{
	map_parts();
	watched_alloc(BASE + GIB(1), PART, FAKE_LINEAR);
	watched_alloc(BASE + GIB(2), PART / 2, FAKE_LINEAR);
	fake_kmod_space(ALL); /* idle and free space together are just enough */
	get_and_put(BASE + GIB(1), PART);
	get_and_put(BASE + GIB(2), PART / 2);
	get_and_put(BASE, ALL);
	ck_assert_uint_eq(stats().evictions, 2);
	ck_assert_uint_eq(fake_kmod_bytes(), ALL);
	fake_kmod_space(ALL - 1);
	pindown_flush();
	must_refuse(BASE, ALL, PINDOWN_ERR_NO_SPACE);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
}
END_TEST

START_TEST(the_budget_counts_the_whole)
{
	setenv("PINDOWN_MAX_BYTES", "5M", 1);
	map_parts();
	must_refuse(BASE, ALL, PINDOWN_ERR_NO_SPACE);
	get_and_put(BASE, 2 * PART);
	get_and_put(part(2), PART);
	ck_assert_uint_eq(stats().evictions, 1);
	ck_assert_uint_eq(fake_kmod_pins(), 1);
}
END_TEST

/* ---- windows: parts of what the module has no space for ---- */

#define LARGE (BASE + GIB(1))

START_TEST(an_allocation_is_pinned_by_windows)
{
	watched_alloc(LARGE, MIB(16), FAKE_LINEAR);
	fake_kmod_space(MIB(8));
	for (unsigned n = 0; n < 16; n++)
		get_and_put(LARGE + n * MIB(1), MIB(1));
	ck_assert_uint_eq(fake_kmod_pins(), 8);
	ck_assert_uint_eq(fake_kmod_bytes(), MIB(8));
	ck_assert_uint_eq(stats().pin_failures, 0);
	ck_assert_int_eq(watched_free(LARGE), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
}
END_TEST

/* The kernel revokes the pin of each window. */
START_TEST(windows_are_revoked)
{
	watched_alloc(LARGE, MIB(16), FAKE_LINEAR);
	fake_kmod_space(MIB(8));
	get_and_put(LARGE + MIB(4), 1);
	get_and_put(LARGE + MIB(9), 1);
	ck_assert_uint_eq(fake_kmod_pins(), 2);
	ck_assert_int_eq(fake_free(LARGE), FAKE_SUCCESS);
	fake_kmod_revoke(LARGE + MIB(4));
	fake_kmod_revoke(LARGE + MIB(9));
	ck_assert(!is_cached(LARGE + MIB(4), 1));
	ck_assert(!is_cached(LARGE + MIB(9), 1));
	ck_assert_uint_eq(stats().regions, 0);
	expected_missed = 2;
}
END_TEST

/* Space for half of a mapping: a window over the boundary of two has a pin in each. */
START_TEST(a_window_over_two_mappings)
{
	map_parts();
	fake_kmod_space(PART / 2);
	get_and_put(part(1) - PAGE, 2 * PAGE);
	ck_assert_uint_eq(fake_kmod_pins(), 2);
	ck_assert_uint_le(fake_kmod_bytes(), PART / 2);
	get_and_put(part(1) - PAGE, 2 * PAGE);
	ck_assert_uint_eq(stats().hits, 1);
	if (_i < 2) {
		ck_assert_int_eq(watched_unmap(part((unsigned)_i), PART), FAKE_SUCCESS);
	} else {
		freed_unseen(part((unsigned)_i - 2));
		fake_kmod_revoke(part(_i == 2 ? 1 : 2) - PAGE);
		fake_kmod_revoke(part(1));
		ck_assert(!is_cached(part(1), 1));
		expected_missed = 1;
	}
	ck_assert_uint_eq(fake_kmod_pins(), 0);
}
END_TEST

/* ---- revocation ---- */

START_TEST(a_revocation_of_one_ends_them_all)
{
	unsigned asked;

	map_parts();
	get_and_put(BASE, ALL);
	freed_unseen(part((unsigned)_i));
	asked = fake_count(FAKE_CALLS);
	ck_assert(!is_cached(BASE, 1));
	ck_assert_uint_eq(fake_count(FAKE_CALLS), asked);
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
	expected_missed = 1;
}
END_TEST

START_TEST(a_revocation_of_another_region_ends_none)
{
	pindown_region *region;
	uint64_t offset;
	unsigned asked;
	int fd;

	map_parts();
	watched_alloc(BASE + GIB(1), PART, FAKE_LINEAR);
	get_and_put(BASE + GIB(1), PART);
	get_and_put(BASE, ALL);
	freed_unseen(BASE + GIB(1));
	asked = fake_count(FAKE_CALLS);
	region = must_get(BASE, ALL);
	ck_assert_uint_eq(fake_count(FAKE_CALLS), asked);
	/* The next hit is as fast as before. */
	ck_assert(pdn_region_word_stands(region));
	pindown_put(region);
	/*
	 * The region is not taken for dead either by a caller that asks the driver, or by one that
	 * pins another group of mappings.
	 */
	watched_alloc(BASE + GIB(2), PART, FAKE_LINEAR);
	get_and_put(BASE + GIB(2), PART);
	region = must_get(BASE, ALL);
	freed_unseen(BASE + GIB(2));
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE, &fd, &offset), PINDOWN_OK);
	pindown_put(region);
	watched_alloc(BASE + GIB(3), PART, FAKE_LINEAR);
	get_and_put(BASE + GIB(3), PART);
	watched_alloc(part(PARTS), PART, FAKE_VMM);
	freed_unseen(BASE + GIB(3));
	get_and_put(part(1), ALL);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
	/* And later revocations are seen. */
	freed_unseen(part(1));
	ck_assert(!is_cached(part(1), ALL));
	for (unsigned i = 1; i <= 3; i++)
		ck_assert(!is_cached(BASE + GIB(i), 1));
	expected_missed = 4;
}
END_TEST

static void hits_all_the_while(void *arg)
{
	bool *over = arg;

	do
		get_and_put(part(1), PART);
	while (!__atomic_load_n(over, __ATOMIC_RELAXED));
}

/* Once one thread has looked at the changed count, the other threads need not. */
START_TEST(threads_hit_while_others_are_revoked)
{
	struct worker workers[3];
	const unsigned others = 200;
	bool over = false;

	map_parts();
	get_and_put(BASE, ALL);
	for (unsigned i = 0; i < 3; i++)
		worker_start(&workers[i], hits_all_the_while, &over);
	for (unsigned i = 0; i < others; i++) {
		uint64_t other = BASE + GIB(1) + i * PART;

		watched_alloc(other, PART, FAKE_LINEAR);
		get_and_put(other, PART);
		freed_unseen(other);
		get_and_put(BASE, ALL);
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 3; i++)
		worker_join(&workers[i]);
	ck_assert_uint_eq(fake_kmod_calls(), PARTS + others);
	ck_assert_uint_eq(stats().misses, 1 + others);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
	freed_unseen(part(2));
	ck_assert(!is_cached(BASE, ALL));
	expected_missed = 1;
}
END_TEST

static void revoke_the_first(void)
{
	fake_kmod_revoke(BASE);
}

START_TEST(a_revocation_while_the_others_are_pinned_is_seen)
{
	map_parts();
	fake_kmod_at_pin((unsigned)_i, revoke_the_first);
	get_and_put(BASE, ALL);
	ck_assert(!is_cached(BASE, ALL));
	ck_assert_uint_eq(fake_kmod_pins(), 0);
	expected_missed = 1;
}
END_TEST

/* ---- the dma-buf of several pins, which the driver makes ---- */

START_TEST(the_driver_makes_one_dmabuf_of_them)
{
	pindown_region *region;
	uint64_t offset;
	int fd = -1;

	map_parts();
	region = must_get(BASE, ALL);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_int_eq(pindown_region_dmabuf(region, part(2) + 1, &fd, &offset), PINDOWN_OK);
	ck_assert_uint_eq(offset, 2 * PART + 1);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert_uint_eq(stats().dmabufs, 1);
	/* It is not the pin, which stays when the dma-buf is closed. */
	pindown_region_close_dmabuf(region);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_uint_eq(fake_kmod_pins(), PARTS);
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE, &fd, &offset), PINDOWN_OK);
	pindown_put(region);
	ck_assert_int_eq(watched_unmap(part(1), PART), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
}
END_TEST

START_TEST(a_driver_that_makes_none_is_said_to)
{
	pindown_region *region;
	uint64_t offset;
	int fd = -1;

	fake_no_dmabuf();
	map_parts();
	region = must_get(BASE, ALL);
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE, &fd, &offset), PINDOWN_ERR_NO_DMABUF);
	ck_assert_int_eq(fd, -1);
	ck_assert(pindown_region_is_live(region));
	pindown_put(region);
	/* For a region of one pin, the module makes the dma-buf. */
	region = must_get(BASE + PART, 1);
	pindown_put(region);
	pindown_flush();
	region = must_get(BASE, PART);
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE, &fd, &offset), PINDOWN_OK);
	pindown_put(region);
}
END_TEST

/* ---- memory that the module refuses ---- */

static const struct {
	int error;
	int result;
	bool falls_back;
} refusals[] = {
	{EINVAL, PINDOWN_ERR_DRIVER, true},    {EOPNOTSUPP, PINDOWN_ERR_DRIVER, true},
	{EIO, PINDOWN_ERR_DRIVER, true},       {ENOSPC, PINDOWN_ERR_NO_SPACE, false},
	{EDQUOT, PINDOWN_ERR_NO_SPACE, false}, {ENODEV, PINDOWN_ERR_NO_BACKEND, false},
};
#define REFUSALS (int)(sizeof(refusals) / sizeof(refusals[0]))

/* The module would wait for other processes to give way. */
START_TEST(nowait_does_not_ask_other_processes)
{
	pindown_region *region = NULL;
	unsigned calls;

	map_parts();
	fake_kmod_fail(0, 1000, ENOSPC);
	ck_assert_int_eq(pindown_get(BASE, PART, PINDOWN_GET_NOWAIT, &region),
			 PINDOWN_ERR_NO_SPACE);
	calls = fake_kmod_calls();
	must_refuse(BASE, PART, PINDOWN_ERR_NO_SPACE);
	ck_assert_uint_gt(fake_kmod_calls(), 2 * calls); /* they are asked with a pin of its own */
	ck_assert_ptr_null(region);
}
END_TEST

START_TEST(kmod_says_so)
{
	map_parts();
	fake_kmod_fail(0, 1000, refusals[_i].error);
	must_refuse(BASE, ALL, refusals[_i].result);
	must_refuse(BASE, PART, refusals[_i].result);
	ck_assert_int_eq(pindown_driver_error(),
			 refusals[_i].error == EOPNOTSUPP	       ? FAKE_NOT_SUPPORTED
			 : refusals[_i].result == PINDOWN_ERR_NO_SPACE ? FAKE_OUT_OF_MEMORY
			 : refusals[_i].falls_back		       ? FAKE_INVALID_VALUE
								       : FAKE_SUCCESS);
	ck_assert_uint_eq(fake_exports_made(), 0);
	ck_assert_uint_eq(stats().fallbacks, 0);
}
END_TEST

/* ---- a module of another release ---- */

/* `lacks` of a module with the library's own ABI, or another ABI: it pins nothing for this one. */
static const struct {
	uint32_t abi;
	uint64_t lacks;
} others[] = {
	{PINDOWN_ABI - 1, 0},
	{PINDOWN_ABI + 1, 0},
	{PINDOWN_ABI, PINDOWN_CAP_CALLBACK},
	{PINDOWN_ABI, PINDOWN_CAP_STATE},
};

START_TEST(auto_does_without_a_module_of_another_abi)
{
	fake_kmod_is_of_abi(others[_i].abi, others[_i].lacks);
	begin_auto();
	watched_alloc(BASE, PART, FAKE_LINEAR);
	pindown_put(must_get(BASE, PART));
	ck_assert_str_eq(stats().backend, "dmabuf");
	ck_assert_uint_eq(fake_kmod_calls(), 0);
	end();
}
END_TEST

START_TEST(kmod_refuses_a_module_of_another_abi)
{
	fake_kmod_is_of_abi(others[_i].abi, others[_i].lacks);
	begin_kmod();
	watched_alloc(BASE, PART, FAKE_LINEAR);
	must_refuse(BASE, PART, PINDOWN_ERR_NO_BACKEND);
	ck_assert_uint_eq(fake_kmod_calls(), 0);
	end();
}
END_TEST

/* A release that only adds capabilities has the same ABI number, and serves. */
START_TEST(a_module_without_dmabufs_pins)
{
	fake_kmod_is_of_abi(PINDOWN_ABI, PINDOWN_CAP_DMABUF | PINDOWN_CAP_PERSISTENT);
	begin_auto();
	watched_alloc(BASE, PART, FAKE_LINEAR);
	pindown_put(must_get(BASE, PART));
	ck_assert_uint_gt(fake_kmod_calls(), 0);
	end();
}
END_TEST

static void get_all_and_another(void)
{
	pindown_put(must_get(BASE, ALL));
	pindown_put(must_get(BASE + GIB(1), PART));
}

START_TEST(auto_takes_the_drivers_dmabuf)
{
	const char *said;

	map_parts();
	watched_alloc(BASE + GIB(1), PART, FAKE_LINEAR);
	fake_kmod_fail(0, 1000, refusals[_i].error);
	if (!refusals[_i].falls_back) {
		must_refuse(BASE, ALL, refusals[_i].result);
		ck_assert_uint_eq(fake_exports_made(), 0);
		return;
	}
	said = stderr_of(get_all_and_another);
	ck_assert_uint_eq(lines_of(said), 1);
	ck_assert_ptr_nonnull(strstr(said, "pindown.ko can't pin 6291456 bytes"));
	ck_assert_str_eq(stats().backend, "kmod");
	ck_assert_uint_eq(stats().fallbacks, 2);
	ck_assert_uint_eq(stats().pin_failures, 0);
	ck_assert_uint_eq(stats().bytes, ALL + PART);
	ck_assert_uint_eq(fake_open_exports(), 2);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
	ck_assert(is_cached(BASE, ALL));
	/* The driver hands out its dma-buf, and exports it again. */
	pindown_region *region = must_get(BASE + GIB(1), PART);
	uint64_t offset;
	int fd;
	pindown_region_close_dmabuf(region);
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert_int_eq(pindown_region_dmabuf(region, BASE + GIB(1) + 1, &fd, &offset),
			 PINDOWN_OK);
	ck_assert_uint_eq(offset, 1);
	ck_assert_uint_eq(fake_exports_made(), 3);
	pindown_put(region);
	ck_assert_int_eq(watched_unmap(part(1), PART), FAKE_SUCCESS);
	ck_assert_int_eq(watched_free(BASE + GIB(1)), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports(), 0);
	/* Each of them is tried with the module first. */
	fake_kmod_fail(0, 0, 0);
	get_and_put(BASE, PART);
	ck_assert_uint_eq(fake_kmod_pins(), 1);
	ck_assert_uint_eq(stats().fallbacks, 2);
}
END_TEST

START_TEST(one_mapping_that_is_refused_takes_all_there)
{
	map_parts();
	fake_kmod_fail((unsigned)_i, 1, EINVAL);
	get_and_put(BASE, ALL);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert_uint_eq(stats().regions, 1);
	/* A revocation of other memory by the module does not matter to it. */
	watched_alloc(BASE + GIB(1), PART, FAKE_LINEAR);
	get_and_put(BASE + GIB(1), PART);
	freed_unseen(BASE + GIB(1));
	ck_assert(!is_cached(BASE + GIB(1), 1));
	ck_assert(is_cached(BASE, ALL));
	expected_missed = 1;
}
END_TEST

/* Otherwise the two windows, pinned by one and by the other, would replace each other for ever. */
START_TEST(a_union_that_the_module_refuses_is_the_drivers)
{
	map_parts();
	get_and_put(BASE, 2 * PART);
	ck_assert_uint_eq(fake_kmod_pins(), 2);
	fake_kmod_fail(0, 1000, EINVAL);
	pdn_untold_process = false;
	get_and_put(part(2) - PART / 2, PART);
	ck_assert(pdn_untold_process); /* `pindown top` is to show the fallback */
	ck_assert_uint_eq(stats().regions, 1);
	ck_assert_uint_eq(stats().bytes, ALL);
	ck_assert_uint_eq(stats().fallbacks, 1);
	ck_assert_uint_eq(stats().pin_failures, 0);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
	ck_assert(is_cached(BASE, 2 * PART));
}
END_TEST

START_TEST(when_neither_pins_it_the_driver_has_the_last_word)
{
	uint64_t errors;

	map_parts();
	fake_kmod_fail(0, 1000, EINVAL);
	fake_no_dmabuf();
	must_refuse(BASE, ALL, PINDOWN_ERR_DRIVER);
	ck_assert_int_eq(pindown_driver_error(), FAKE_NOT_SUPPORTED);
	errors = stats().pin_failures;
	ck_assert_uint_eq(errors, 1);
	ck_assert_uint_eq(stats().fallbacks, 0);
	ck_assert_uint_eq(fake_kmod_pins(), 0);
}
END_TEST

/* The module refused it because it is another buffer by now: the module pins that one. */
static void is_replaced(void)
{
	ck_assert_int_eq(fake_free(BASE), FAKE_SUCCESS);
	fake_alloc(BASE, PART, FAKE_LINEAR);
}

START_TEST(a_lost_race_is_no_refusal)
{
	fake_alloc(BASE, PART, FAKE_LINEAR);
	fake_kmod_at_pin(0, is_replaced);
	fake_kmod_fail(0, 1, ESTALE);
	get_and_put(BASE, PART);
	ck_assert_uint_eq(stats().fallbacks, 0);
	ck_assert_uint_eq(stats().lost_races, 1);
	ck_assert_uint_eq(fake_exports_made(), 0);
	ck_assert_uint_eq(fake_kmod_pins(), 1);
}
END_TEST

static void allow_descriptors(rlim_t max)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* The scripted driver, too, has a descriptor for each export, numbered above 300. */
#define MANY 301u

START_TEST(they_are_counted_with_what_has_a_descriptor)
{
	allow_descriptors(4 * MANY);
	for (unsigned i = 0; i < MANY + 2; i++)
		fake_alloc(BASE + i * PART, PART, FAKE_LINEAR);
	fake_kmod_fail(0, 1000, EINVAL);
	for (unsigned i = 0; i < MANY; i++)
		get_and_put(BASE + i * PART, PART);
	ck_assert_uint_eq(stats().dmabufs, MANY);
	allow_descriptors(2 * MANY); /* the cache may have half of them, and has taken them */
	fake_kmod_fail(0, 0, 0);
	get_and_put(BASE + MANY * PART, PART); /* the module needs no descriptor */
	ck_assert_uint_eq(stats().evictions, 0);
	fake_kmod_fail(0, 1, EINVAL);
	get_and_put(BASE + (MANY + 1) * PART, PART);
	ck_assert_uint_eq(stats().evictions, 1);
	ck_assert_uint_eq(stats().dmabufs, MANY);
	ck_assert_uint_eq(fake_kmod_pins(), 1);
}
END_TEST

/* ---- what the process does itself ---- */

static void close_device(void)
{
	char path[64], target[64];

	for (int fd = 3; fd < 1 << 16; fd++) {
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		length = readlink(path, target, sizeof(target) - 1);
		if (length < 0)
			continue;
		target[length] = '\0';
		if (strstr(target, "memfd:pindown"))
			close(fd);
	}
}

/* One of them is the scripted module's own. */
static unsigned mappings_of_the_area(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned count = 0;
	char line[512];

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, "memfd:pindown") != NULL;
	fclose(maps);
	return count;
}

START_TEST(a_program_that_closes_the_device)
{
	map_parts();
	watched_alloc(BASE + GIB(1), PART, FAKE_LINEAR);
	watched_alloc(BASE + GIB(2), PART, FAKE_LINEAR);
	get_and_put(BASE, ALL);
	get_and_put(BASE + GIB(1), PART);
	fake_kmod_fail(0, 1, EINVAL);
	get_and_put(BASE + GIB(2), PART);
	ck_assert_uint_eq(stats().fallbacks, 1);
	ck_assert_uint_eq(mappings_of_the_area(), 2);
	close_device();
	watched_alloc(BASE + GIB(3), PART, FAKE_LINEAR);
	must_refuse(BASE + GIB(3), PART, PINDOWN_ERR_NO_BACKEND);
	ck_assert_uint_eq(mappings_of_the_area(), 1);
	fake_kmod_last_close();
	ck_assert(!is_cached(BASE, ALL));
	ck_assert(!is_cached(BASE + GIB(1), PART));
	/* The driver's dma-buf does not depend on the device. */
	ck_assert(is_cached(BASE + GIB(2), PART));
	expected_missed = 2;
}
END_TEST

static void child_pins_for_itself(void)
{
	pindown_region *region = NULL;

	if (is_cached(BASE, ALL) || pindown_get(BASE, ALL, 0, &region) != PINDOWN_OK)
		_exit(1);
	pindown_put(region);
	if (!is_cached(BASE, ALL) || pindown_get(BASE + GIB(1), PART, 0, &region) != PINDOWN_OK)
		_exit(2);
	pindown_put(region);
	fake_kmod_revoke(part(1));
	if (is_cached(BASE, ALL) || !is_cached(BASE + GIB(1), PART))
		_exit(3);
	_exit(pindown_flush() == 1 && stats().regions == 0 ? 0 : 4);
}

START_TEST(a_child_starts_afresh)
{
	pid_t child;
	int status;

	map_parts();
	watched_alloc(BASE + GIB(1), PART, FAKE_LINEAR);
	get_and_put(BASE, ALL);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		child_pins_for_itself();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "wait status 0x%x", status);
	ck_assert(is_cached(BASE, ALL));
	ck_assert_uint_eq(fake_kmod_pins(), PARTS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: on the kernel module");
	TCase *tc = suite_case(suite, "one region of several pins", begin_kmod, end);

	tcase_add_test(tc, each_mapping_is_pinned_by_itself);
	tcase_add_loop_test(tc, an_unmap_of_one_ends_them_all, 0, PARTS);
	tcase_add_loop_test(tc, a_part_that_fails_leaves_none, 0, PARTS);
	tcase_add_test(tc, a_number_that_is_used_again_is_another_pins);
	tcase_add_test(tc, the_whole_is_made_room_for);
	tcase_add_test(tc, the_budget_counts_the_whole);
	tc = suite_case(suite, "windows", begin_kmod, end);
	tcase_add_test(tc, an_allocation_is_pinned_by_windows);
	tcase_add_test(tc, windows_are_revoked);
	tcase_add_loop_test(tc, a_window_over_two_mappings, 0, 4);
	tc = suite_case(suite, "revocation", begin_kmod, end);
	tcase_add_loop_test(tc, a_revocation_of_one_ends_them_all, 0, PARTS);
	tcase_add_test(tc, a_revocation_of_another_region_ends_none);
	tcase_add_test(tc, threads_hit_while_others_are_revoked);
	tcase_add_loop_test(tc, a_revocation_while_the_others_are_pinned_is_seen, 1, PARTS);
	tc = suite_case(suite, "a module of another release", NULL, NULL);
	tcase_add_loop_test(tc, auto_does_without_a_module_of_another_abi, 0,
			    (int)(sizeof(others) / sizeof(*others)));
	tcase_add_loop_test(tc, kmod_refuses_a_module_of_another_abi, 0,
			    (int)(sizeof(others) / sizeof(*others)));
	tcase_add_test(tc, a_module_without_dmabufs_pins);
	tc = suite_case(suite, "the dma-buf of several pins", begin_kmod, end);
	tcase_add_test(tc, the_driver_makes_one_dmabuf_of_them);
	tcase_add_test(tc, a_driver_that_makes_none_is_said_to);
	tc = suite_case(suite, "what the module refuses", begin_kmod, end);
	tcase_add_test(tc, nowait_does_not_ask_other_processes);
	tcase_add_loop_test(tc, kmod_says_so, 0, REFUSALS);
	tc = suite_case(suite, "what the module refuses, auto", begin_auto, end);
	tcase_add_loop_test(tc, auto_takes_the_drivers_dmabuf, 0, REFUSALS);
	tcase_add_loop_test(tc, one_mapping_that_is_refused_takes_all_there, 0, PARTS);
	tcase_add_test(tc, a_union_that_the_module_refuses_is_the_drivers);
	tcase_add_test(tc, when_neither_pins_it_the_driver_has_the_last_word);
	tcase_add_test(tc, a_lost_race_is_no_refusal);
	tcase_add_test(tc, they_are_counted_with_what_has_a_descriptor);
	tcase_add_test(tc, a_program_that_closes_the_device);
	tc = suite_case(suite, "what the process does itself", begin_kmod, end);
	tcase_add_test(tc, a_child_starts_afresh);
	return run_suite(suite);
}
