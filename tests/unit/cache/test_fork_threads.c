/* SPDX-License-Identifier: MIT */
/*
 * fork while other threads, or the forking thread itself, are in the middle of a pin, a free, an
 * unpin or a callback. test_fork.c has the rest.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>

#include "cache/base/process/fork_gate.h"
#include "cache/base/thread/thread.h"
#include "cache/dmabuf/region_dmabuf.h"
#include "tests/unit/support/asleep.h"
#include "tests/unit/support/fork_test.h"
#include "tests/unit/support/syscalls.h"

static pid_t forked;

static void has_no_export(void *arg)
{
	(void)arg;
	EXPECT(fake_descriptors_here() == 0);
	is_off(NULL);
}

static void fork_and_look(void *arg)
{
	(void)arg;
	forked = fork();
	if (forked == 0) {
		has_no_export(NULL);
		_exit(0);
	}
}

static struct worker forker;

static void start_forker(void *arg)
{
	worker_start(&forker, fork_and_look, arg);
	worker_wait_idle(&forker);
}

/* The descriptor that the driver has just returned is not recorded yet: fork has to wait for it. */
START_TEST(fork_while_another_thread_pins)
{
	bool met = true;

	pdn_fork_wait_ns = PATIENCE_NS;
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1); /* so that each child is off */
	ck_assert_int_eq(pindown_flush(), 1);
	for (unsigned edge = 0; met; edge++) {
		fake_at_edge(FAKE_CALLS, edge, start_forker, NULL);
		pindown_region *region = must_get(AT(0), 1);
		met = fake_edge_met();
		fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
		pindown_put(region);
		if (met) {
			worker_join(&forker);
			reap(forked);
		}
		ck_assert_int_eq(pindown_invalidate(AT(0), 0), 1);
		ck_assert_uint_eq(fake_open_exports(), 0);
	}
}
END_TEST

/*
 * The same for a descriptor that is opened again: the region gets it only when the region is known
 * to be live.
 */
START_TEST(fork_while_another_thread_opens_a_descriptor)
{
	bool met = true;
	int fd;

	pdn_fork_wait_ns = PATIENCE_NS;
	pdn_dmabuf_close_kept(); /* from now on none stays open */
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(AT(0), 1);
	for (unsigned edge = 0; met; edge++) {
		pindown_region_close_dmabuf(region);
		fake_at_edge(FAKE_CALLS, edge, start_forker, NULL);
		ck_assert_int_eq(pdn_dmabuf_borrow(region, &fd), PINDOWN_OK);
		met = fake_edge_met();
		fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
		if (met) {
			worker_join(&forker);
			reap(forked);
		}
		pdn_dmabuf_return(region, true);
		ck_assert_uint_eq(fake_open_exports(), 0);
	}
	pindown_put(region);
}
END_TEST

/* ---- descriptors that are being closed ------------------------------------------------------ */

static void (*at_close)(int fd);
static bool waits_to_begin, begins, may_begin;

/* The cache closes by number. The hook runs once, before the descriptor is closed. */
bool play_syscall(long number, const long args[6], long *result)
{
	void (*hook)(int) = number == SYS_close ? at_close : NULL;

	(void)result;
	if (hook) {
		at_close = NULL;
		hook((int)args[0]);
	}
	if (number == SYS_madvise && waits_to_begin) {
		waits_to_begin = false;
		__atomic_store_n(&begins, true, __ATOMIC_RELEASE);
		wait_until(__atomic_load_n(&may_begin, __ATOMIC_ACQUIRE));
	}
	return false;
}

static void take_a_lock(void *arg)
{
	(void)arg;
	pdn_lock();
	pdn_unlock();
}

static void ask_whether_it_is_on(void *arg)
{
	(void)arg;
	ck_assert(pdn_process_is_on());
}

static void (*const begin_ways[])(void *arg) = {take_a_lock, ask_whether_it_is_on};

/* The first thing that pindown does in a process is to begin, in some other thread. */
START_TEST(fork_while_another_thread_begins)
{
	struct worker worker;

	waits_to_begin = true;
	worker_start(&worker, begin_ways[_i], NULL);
	wait_until(__atomic_load_n(&begins, __ATOMIC_ACQUIRE));
	forked = fork();
	if (forked == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(20);
		begin_ways[_i](NULL);
		_exit(0);
	}
	__atomic_store_n(&may_begin, true, __ATOMIC_RELEASE);
	worker_join(&worker);
	reap(forked);
}
END_TEST

static bool fork_was_through;

static void fork_at_close(int fd)
{
	(void)fd;
	start_forker(NULL);
	fork_was_through = worker_is_done(&forker);
}

/* The kernel would copy the descriptor before it is closed, and the memory after that. */
START_TEST(fork_while_another_thread_closes_a_descriptor)
{
	pdn_fork_wait_ns = PATIENCE_NS;
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	at_close = fork_at_close;
	ck_assert_int_eq(pindown_invalidate(AT(0), 0), 1);
	ck_assert_ptr_null(at_close);
	ck_assert(!fork_was_through);
	worker_join(&forker);
	reap(forked);
}
END_TEST

static struct gate at_the_close, may_close;
static struct worker closer;
static int closed = -1, copy = -1;

static void stay_at_close(int fd)
{
	closed = fd;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 400);
	gate_open(&at_the_close);
	gate_wait(&may_close);
}

/* Runs after pindown's handler, which has waited as long as it does. */
static void let_it_close(void)
{
	if (closed < 0)
		return;
	gate_open(&may_close);
	worker_join(&closer);
}

/*
 * Runs before pindown's handler. It restores the descriptor, as if the kernel had copied
 * descriptors first.
 */
static void have_it_still(void)
{
	if (closed < 0)
		return;
	EXPECT(dup2(copy, closed) == closed);
	close(copy);
}

static void begin_among_others(void)
{
	ck_assert_int_eq(pthread_atfork(let_it_close, NULL, have_it_still), 0);
	begin_with_fork_handlers();
}

static void unpin_it(void *arg)
{
	(void)arg;
	ck_assert_int_eq(pindown_invalidate(AT(0), 0), 1);
}

START_TEST(a_descriptor_that_is_closed_during_the_fork)
{
	pdn_fork_wait_ns = 1000000;
	gate_init(&at_the_close);
	gate_init(&may_close);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	at_close = stay_at_close;
	worker_start(&closer, unpin_it, NULL);
	gate_wait(&at_the_close);
	in_child(has_no_export, NULL);
	close(copy);
}
END_TEST

/* ---- callbacks and other threads ------------------------------------------------------------ */

static bool in_callback;

static void fork_in_callback(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	if (in_callback) /* the child inherits the subscription */
		return;
	in_callback = true;
	fork_and_look(NULL);
	in_callback = false;
	ck_assert_int_gt(forked, 0);
	reap(forked);
}

/* In the middle of a free, and of an eviction for a pin: guards are up, and a pin is under way. */
START_TEST(fork_in_a_callback)
{
	setenv("PINDOWN_MAX_REGIONS", "1", 1);
	pindown_subscribe(fork_in_callback, NULL);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	get_and_put(AT(1), 1);
	ck_assert(!is_cached(AT(0), 1));
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

/* The child continues what its parent was in the middle of. */
static void fork_and_return_twice(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	if (in_callback)
		return;
	in_callback = true;
	forked = fork();
}

static void go_on_in_both(int result, pindown_region *region)
{
	if (forked > 0) {
		reap(forked);
		return;
	}
	/* Check can't be used here: see EXPECT(). */
	EXPECT(result == PINDOWN_ERR_NO_CUDA && !region);
	is_off(NULL);
	_exit(0);
}

START_TEST(a_child_goes_on_with_an_eviction)
{
	pindown_region *region = NULL;

	setenv("PINDOWN_MAX_REGIONS", "1", 1);
	pindown_subscribe(fork_and_return_twice, NULL);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	int result = pindown_get(AT(1), 1, 0, &region);
	go_on_in_both(result, region);
	ck_assert_int_eq(result, PINDOWN_OK);
	pindown_put(region);
}
END_TEST

START_TEST(a_child_goes_on_with_an_invalidation)
{
	pindown_region *held[2];

	pindown_subscribe(fork_and_return_twice, NULL);
	for (unsigned i = 0; i < 4; i++)
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
	for (unsigned i = 0; i < 4; i++)
		get_and_put(AT(i), 1);
	held[0] = must_get(AT(0), 1);
	held[1] = must_get(AT(2), 1);
	int count = pindown_invalidate(AT(0), MIB(16) * 4);
	go_on_in_both(PINDOWN_ERR_NO_CUDA, NULL);
	ck_assert_int_eq(count, 4);
	pindown_put(held[0]);
	pindown_put(held[1]);
}
END_TEST

/* The child does not depend on what other threads of its parent were doing. */
static struct gate other_is_inside, other_may_go_on;

static void stay_in_a_free(void *arg)
{
	(void)arg;
	pdn_guard guard = pdn_end_range(AT(0), 0);
	gate_open(&other_is_inside);
	gate_wait(&other_may_go_on);
	pdn_ended(guard);
}

static void block_other(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	if (in_callback)
		return;
	in_callback = true;
	gate_open(&other_is_inside);
	gate_wait(&other_may_go_on);
}

/*
 * There are so many frees here that a wait of two seconds for each would exceed the test's limit.
 */
static void is_off_often(void *arg)
{
	for (unsigned i = 0; i < 40; i++)
		is_off(arg);
}

static void fork_while_another_stays_in(void (*stay)(void *))
{
	struct worker other;

	gate_init(&other_is_inside);
	gate_init(&other_may_go_on);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	worker_start(&other, stay, NULL);
	gate_wait(&other_is_inside);
	in_child(is_off_often, NULL);
	gate_open(&other_may_go_on);
	worker_join(&other);
}

START_TEST(fork_while_another_thread_frees)
{
	fork_while_another_stays_in(stay_in_a_free);
}
END_TEST

START_TEST(fork_while_another_thread_unpins)
{
	pindown_subscribe(block_other, NULL);
	fork_while_another_stays_in(unpin_it);
}
END_TEST

static void stay_here(void *arg)
{
	(void)arg;
	gate_open(&other_is_inside);
	gate_wait(&other_may_go_on);
}

static void stay_in_a_pin(void *arg)
{
	(void)arg;
	pindown_flush();
	fake_at_edge(FAKE_EXPORT, FAKE_ENTERING(0), stay_here, NULL);
	get_and_put(AT(0), 1);
}

/* The driver keeps that thread for longer than a fork waits for it. */
START_TEST(fork_while_another_thread_is_stuck_in_a_pin)
{
	fork_while_another_stays_in(stay_in_a_pin);
	ck_assert(is_cached(AT(0), 1));
}
END_TEST

/*
 * A fork waits for the pins under way, and new pins wait for the fork; otherwise the fork might
 * wait for ever.
 */
static struct worker late_pinner;
static bool late_pin_was_through;

static void pin_late(void *arg)
{
	(void)arg;
	get_and_put(AT(1), 1);
}

static void start_forker_and_pinner(void *arg)
{
	start_forker(arg);
	worker_start(&late_pinner, pin_late, NULL);
	worker_wait_idle(&late_pinner);
	late_pin_was_through = worker_is_done(&late_pinner);
}

START_TEST(no_new_pin_while_a_fork_waits)
{
	pdn_fork_wait_ns = PATIENCE_NS;
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	fake_at_edge(FAKE_EXPORT, FAKE_LEAVING(0), start_forker_and_pinner, NULL);
	get_and_put(AT(0), 1);
	ck_assert(fake_edge_met());
	ck_assert(!late_pin_was_through);
	worker_join(&forker);
	reap(forked);
	worker_join(&late_pinner);
	ck_assert(is_cached(AT(1), 1));
}
END_TEST

static bool stop;

static void churn(void *arg)
{
	uint64_t mine = AT(1 + (uintptr_t)arg);

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		get_and_put(mine, 1);
		pindown_region *held = must_get(mine, 1);
		ck_assert_int_eq(watched_free(mine), FAKE_SUCCESS);
		pindown_put(held);
		watched_alloc(mine, MIB(2), FAKE_LINEAR);
	}
}

static void churned_child(void *arg)
{
	(void)arg;
	EXPECT(fake_descriptors_here() == 0);
	EXPECT(!is_cached(AT(1), 1));
	EXPECT(!is_cached(AT(2), 1));
}

/* Wherever the other threads are: the child's lock is free, and its data is consistent. */
START_TEST(forks_among_busy_threads)
{
	struct worker workers[2];

	pdn_fork_wait_ns = PATIENCE_NS;
	for (unsigned i = 0; i < 3; i++)
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
	for (uintptr_t i = 0; i < 2; i++)
		worker_start(&workers[i], churn, (void *)i);
	for (unsigned round = 0; round < 600; round++) {
		get_and_put(AT(0), 1);
		in_child(churned_child, NULL);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 2; i++)
		worker_join(&workers[i]);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
}
END_TEST

/* ---- a child that forks ---- */

static struct gate fork_is_under_way;
static bool fork_is_over;

static void fork_until_it_waits(void *tid)
{
	pdn_fork_gate_shut();
	gate_open(&fork_is_under_way);
	wait_until_asleep(*(int *)tid, "S");
	__atomic_store_n(&fork_is_over, true, __ATOMIC_RELAXED);
	pdn_fork_gate_open();
}

/* In the child's only thread, whose own fork is over there. */
static void waits_for_the_forks_of_others(void *arg)
{
	int tid = (int)syscall(SYS_gettid);

	(void)arg;
	gate_init(&fork_is_under_way);
	worker_start(&forker, fork_until_it_waits, &tid);
	gate_wait(&fork_is_under_way);
	pdn_descriptor_begin();
	EXPECT(__atomic_load_n(&fork_is_over, __ATOMIC_RELAXED));
	pdn_descriptor_end();
	worker_join(&forker);
}

START_TEST(a_descriptor_of_a_child_waits_for_a_fork_of_the_childs)
{
	pdn_fork_wait_ns = PATIENCE_NS;
	pindown_flush(); /* pindown has begun, but used no GPU memory */
	in_child(waits_for_the_forks_of_others, NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: fork among threads");
	TCase *tc = fork_case(suite, "while other threads are busy");

	tcase_add_test(tc, fork_while_another_thread_pins);
	tcase_add_test(tc, fork_while_another_thread_opens_a_descriptor);
	tcase_add_test(tc, fork_while_another_thread_closes_a_descriptor);
	tcase_add_test(tc, fork_in_a_callback);
	tcase_add_test(tc, a_child_goes_on_with_an_eviction);
	tcase_add_test(tc, a_child_goes_on_with_an_invalidation);
	tcase_add_test(tc, fork_while_another_thread_frees);
	tcase_add_test(tc, fork_while_another_thread_unpins);
	tcase_add_test(tc, fork_while_another_thread_is_stuck_in_a_pin);
	tcase_add_test(tc, no_new_pin_while_a_fork_waits);
	tcase_add_test(tc, forks_among_busy_threads);
	tcase_add_test(tc, a_descriptor_of_a_child_waits_for_a_fork_of_the_childs);
	tc = suite_case(suite, "that are the first", NULL, NULL);
	tcase_add_loop_test(tc, fork_while_another_thread_begins, 0, 2);
	tc = suite_case(suite, "and another library", begin_among_others, cache_end);
	tcase_add_test(tc, a_descriptor_that_is_closed_during_the_fork);
	return run_suite(suite);
}
