/* SPDX-License-Identifier: MIT */
/*
 * What the kernel module does not pin: memory that it refuses, and all memory if it is a module of
 * another release. With PINDOWN_BACKEND=auto the driver's dma-buf pins it instead.
 */
#include "tests/unit/support/kmod_test.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "kmod/pindown_ioctl.h"
#include "cache/show/account.h"

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
	get_and_put(part(2) - PART / 2, PART);
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
	end_kmod();
}
END_TEST

START_TEST(kmod_refuses_a_module_of_another_abi)
{
	fake_kmod_is_of_abi(others[_i].abi, others[_i].lacks);
	begin_kmod();
	watched_alloc(BASE, PART, FAKE_LINEAR);
	must_refuse(BASE, PART, PINDOWN_ERR_NO_BACKEND);
	ck_assert_uint_eq(fake_kmod_calls(), 0);
	end_kmod();
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
	end_kmod();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: what the kernel module does not pin");
	TCase *tc = suite_case(suite, "what the module refuses", begin_kmod, end_kmod);

	tcase_add_test(tc, nowait_does_not_ask_other_processes);
	tcase_add_loop_test(tc, kmod_says_so, 0, REFUSALS);
	tc = suite_case(suite, "what the module refuses, auto", begin_auto, end_kmod);
	tcase_add_loop_test(tc, auto_takes_the_drivers_dmabuf, 0, REFUSALS);
	tcase_add_loop_test(tc, one_mapping_that_is_refused_takes_all_there, 0, PARTS);
	tcase_add_test(tc, a_union_that_the_module_refuses_is_the_drivers);
	tcase_add_test(tc, when_neither_pins_it_the_driver_has_the_last_word);
	tcase_add_test(tc, a_lost_race_is_no_refusal);
	tcase_add_test(tc, they_are_counted_with_what_has_a_descriptor);
	tc = suite_case(suite, "a module of another release", NULL, NULL);
	tcase_add_loop_test(tc, auto_does_without_a_module_of_another_abi, 0,
			    (int)(sizeof(others) / sizeof(*others)));
	tcase_add_loop_test(tc, kmod_refuses_a_module_of_another_abi, 0,
			    (int)(sizeof(others) / sizeof(*others)));
	tcase_add_test(tc, a_module_without_dmabufs_pins);
	return run_suite(suite);
}
