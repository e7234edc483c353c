/* SPDX-License-Identifier: MIT */
/*
 * A system call filter that refuses membarrier(2), installed at any time: the cache continues as
 * before, and says so once. test_races_order, with REFUSED, sees that no hit goes wrong meanwhile.
 * And one that refuses madvise(2): then no memory is zeroed in children.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "cache/base/thread/barrier.h"
#include "cache/base/process/process.h"
#include "tests/unit/support/fork_test.h"
#include "tests/unit/support/refuse.h"

static bool can_refuse(int error)
{
	if (refuse_system_call(SYS_membarrier, (unsigned)error))
		return true;
	skip_test("no seccomp filter can be installed here");
	return false;
}

static struct gate has_come, may_go;

static void come_and_stay(void *arg)
{
	(void)arg;
	must_refuse(AT(1), 1, PINDOWN_ERR_NOT_DEVICE);
	gate_open(&has_come);
	gate_wait(&may_go);
}

/* While only one thread has used the cache, it makes no barrier. */
static struct worker other;

static void let_another_come(void)
{
	gate_init(&has_come);
	gate_init(&may_go);
	worker_start(&other, come_and_stay, NULL);
	gate_wait(&has_come);
}

static void let_it_go(void)
{
	gate_open(&may_go);
	worker_join(&other);
}

static void assert_it_works(void)
{
	for (unsigned i = 0; i < 3; i++) {
		pindown_region *held = must_get(AT(0), 1);

		ck_assert(is_cached(AT(0), 1));
		ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
		ck_assert_int_eq(pindown_region_is_live(held), 0);
		ck_assert_uint_eq(stats().kept_regions, 1);
		pindown_put(held);
		ck_assert_uint_eq(stats().regions, 0);
		watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	}
	get_and_put(AT(0), 1);
	ck_assert_int_eq(pindown_flush(), 1);
}

static const int errors[] = {EPERM, ENOSYS};

START_TEST(from_the_start)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	if (!can_refuse(errors[_i]))
		return;
	let_another_come();
	assert_it_works();
	ck_assert_uint_eq(pdn_fence_mode, PDN_FENCE_FOR_GOOD);
	let_it_go();
}
END_TEST

START_TEST(before_the_first_pin)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	ck_assert(!is_cached(AT(0), 1));
	if (!can_refuse(errors[_i]))
		return;
	let_another_come();
	assert_it_works();
	ck_assert_uint_eq(pdn_fence_mode, PDN_FENCE_FOR_GOOD);
	let_it_go();
}
END_TEST

static void end_evict_and_pin(void)
{
	assert_it_works();
}

/* The barriers at which it is noticed, and the other calls that they may delay. */
START_TEST(after_the_first_pin)
{
	const char *text;

	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	let_another_come();
	if (!can_refuse(errors[_i]))
		return;
	text = stderr_of(end_evict_and_pin);
	ck_assert_uint_eq(pdn_fence_mode, PDN_FENCE_FOR_GOOD);
	if (PDN_ASYMMETRIC) {
		ck_assert_uint_eq(lines_of(text), 1);
		ck_assert_ptr_nonnull(strstr(text, "membarrier(2) is refused"));
	}
	let_it_go();
}
END_TEST

/* Many hits in later rounds change nothing: there is no way back. */
START_TEST(it_stays_so)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	let_another_come();
	if (!can_refuse(EPERM))
		return;
	pindown_invalidate(AT(0), 1);
	for (unsigned i = 0; i < 1000; i++)
		get_and_put(AT(0), 1);
	ck_assert_uint_eq(pdn_fence_mode, PDN_FENCE_FOR_GOOD);
	let_it_go();
}
END_TEST

/* The grace period has its length even where the filter refuses to sleep. */
START_TEST(naps_are_refused_too)
{
	uint64_t begin, end;

	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	let_another_come();
	if (!can_refuse(EPERM) || !refuse_system_call(SYS_nanosleep, EPERM) ||
	    !refuse_system_call(SYS_clock_nanosleep, EPERM))
		return;
	if (!PDN_ASYMMETRIC || pdn_fence_mode == PDN_FENCE_FOR_GOOD) {
		let_it_go();
		return;
	}
	begin = pdn_deadline(0);
	pindown_invalidate(AT(0), 1);
	end = pdn_deadline(0);
	ck_assert_uint_eq(pdn_fence_mode, PDN_FENCE_FOR_GOOD);
	ck_assert_uint_ge(end - begin, pdn_barrier_grace_ns);
	let_it_go();
}
END_TEST

/* ---- a child ---- */

static void uses_the_cache_without_membarrier(void *arg)
{
	EXPECT(pdn_fence_mode == PDN_FENCE_FOR_GOOD);
	uses_the_cache(arg);
	EXPECT(pdn_fence_mode == PDN_FENCE_FOR_GOOD);
}

/* Its parent has looked for memory to pin, and found none: so the child may pin. */
START_TEST(a_child_is_refused_at_once)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	must_refuse(AT(1), 1, PINDOWN_ERR_NOT_DEVICE);
	if (!can_refuse(EPERM))
		return;
	in_child(uses_the_cache_without_membarrier, NULL);
}
END_TEST

static void begins_with_membarrier(void *arg)
{
	EXPECT(!PDN_ASYMMETRIC || pdn_fence_mode == PDN_MEMBARRIER);
	uses_the_cache(arg);
}

/* Forked while another thread of the parent is in the middle of its grace period. */
START_TEST(a_child_of_a_grace_period)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	must_refuse(AT(1), 1, PINDOWN_ERR_NOT_DEVICE);
	if (pdn_fence_mode == PDN_FENCE_FOR_GOOD)
		return;
	in_child(begins_with_membarrier, NULL);
	pdn_fence_mode = PDN_LOSING_MEMBARRIER;
	in_child(uses_the_cache_without_membarrier, NULL);
	pdn_fence_mode = PDN_FENCE_FOR_GOOD;
	in_child(uses_the_cache_without_membarrier, NULL);
}
END_TEST

static void has_wiped_and_is_off(void *arg)
{
	/* A thread that this child does not have may hold the loader's lock. */
	EXPECT(!pdn_this_process.loader_lock_works);
	EXPECT(!is_cached(AT(0), 1));
	is_off(arg);
}

START_TEST(a_child_of_a_kernel_that_zeroes_nothing)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pdn_process_loaded();
	if (!refuse_system_call(SYS_madvise, EINVAL)) {
		skip_test("no seccomp filter can be installed here");
		return;
	}
	ck_assert(pdn_process_prepare());
	ck_assert_uint_eq(pdn_this_process.loader_lock_works, 1);
	get_and_put(AT(0), 1);
	in_child(has_wiped_and_is_off, NULL);
	ck_assert_uint_eq(pdn_this_process.loader_lock_works, 1);
	ck_assert(is_cached(AT(0), 1));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: membarrier is refused");
	TCase *tc = cache_case(suite, "when");

	tcase_add_loop_test(tc, from_the_start, 0, 2);
	tcase_add_loop_test(tc, before_the_first_pin, 0, 2);
	tcase_add_loop_test(tc, after_the_first_pin, 0, 2);
	tcase_add_test(tc, it_stays_so);
	tcase_add_test(tc, naps_are_refused_too);
	tc = fork_case(suite, "a child");
	tcase_add_test(tc, a_child_is_refused_at_once);
	tcase_add_test(tc, a_child_of_a_grace_period);
	tcase_add_test(tc, a_child_of_a_kernel_that_zeroes_nothing);
	return run_suite(suite);
}
