/* SPDX-License-Identifier: MIT */
/*
 * fork: the child holds no pin, keeps no memory alive, and begins with an empty cache; the parent
 * notices nothing. [UCX], [gdrcopy] fork while mapped.
 *
 * The fake driver's exports are pipes, and it sees when the last descriptor of one has been closed
 * in any process: a child that kept one would show in the parent as an open export.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache_test.h"

#define AT(i) (BASE + MIB(16) * (i))

/* What hook/ does in a program. */
static void begin_with_fork_handlers(void)
{
	cache_begin();
	fake_handle_forks();
	ck_assert_int_eq(pthread_atfork(pd_fork_prepare, pd_fork_parent, pd_fork_child), 0);
}

/*
 * In a child there is no Check to report to, and another thread may have had its lock at the fork: a
 * failed expectation is the child's exit status.
 */
#define EXPECT(condition)                          \
	do {                                       \
		if (!(condition))                  \
			_exit(__LINE__ % 200 + 1); \
	} while (0)

static void reap(pid_t child)
{
	int status;

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
		      "child: wait status 0x%x, expectation in line 200k + %d", status,
		      WEXITSTATUS(status) - 1);
}

static pid_t start_child(void (*fn)(void *), void *arg)
{
	pid_t child = fork();

	if (child == 0) {
		fn(arg);
		_exit(0);
	}
	ck_assert_int_gt(child, 0);
	return child;
}

static void in_child(void (*fn)(void *), void *arg)
{
	reap(start_child(fn, arg));
}

static int fd_of(pindown_region *region)
{
	uint64_t offset;
	int fd;

	ck_assert_int_eq(pindown_region_dmabuf(region, pindown_region_base(region), &fd, &offset),
			 PINDOWN_OK);
	return fd;
}

/* ---- what the child has ---- */

static void has_nothing(void *arg)
{
	int *fds = arg;
	struct pindown_stats s;

	EXPECT(fcntl(fds[0], F_GETFD) == -1 && errno == EBADF);
	EXPECT(fcntl(fds[1], F_GETFD) == -1 && errno == EBADF);
	EXPECT(pindown_stats(&s, sizeof(s), -1) == PINDOWN_OK);
	EXPECT(s.regions == 0 && s.bytes == 0 && s.kept_regions == 0 && s.kept_bytes == 0);
	EXPECT(s.pins == 0 && s.hits == 0 && s.misses == 0);
	EXPECT(!is_cached(AT(0), 1));
	EXPECT(pindown_flush() == 0);
	EXPECT(pindown_invalidate(AT(0), GIB(1)) == 0);
}

START_TEST(a_child_has_no_pin)
{
	int fds[2];

	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	pindown_region *idle = must_get(AT(0), 1), *held = must_get(AT(1), 1);
	fds[0] = fd_of(idle);
	fds[1] = fd_of(held);
	pindown_put(idle);
	in_child(has_nothing, fds);
	ck_assert(is_cached(AT(0), 1));
	ck_assert_int_ne(fcntl(fds[0], F_GETFD), -1);
	ck_assert_uint_eq(stats().regions, 2);
	pindown_put(held);
}
END_TEST

START_TEST(a_child_has_no_kept_pin_either)
{
	int fds[2];

	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pindown_region *kept = must_get(AT(0), 1);
	fds[0] = fds[1] = fd_of(kept);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	in_child(has_nothing, fds);
	ck_assert_uint_eq(stats().kept_regions, 1);
	pindown_put(kept);
}
END_TEST

/* A byte each way: the child has begun (its fork handler is through), and may end. */
static int leash[2];

static void live_until_told(void *arg)
{
	char c = 0;

	(void)arg;
	EXPECT(write(leash[1], &c, 1) == 1);
	EXPECT(read(leash[1], &c, 1) == 1);
}

static pid_t start_living_child(void)
{
	char c;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, leash), 0);
	pid_t child = start_child(live_until_told, NULL);
	ck_assert_int_eq(read(leash[0], &c, 1), 1);
	return child;
}

static void end_living_child(pid_t child)
{
	ck_assert_int_eq(write(leash[0], "", 1), 1);
	reap(child);
}

/* The child lives on while the parent frees: the memory must be gone then, not at the child's end.
 */
START_TEST(a_living_child_keeps_no_memory_alive)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	pindown_region *held = must_get(AT(1), 1);
	pid_t child = start_living_child();
	ck_assert_uint_eq(fake_open_exports(), 2);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
	pindown_put(held);
	ck_assert_uint_eq(fake_open_exports(), 0);
	end_living_child(child);
}
END_TEST

static void puts_what_it_has_not(void *arg)
{
	pindown_put(arg);
	pindown_put(arg);
	EXPECT(pindown_flush() == 0);
	EXPECT(!pindown_region_is_live(arg));
}

START_TEST(a_childs_put_of_a_parents_region_is_ignored)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pindown_region *held = must_get(AT(0), 1);
	in_child(puts_what_it_has_not, held);
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert_int_eq(pindown_flush(), 0);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(stats().kept_regions, 1);
	pindown_put(held);
}
END_TEST

/* Not even when its record might be wanted for something of the child's own by then. */
static void puts_late(void *arg)
{
	pindown_region *own = NULL;

	EXPECT(pindown_flush() == 0);
	EXPECT(pindown_get(AT(1), 1, 0, &own) == PINDOWN_OK);
	EXPECT(own != arg);
	pindown_put(arg);
	EXPECT(pindown_flush() == 0);
	EXPECT(pindown_region_is_live(own));
	EXPECT(fake_open_exports_of(fake_id(AT(1))) == 1);
	pindown_put(own);
	EXPECT(pindown_flush() == 1);
	EXPECT(fake_open_exports_of(fake_id(AT(1))) == 0);
	pindown_put(arg);
	EXPECT(pindown_flush() == 0);
}

START_TEST(a_childs_late_put_of_a_parents_region_is_ignored)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	pindown_region *held = must_get(AT(0), 1);
	in_child(puts_late, held);
	pindown_put(held);
}
END_TEST

/* A child whose parent never used the driver, or that has one of its own, may pin. */
static void uses_the_cache(void *arg)
{
	pindown_region *region = NULL;
	struct pindown_stats before, s;

	(void)arg;
	EXPECT(pindown_stats(&before, sizeof(before), -1) == PINDOWN_OK);
	for (unsigned i = 0; i < 3; i++) {
		EXPECT(pindown_get(AT(0), 1, 0, &region) == PINDOWN_OK);
		EXPECT(pindown_region_is_live(region));
		EXPECT(is_cached(AT(0), 1));
		EXPECT(watched_free(AT(0)) == FAKE_SUCCESS);
		EXPECT(!is_cached(AT(0), 1));
		EXPECT(!pindown_region_is_live(region));
		pindown_put(region);
		watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
		EXPECT(!is_cached(AT(0), 1));
	}
	EXPECT(pindown_stats(&s, sizeof(s), -1) == PINDOWN_OK);
	EXPECT(s.pins - before.pins == 3 && s.pins - s.unpins == s.regions);
	EXPECT(s.regions <= before.regions);
}

START_TEST(a_child_begins_anew)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	in_child(uses_the_cache, NULL);
	pindown_region *held = must_get(AT(0), 1);
	in_child(uses_the_cache, NULL);
	pindown_put(held);
	in_child(uses_the_cache, NULL);
	ck_assert(is_cached(AT(0), 1));
}
END_TEST

static void forks_again(void *arg)
{
	pid_t grandchild;
	int status;

	uses_the_cache(arg);
	pindown_region *held = NULL;
	EXPECT(pindown_get(AT(0), 1, 0, &held) == PINDOWN_OK);
	grandchild = fork();
	if (grandchild == 0) {
		puts_what_it_has_not(held);
		uses_the_cache(arg);
		_exit(0);
	}
	EXPECT(waitpid(grandchild, &status, 0) == grandchild && status == 0);
	EXPECT(pindown_region_is_live(held));
	pindown_put(held);
}

START_TEST(a_grandchild_begins_anew)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	in_child(forks_again, NULL);
}
END_TEST

START_TEST(many_forks)
{
	pindown_region *held[8];

	for (unsigned i = 0; i < 8; i++)
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
	for (unsigned round = 0; round < 40; round++) {
		for (unsigned i = 0; i < 8; i++)
			held[i] = must_get(AT(i), 1);
		in_child(puts_what_it_has_not, held[round % 8]);
		for (unsigned i = 0; i < 8; i++)
			pindown_put(held[i]);
		ck_assert_int_eq(watched_free(AT(round % 8)), FAKE_SUCCESS);
		ck_assert_uint_eq(fake_open_exports(), 7);
		watched_alloc(AT(round % 8), MIB(2), FAKE_LINEAR);
	}
}
END_TEST

/* exec closes what the handlers could not. */
START_TEST(a_program_that_is_executed_inherits_nothing)
{
	char script[128];

	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(AT(0), 1);
	snprintf(script, sizeof(script), "test ! -e /proc/self/fd/%d", fd_of(region));
	pid_t child = vfork(); /* no handlers: it runs on our memory until it calls exec */
	if (child == 0) {
		execl("/bin/sh", "sh", "-c", script, (char *)NULL);
		_exit(127);
	}
	reap(child);
	ck_assert(is_cached(AT(0), 1));
	pindown_put(region);
}
END_TEST

/* _Fork() runs no handlers; hook/ tells the child. */
START_TEST(a_child_that_is_told_late)
{
	int fds[2];

	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	pindown_region *region = must_get(AT(0), 1);
	fds[0] = fds[1] = fd_of(region);
	pindown_put(region);
	pid_t child = _Fork();
	if (child == 0) {
		pd_fork_child();
		has_nothing(fds);
		uses_the_cache(NULL);
		_exit(0);
	}
	reap(child);
	ck_assert(is_cached(AT(0), 1));
}
END_TEST

/* ---- while other threads are at it ---- */

static pid_t forked;

static void has_no_export(void *arg)
{
	(void)arg;
	EXPECT(fake_descriptors_here() == 0);
	uses_the_cache(NULL);
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
	worker_settled(&forker);
}

/* The descriptor that the driver has just handed out is entered nowhere yet: fork has to wait for
 * it. */
START_TEST(fork_while_another_thread_pins)
{
	bool met = true;

	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
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

/* In the middle of a free, and of an eviction for a pin: with guards up and a pin under way. */
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

/* The child goes on with what its parent was in the middle of. */
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
	struct pindown_stats s;

	if (forked > 0) {
		reap(forked);
		return;
	}
	/* Check is not for us: see EXPECT(). */
	EXPECT(result == PINDOWN_OK);
	EXPECT(!region || pindown_region_is_live(region));
	pindown_put(region);
	EXPECT(pindown_stats(&s, sizeof(s), -1) == PINDOWN_OK);
	EXPECT(s.regions <= 1 && s.pins - s.unpins == s.regions);
	uses_the_cache(NULL);
	EXPECT(pindown_flush() >= 0);
	EXPECT(pindown_stats(&s, sizeof(s), -1) == PINDOWN_OK);
	EXPECT(s.regions == 0 && s.bytes == 0 && s.pins == s.unpins);
	EXPECT(fake_descriptors_here() == 0);
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
	go_on_in_both(PINDOWN_OK, NULL);
	ck_assert_int_eq(count, 4);
	pindown_put(held[0]);
	pindown_put(held[1]);
}
END_TEST

/* What the parent's other threads were at is nothing to the child. */
static struct gate other_is_at_it, other_may_go_on;

static void stay_in_a_free(void *arg)
{
	(void)arg;
	pd_guard guard = pd_end_range(AT(0), 0);
	gate_open(&other_is_at_it);
	gate_wait(&other_may_go_on);
	pd_ended(guard);
}

static void stay_in_an_unpin(void *arg)
{
	(void)arg;
	ck_assert_int_eq(pindown_invalidate(AT(0), 0), 1);
}

static void block_other(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	if (in_callback)
		return;
	in_callback = true;
	gate_open(&other_is_at_it);
	gate_wait(&other_may_go_on);
}

/* So often that a wait of two seconds each would not fit in here. */
static void uses_the_cache_often(void *arg)
{
	for (unsigned i = 0; i < 40; i++) {
		pindown_region *region;
		EXPECT(pindown_get(AT(0), 1, 0, &region) == PINDOWN_OK);
		pindown_put(region);
		EXPECT(watched_free(AT(0)) == FAKE_SUCCESS);
		watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	}
	(void)arg;
}

static void fork_while_another_stays_in(void (*stay)(void *))
{
	struct worker other;

	gate_init(&other_is_at_it);
	gate_init(&other_may_go_on);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	worker_start(&other, stay, NULL);
	gate_wait(&other_is_at_it);
	in_child(uses_the_cache_often, NULL);
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
	fork_while_another_stays_in(stay_in_an_unpin);
}
END_TEST

static void stay_here(void *arg)
{
	(void)arg;
	gate_open(&other_is_at_it);
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

/* A fork waits for the pins under way, and new ones wait for the fork; or it might wait for ever. */
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
	worker_settled(&late_pinner);
	late_pin_was_through = worker_is_done(&late_pinner);
}

START_TEST(no_new_pin_while_a_fork_waits)
{
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

/* Wherever the other threads are: the child's lock is free, its books are whole. */
START_TEST(forks_among_busy_threads)
{
	struct worker workers[2];

	for (unsigned i = 0; i < 3; i++)
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
	for (uintptr_t i = 0; i < 2; i++)
		worker_start(&workers[i], churn, (void *)i);
	for (unsigned round = 0; round < 60; round++) {
		get_and_put(AT(0), 1);
		in_child(churned_child, NULL);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 2; i++)
		worker_join(&workers[i]);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: fork");
	TCase *tc = tcase_create("what the child has");

	tcase_add_checked_fixture(tc, begin_with_fork_handlers, cache_end);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	tcase_add_test(tc, a_child_has_no_pin);
	tcase_add_test(tc, a_child_has_no_kept_pin_either);
	tcase_add_test(tc, a_living_child_keeps_no_memory_alive);
	tcase_add_test(tc, a_childs_put_of_a_parents_region_is_ignored);
	tcase_add_test(tc, a_childs_late_put_of_a_parents_region_is_ignored);
	tcase_add_test(tc, a_child_begins_anew);
	tcase_add_test(tc, a_grandchild_begins_anew);
	tcase_add_test(tc, many_forks);
	tcase_add_test(tc, a_program_that_is_executed_inherits_nothing);
	tc = cache_case(suite, "told late");
	tcase_add_test(tc, a_child_that_is_told_late);
	tc = tcase_create("while other threads are at it");
	tcase_add_checked_fixture(tc, begin_with_fork_handlers, cache_end);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	tcase_add_test(tc, fork_while_another_thread_pins);
	tcase_add_test(tc, fork_in_a_callback);
	tcase_add_test(tc, a_child_goes_on_with_an_eviction);
	tcase_add_test(tc, a_child_goes_on_with_an_invalidation);
	tcase_add_test(tc, fork_while_another_thread_frees);
	tcase_add_test(tc, fork_while_another_thread_unpins);
	tcase_add_test(tc, fork_while_another_thread_is_stuck_in_a_pin);
	tcase_add_test(tc, no_new_pin_while_a_fork_waits);
	tcase_add_test(tc, forks_among_busy_threads);
	return run_suite(suite);
}
