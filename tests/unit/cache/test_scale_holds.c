/* SPDX-License-Identifier: MIT */
/*
 * The threads' hold counts: a thread gets some of its own while others have theirs, none is
 * overlooked when its thread has ended, and where there is no memory for them they are shared.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/thread/thread.h"
#include "cache/hit/region.h"
#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/crowd.h"
#include "tests/unit/support/refuse.h"
#include "tests/unit/support/stepping.h"

#define MANY 300u

/* ---- hold counts of one's own ---- */

static bool has_own_counts(void)
{
	get_and_put(AT(0), 1);
	return pdn_self()->stripe != PDN_STRIPE_SHARED;
}

static void ask(void *arg)
{
	*(bool *)arg = has_own_counts();
}

START_TEST(idle_threads_leave_others_counts_of_their_own)
{
	bool own = false;

	crowd_begin();
	crowd_start(0, 40);
	in_other_thread(ask, &own);
	ck_assert(own);
	ck_assert(has_own_counts());
	crowd_end(0, 40);
}
END_TEST

/* As soon as there is one. */
START_TEST(a_thread_that_shares_gets_counts_of_its_own)
{
	crowd_begin();
	crowd_start(0, PDN_STRIPES - 1);
	ck_assert(!has_own_counts());
	crowd_end(0, PDN_STRIPES - 2);
	ck_assert(has_own_counts());
	crowd_end(PDN_STRIPES - 2, PDN_STRIPES - 1);
}
END_TEST

/* Holds in each of the stripes, and in the shared one, keep a region until the last one goes. */
static pindown_region *held[MANY];

static void hold_and_go(void *arg)
{
	struct gate *gate = arg;

	held[gate - crowd_may_go] = must_get(AT(0), 1);
	gate_open(&crowd_here);
	gate_wait(gate);
}

START_TEST(holds_in_all_stripes_are_counted)
{
	crowd_begin();
	get_and_put(AT(0), 1);
	for (unsigned i = 0; i < MANY; i++) {
		worker_start(&crowd[i], hold_and_go, &crowd_may_go[i]);
		gate_wait(&crowd_here);
	}
	crowd_end(0, MANY);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	for (unsigned i = 0; i < MANY; i++) {
		ck_assert_uint_eq(stats().kept_regions, 1);
		pindown_put(held[i]);
	}
	ck_assert_uint_eq(stats().kept_regions, 0);
}
END_TEST

/*
 * The kernel gives a child zeroes in place of the counts, however it was forked: a fork need not
 * copy the page tables of each thread's counts.
 */
START_TEST(a_fork_copies_no_counts)
{
	const unsigned many = PDN_STRIPES_AT_FIRST + 2;
	uint32_t number, found = 0;
	int status;
	pid_t child;

	crowd_begin();
	get_and_put(AT(0), 1);
	for (unsigned i = 0; i < many; i++) {
		worker_start(&crowd[i], hold_and_go, &crowd_may_go[i]);
		gate_wait(&crowd_here);
	}
	number = pdn_region_number(held[0]);
	/* This thread's is the first one. */
	for (unsigned i = 0; i < many; i++)
		found += pdn_holds[2 + i][number];
	ck_assert_uint_eq(found, many);
	child = fork();
	if (child == 0) {
		for (unsigned i = 0; i < many; i++)
			if (pdn_holds[2 + i][number])
				_exit(1 + (int)i);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	crowd_end(0, many);
	for (unsigned i = 0; i < many; i++)
		pindown_put(held[i]);
}
END_TEST

/* Holds of threads that ended, and puts of those: moved to where they no longer cost. */
START_TEST(holds_of_threads_that_ended_are_moved)
{
	crowd_begin();
	get_and_put(AT(0), 1);
	for (unsigned i = 0; i < MANY; i++) {
		worker_start(&crowd[i], hold_and_go, &crowd_may_go[i]);
		gate_wait(&crowd_here);
	}
	crowd_end(0, MANY);
	ck_assert_uint_eq(pdn_stripe_orphans, PDN_STRIPES - 2);
	for (unsigned i = 0; i < MANY / 2; i++)
		pindown_put(held[i]);
	crowd_move_orphans();
	ck_assert_uint_eq(pdn_stripes[0], 1ull << pdn_self()->stripe | 1ull << PDN_STRIPE_SHARED);
	ck_assert_uint_eq(pdn_stripes[PDN_STRIPES / 64 - 1], 0);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	for (unsigned i = MANY / 2; i < MANY; i++) {
		ck_assert_uint_eq(stats().kept_regions, 1);
		pindown_put(held[i]);
	}
	ck_assert_uint_eq(stats().kept_regions, 0);
}
END_TEST

START_TEST(holds_of_one_thread_that_ended_are_moved)
{
	crowd_begin();
	get_and_put(AT(0), 1);
	worker_start(&crowd[0], hold_and_go, &crowd_may_go[0]);
	gate_wait(&crowd_here);
	crowd_end(0, 1);
	ck_assert_uint_eq(pdn_stripe_orphans, 1);
	get_and_put(AT(1), 1);
	ck_assert_uint_eq(pdn_stripe_orphans, 0);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(stats().kept_regions, 1);
	pindown_put(held[0]);
	ck_assert_uint_eq(stats().kept_regions, 0);
}
END_TEST

/* Two threads take stripes in words of which no sum has been made yet: it looks at both. */
static struct pdn_thread last, second;

static void no_word_is_used(void)
{
	pdn_stripe_words = 1;
}

static void use_the_last_word(void)
{
	step_from_here();
	pdn_stripe_use(&last, PDN_STRIPES - 1);
	step_to_here();
}

static void use_the_second_word(void)
{
	pdn_stripe_use(&second, 64);
}

static void all_words_are_used(void)
{
	ck_assert_uint_eq(pdn_stripe_words, PDN_STRIPES / 64);
}

START_TEST(two_threads_use_more_words_at_once)
{
	static const struct race race = {no_word_is_used, use_the_last_word, use_the_second_word,
					 all_words_are_used};

	run_race_in_handler("using a stripe of another word", &race, 100);
}
END_TEST

/* ---- no memory for them ---- */

struct refused {
	unsigned call; /* system call that fails in the thread; 0: none */
	bool can_refuse, own, keeps_errno;
};

static void ask_while_refused(void *arg)
{
	struct refused *what = arg;
	pindown_region *region;
	bool found;

	what->can_refuse = !what->call || refuse_system_call(what->call, EPERM);
	errno = ERANGE;
	/* No assertion of Check, which takes memory itself. */
	found = pindown_get(AT(0), 1, 0, &region) == PINDOWN_OK;
	what->keeps_errno = errno == ERANGE;
	what->own = pdn_self()->stripe != PDN_STRIPE_SHARED;
	ck_assert(found);
	pindown_put(region);
}

static struct refused ask_without(unsigned call)
{
	struct refused what = {.call = call};

	in_other_thread(ask_while_refused, &what);
	ck_assert(what.keeps_errno);
	return what;
}

static void does_nothing(void *arg)
{
	(void)arg;
}

/* The address space is given back, and each thread has its errno, whatever the system refuses. */
START_TEST(threads_whose_counts_get_no_memory)
{
	const unsigned many = 64;
	uint64_t before;

	if (emulator_lacks("seccomp filters"))
		return;
	crowd_begin();
	ck_assert(has_own_counts());
	crowd_start(0, PDN_STRIPES_AT_FIRST - 1);
	in_other_thread(does_nothing, NULL); /* for a stack, which those to come use again */
	before = used_address_space();
	for (unsigned i = 0; i < many; i++) {
		struct refused what = ask_without(SYS_mprotect);

		if (!what.can_refuse) {
			skip_test("no seccomp filter can be installed here");
			break;
		}
		ck_assert(!what.own);
	}
	/* One stripe's counts would take twice four bytes for each region that there may be. */
	ck_assert_uint_lt(used_address_space() - before, stats().max_regions * 8);
	crowd_end(0, PDN_STRIPES_AT_FIRST - 1);
}
END_TEST

/* The same of the first stripes, which are columns of the table. */
START_TEST(columns_that_get_no_memory)
{
	unsigned turns = 0;
	struct refused what;

	crowd_begin();
	ck_assert(has_own_counts());
	what = ask_without(SYS_mprotect);
	if (!what.can_refuse) {
		skip_test("no seccomp filter can be installed here");
		return;
	}
	ck_assert(!what.own);
	while (!ask_without(0).own && turns < 12)
		turns++;
	ck_assert_uint_lt(turns, 12);
	crowd_start(0, PDN_STRIPES_AT_FIRST);
	crowd_end(0, PDN_STRIPES_AT_FIRST);
}
END_TEST

/* The system is asked again, but not for each thread. */
START_TEST(memory_that_was_refused_comes_later)
{
	unsigned turns = 0;

	crowd_begin();
	ck_assert(has_own_counts());
	crowd_start(0, PDN_STRIPES_AT_FIRST - 1);
	for (unsigned i = 0; i < 5; i++)
		if (!ask_without(SYS_mprotect).can_refuse) {
			skip_test("no seccomp filter can be installed here");
			turns = 1;
			break;
		}
	while (!ask_without(0).own)
		turns++;
	ck_assert_uint_ge(turns, 1);
	ck_assert_uint_le(turns, 12);
	crowd_end(0, PDN_STRIPES_AT_FIRST - 1);
}
END_TEST

START_TEST(counts_without_advice_for_their_pages)
{
	crowd_begin();
	ck_assert(has_own_counts());
	crowd_start(0, PDN_STRIPES_AT_FIRST - 1);
	if (ask_without(SYS_madvise).can_refuse)
		ck_assert(ask_without(0).own);
	else
		skip_test("no seccomp filter can be installed here");
	crowd_end(0, PDN_STRIPES_AT_FIRST - 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: hold counts of threads");
	TCase *tc = cache_case(suite, "hold counts");

	tcase_add_test(tc, idle_threads_leave_others_counts_of_their_own);
	tcase_add_test(tc, a_thread_that_shares_gets_counts_of_its_own);
	tcase_add_test(tc, holds_in_all_stripes_are_counted);
	tcase_add_test(tc, a_fork_copies_no_counts);
	tcase_add_test(tc, holds_of_threads_that_ended_are_moved);
	tcase_add_test(tc, holds_of_one_thread_that_ended_are_moved);
	if (CAN_STEP)
		tcase_add_test(tc, two_threads_use_more_words_at_once);
	tcase_add_test(tc, threads_whose_counts_get_no_memory);
	tcase_add_test(tc, columns_that_get_no_memory);
	tcase_add_test(tc, memory_that_was_refused_comes_later);
	tcase_add_test(tc, counts_without_advice_for_their_pages);
	return run_suite(suite);
}
