/* SPDX-License-Identifier: MIT */
/*
 * fork: the child holds no pin, keeps no memory alive, and is off if the parent had used GPU
 * memory; the parent notices nothing. [UCX], [gdrcopy] fork while mapped.
 *
 * The fake driver's exports are pipes, so it sees when the last descriptor of one has been closed
 * in any process: if a child kept one, the parent would see an open export.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>

#include "cache/base/thread/thread.h"
#include "cache/hit/index.h"
#include "tests/unit/support/fork_test.h"

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
	EXPECT(pdn_occupied == 0); /* so that a free costs as little as in a new process */
	EXPECT(pindown_flush() == 0);
	EXPECT(pindown_invalidate(AT(0), GIB(1)) == 0);
	EXPECT(pindown_get(AT(0), 1, 0, &(pindown_region *){NULL}) == PINDOWN_ERR_NO_CUDA);
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

/* A byte each way: the child has started (its fork handler has run), and may end. */
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

/*
 * The child lives on while the parent frees: the memory must be gone at the free, not at the
 * child's end.
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

static unsigned ends;

static void count_ends(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	ends++;
}

static void uses_the_cache_anew(void *arg)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	uses_the_cache(arg);
}

static void its_subscriber_is_called(void *arg)
{
	uses_the_cache_anew(arg);
	EXPECT(ends == 3);
}

static void in_grandchild(void (*fn)(void *), void *arg)
{
	pid_t grandchild = fork();
	int status;

	if (grandchild == 0) {
		fn(arg);
		_exit(0);
	}
	EXPECT(waitpid(grandchild, &status, 0) == grandchild && status == 0);
}

static void puts_regions_it_does_not_hold(void *arg)
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
	in_child(puts_regions_it_does_not_hold, held);
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert_int_eq(pindown_flush(), 0);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(stats().kept_regions, 1);
	pindown_put(held);
}
END_TEST

/* Not even when nothing else is pinned in the child, so that the tables might be given back. */
static void puts_late(void *arg)
{
	EXPECT(pindown_flush() == 0);
	pindown_put(arg);
	EXPECT(pindown_flush() == 0);
	EXPECT(!pindown_region_is_live(arg));
	pindown_put(arg);
	is_off(NULL);
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

START_TEST(a_child_is_off)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pindown_region *held = must_get(AT(0), 1);
	in_child(is_off, NULL);
	pindown_put(held);
	in_child(is_off, NULL);
	ck_assert(is_cached(AT(0), 1));
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	in_child(is_off, NULL);
}
END_TEST

/* Also if it has looked for GPU memory where there was none, or has subscribed. */
START_TEST(a_child_of_a_process_that_used_no_gpu_memory_begins)
{
	pindown_region *region;

	in_child(uses_the_cache_anew, NULL);
	ck_assert_int_eq(pindown_get(AT(0), 1, 0, &region), PINDOWN_ERR_NOT_DEVICE);
	ck_assert_int_eq(pindown_flush(), 0);
	in_child(uses_the_cache_anew, NULL);
	ck_assert_int_gt(pindown_subscribe(count_ends, NULL), 0);
	in_child(uses_the_cache_anew, NULL);
	ck_assert_uint_eq(ends, 0);
	in_child(its_subscriber_is_called, NULL);
}
END_TEST

static void forks_again(void *arg)
{
	is_off(NULL);
	in_grandchild(is_off, NULL);
	pindown_put(arg);
	is_off(NULL);
}

START_TEST(a_grandchild_is_off)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pindown_region *held = must_get(AT(0), 1);
	in_child(forks_again, held);
	pindown_put(held);
	ck_assert(is_cached(AT(0), 1));
}
END_TEST

static void begins_and_forks(void *arg)
{
	pindown_region *held = NULL;

	in_grandchild(uses_the_cache_anew, arg);
	uses_the_cache_anew(arg);
	EXPECT(pindown_get(AT(0), 1, 0, &held) == PINDOWN_OK);
	in_grandchild(puts_regions_it_does_not_hold, held);
	in_grandchild(is_off, NULL);
	EXPECT(pindown_region_is_live(held));
	pindown_put(held);
	EXPECT(pindown_flush() == 1);
}

START_TEST(a_child_that_begins_is_a_parent_as_any_other)
{
	pindown_flush();
	in_child(begins_and_forks, NULL);
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
		in_child(puts_regions_it_does_not_hold, held[round % 8]);
		for (unsigned i = 0; i < 8; i++)
			pindown_put(held[i]);
		ck_assert_int_eq(watched_free(AT(round % 8)), FAKE_SUCCESS);
		ck_assert_uint_eq(fake_open_exports(), 7);
		watched_alloc(AT(round % 8), MIB(2), FAKE_LINEAR);
	}
}
END_TEST

/* exec closes descriptors that the handlers could not. */
START_TEST(a_program_that_is_executed_inherits_nothing)
{
	char script[128];

	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pindown_region *region = must_get(AT(0), 1);
	snprintf(script, sizeof(script), "test ! -e /proc/self/fd/%d", fd_of(region));
	/* it has no handlers, and runs on the parent's memory until it calls exec */
	pid_t child = vfork();
	if (child == 0) {
		execl("/bin/sh", "sh", "-c", script, (char *)NULL);
		_exit(127);
	}
	reap(child);
	ck_assert(is_cached(AT(0), 1));
	pindown_put(region);
}
END_TEST

/* _Fork() runs no handlers; hook/ notifies the child. */
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
		pdn_fork_child();
		has_nothing(fds);
		_exit(0);
	}
	reap(child);
	ck_assert(is_cached(AT(0), 1));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: fork");
	TCase *tc = fork_case(suite, "what the child has");

	tcase_add_test(tc, a_child_has_no_pin);
	tcase_add_test(tc, a_child_has_no_kept_pin_either);
	tcase_add_test(tc, a_living_child_keeps_no_memory_alive);
	tcase_add_test(tc, a_childs_put_of_a_parents_region_is_ignored);
	tcase_add_test(tc, a_childs_late_put_of_a_parents_region_is_ignored);
	tcase_add_test(tc, a_child_is_off);
	tcase_add_test(tc, a_child_of_a_process_that_used_no_gpu_memory_begins);
	tcase_add_test(tc, a_grandchild_is_off);
	tcase_add_test(tc, a_child_that_begins_is_a_parent_as_any_other);
	tcase_add_test(tc, many_forks);
	tcase_add_test(tc, a_program_that_is_executed_inherits_nothing);
	tc = cache_case(suite, "told late");
	tcase_add_test(tc, a_child_that_is_told_late);
	return run_suite(suite);
}
