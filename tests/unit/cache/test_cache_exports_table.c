/* SPDX-License-Identifier: MIT */
/*
 * The table of the program's own dma-bufs: it takes as many as are open, forgets those that were
 * closed, finds those of memory that ends, and serves several threads. A child's is empty.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/dmabuf/foreign_table.h"
#include "tests/unit/support/exports_test.h"
#include "tests/unit/support/sanitizers.h"
#include "tests/unit/support/syscalls.h"

/* ---- many ---- */

static void export_again(int fd)
{
	int again = dup(fd);

	export_as(again, BASE, SIZE);
	close(again);
}

/* A driver that gives the same file for each export of a range. */
START_TEST(one_file_exported_and_closed_without_end)
{
	int fd = export_new(BASE), by, again;

	for (unsigned i = 0; i < 5000; i++)
		export_again(fd);
	ck_assert_uint_le(pdn_foreign_count(), 2);
	pdn_export_imported(fd, &by, NULL);
	again = dup(fd);
	export_as(again, BASE, SIZE);
	ck_assert_uint_le(pdn_foreign_count(), 3);
	export_again(fd);
	assert_stands_for(fd, BASE, BASE);
	pdn_export_let_go(&by);
	for (uint32_t n = pdn_foreign_after(0); n; n = pdn_foreign_after(n))
		ck_assert_uint_eq(pdn_foreign_at(n)->imports, 0);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert(!any_remembered());
}
END_TEST

/* Closed ones are forgotten when there is room for no more, long before they are many. */
START_TEST(little_room)
{
	struct rlimit limit;

	if (UNDER_SANITIZER) {
		skip_test("a sanitizer needs all address space");
		return;
	}
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
	limit.rlim_cur = used_address_space() + MIB(6);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	fake_alloc(BASE, SIZE, FAKE_LINEAR);
	for (unsigned i = 0; i < 5000; i++) {
		int fd = a_file();

		export_as(fd, BASE, SIZE);
		assert_stands_for(fd, BASE, BASE);
		close(fd);
	}
}
END_TEST

/* All open at once: positions in one file. */
START_TEST(ten_thousand)
{
	const struct rlimit enough = {11000, 11000};
	char path[32];
	int fd[10000], first = a_file();

	if (setrlimit(RLIMIT_NOFILE, &enough) != 0) {
		skip_test("this process can't have 10000 descriptors");
		return;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", first);
	fake_alloc(BASE, 10000 * KIB(64), FAKE_LINEAR);
	for (int i = 0; i < 10000; i++) {
		fd[i] = open(path, O_RDWR);
		ck_assert_int_eq(lseek(fd[i], i, SEEK_SET), i);
		export_as(fd[i], BASE + (uint64_t)i * KIB(64), KIB(64));
	}
	for (int i = 0; i < 10000; i++)
		assert_stands_for(fd[i], BASE + (uint64_t)i * KIB(64), BASE);
	ck_assert_uint_eq(pdn_foreign_count(), 10000);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	ck_assert_uint_eq(pdn_foreign_count(), 0);
	ck_assert(!is_known(fd[5000], 0, 1));
}
END_TEST

static unsigned open_descriptors(void)
{
	unsigned count = 0;

	for (int fd = 0; fd < 1000; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* ---- a move during a search ---- */

static int to_move = -1, moved = -1;

/*
 * As another thread may do it, a descriptor moves to a lower number while the numbers that were
 * listed are looked at.
 */
bool play_syscall(long number, const long args[6], long *result)
{
	if (number != SYS_getdents64 || to_move < 0)
		return false;
	*result = __real_pdn_system_call(number, args[0], args[1], args[2], 0, 0, 0);
	if (*result > 0) {
		moved = dup(to_move);
		close(to_move);
		to_move = -1;
	}
	return true;
}

START_TEST(one_that_moves_during_a_search)
{
	int first = export_new(BASE + SIZE);

	to_move = fcntl(first, F_DUPFD_CLOEXEC, 100);
	ck_assert_int_ge(to_move, 100);
	close(first);
	close(export_new(BASE));
	for (unsigned i = 0; i < 3000; i++) {
		int fd = a_file();

		export_as(fd, BASE, SIZE);
		close(fd);
	}
	ck_assert_int_ge(moved, 0);
	ck_assert_int_lt(moved, 100);
	assert_stands_for(moved, BASE + SIZE, BASE + SIZE);
}
END_TEST

/* A program that closes each after its import: the open ones and the imported ones stay. */
START_TEST(closed_ones_are_forgotten_as_their_number_grows)
{
	int kept = export_new(BASE + SIZE), duplicate, by, fd;
	unsigned before;

	fd = export_new(BASE);
	duplicate = dup(fd);
	close(fd);
	fd = export_new(BASE + 2 * SIZE);
	pdn_export_imported(fd, &by, NULL);
	close(fd);
	before = open_descriptors();
	for (unsigned i = 0; i < 20000; i++) {
		fd = a_file();
		export_as(fd, BASE, SIZE);
		close(fd);
		ck_assert_uint_le(pdn_foreign_count(), 1024);
	}
	ck_assert_uint_eq(open_descriptors(), before);
	assert_stands_for(kept, BASE + SIZE, BASE + SIZE);
	assert_stands_for(duplicate, BASE, BASE);
	ck_assert_int_ne(pdn_foreign_overlapping(BASE + 2 * SIZE, BASE + 3 * SIZE), 0);
}
END_TEST

/* All are found by address, whatever went and came before. */
START_TEST(the_end_of_memory_finds_all_of_it_and_nothing_else)
{
	const unsigned count = 3000;
	unsigned left = count;
	int fd = a_file();

	for (unsigned i = 0; i < count; i++) {
		uint64_t addr = BASE + (i * 7919u % count) * SIZE;

		fake_alloc(addr, SIZE, FAKE_LINEAR);
		export_as(fd, addr, SIZE);
	}
	ck_assert_uint_eq(pdn_foreign_count(), count);
	for (unsigned i = 0; i < count; i++) {
		uint64_t addr = BASE + (i * 6007u % count) * SIZE;

		ck_assert(pdn_foreign_may_overlap(addr + SIZE - 1, addr + SIZE));
		ck_assert_int_eq(watched_free(addr), FAKE_SUCCESS);
		ck_assert_uint_eq(pdn_foreign_count(), --left);
		ck_assert_uint_eq(pdn_foreign_overlapping(addr, addr + SIZE), 0);
		ck_assert(!pdn_foreign_may_overlap(addr, addr + SIZE));
	}
	ck_assert(!any_remembered());
}
END_TEST

/* Memory whose free was not seen, and other memory in its place. */
START_TEST(one_that_reaches_over_many_others)
{
	const uint64_t last = BASE + 600 * SIZE;
	int fd = a_file();

	for (unsigned i = 0; i < 500; i++)
		export_as(fd, BASE + (i * 7u % 500) * SIZE, i == 100 ? 700 * SIZE : SIZE);
	ck_assert_int_ne(pdn_foreign_overlapping(last, last + 1), 0);
	ck_assert(pdn_foreign_may_overlap(last, last + 1));
	pdn_foreign_remove(pdn_foreign_overlapping(last, last + 1));
	ck_assert_uint_eq(pdn_foreign_overlapping(last, last + 1), 0);
	ck_assert(!pdn_foreign_may_overlap(last, last + 1));
	/* The way to the others does not go by how far it reached. */
	for (unsigned i = 0; i < 500; i++) {
		uint64_t at = BASE + (i * 7u % 500) * SIZE;

		ck_assert_int_eq(pdn_foreign_overlapping(at, at + 1) != 0, i != 100);
		ck_assert_int_eq(pdn_foreign_may_overlap(at, at + 1), i != 100);
	}
	ck_assert_uint_eq(pdn_foreign_count(), 499);
}
END_TEST

/* ---- processes and threads ---- */

START_TEST(a_child_knows_none)
{
	int fd = export_new(BASE), status;
	pid_t child = fork();

	if (child == 0) {
		bool none;

		pdn_fork_child();
		none = !any_remembered() && !is_known(fd, 0, 1);
		_exit(none && pdn_foreign_count() == 0 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	assert_stands_for(fd, BASE, BASE);
}
END_TEST

static bool enough;

/* Until it is told that it is enough. */
static void export_without_end(void *arg)
{
	(void)arg;
	for (unsigned i = 0; !__atomic_load_n(&enough, __ATOMIC_RELAXED); i++) {
		int fd = export_new(BASE + i % 3 * SIZE);

		close(fd);
		ck_assert_int_eq(watched_free(BASE + i % 3 * SIZE), FAKE_SUCCESS);
	}
}

/* In the child of a fork in the middle of anything: it begins with none, and can remember one. */
static int begins_with_none(int fd)
{
	struct pdn_export export = {
		.memory = {.base = BASE + GIB(1), .end = BASE + GIB(1) + SIZE},
		.begin = BASE + GIB(1),
		.length = SIZE,
		.fd = fd,
	};
	struct pdn_export found;

	pdn_fork_child();
	if (any_remembered() || pdn_foreign_count() || !pdn_file_of(fd, &export.file) ||
	    pdn_foreign_may_overlap(0, UINT64_MAX))
		return 1;
	pdn_lock();
	pdn_foreign_add(&export);
	pdn_unlock();
	if (pdn_foreign_peek(&export.file, &found) != PDN_TRUE || found.begin != export.begin)
		return 2;
	return pdn_foreign_may_overlap(BASE + GIB(1), BASE + GIB(1) + 1) ? 0 : 3;
}

START_TEST(children_of_a_process_that_exports)
{
	struct worker worker;
	int fd = a_file(), status;

	worker_start(&worker, export_without_end, NULL);
	for (unsigned i = 0; i < 100; i++) {
		pid_t child;

		pdn_fork_prepare();
		child = fork();
		if (child == 0)
			_exit(begins_with_none(fd));
		pdn_fork_parent();
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);
	}
	__atomic_store_n(&enough, true, __ATOMIC_RELAXED);
	worker_join(&worker);
}
END_TEST

static void export_and_free(void *arg)
{
	uint64_t at = BASE + (uintptr_t)arg * GIB(1);

	for (unsigned i = 0; i < 2000; i++) {
		uint64_t addr = at + i % 3 * SIZE;
		int fd = export_new(addr);

		assert_stands_for(fd, addr, addr);
		ck_assert_int_eq(watched_free(addr), FAKE_SUCCESS);
		ck_assert(!is_known(fd, 0, 1));
		close(fd);
	}
}

/* Exported, and closed, and never freed: searches for closed ones run at the same time. */
static void export_and_close(void *arg)
{
	uint64_t addr = BASE + (uintptr_t)arg * GIB(1);
	int kept = export_new(addr);

	for (unsigned i = 0; i < 4000; i++) {
		int fd = a_file();

		export_as(fd, addr, SIZE);
		close(fd);
	}
	assert_stands_for(kept, addr, addr);
}

START_TEST(threads)
{
	struct worker worker[4];

	for (uintptr_t i = 0; i < 4; i++)
		worker_start(&worker[i], i % 2 ? export_and_free : export_and_close, (void *)i);
	for (unsigned i = 0; i < 4; i++)
		worker_join(&worker[i]);
	for (uintptr_t i = 0; i < 4; i += 2)
		ck_assert_int_eq(watched_free(BASE + i * GIB(1)), FAKE_SUCCESS);
	ck_assert_uint_eq(pdn_foreign_count(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: the table of the program's own dma-bufs");
	TCase *tc = cache_case(suite, "many");

	tcase_add_test(tc, one_file_exported_and_closed_without_end);
	tcase_add_test(tc, little_room);
	tcase_add_test(tc, ten_thousand);
	tcase_add_test(tc, closed_ones_are_forgotten_as_their_number_grows);
	tcase_add_test(tc, one_that_moves_during_a_search);
	tcase_add_test(tc, the_end_of_memory_finds_all_of_it_and_nothing_else);
	tcase_add_test(tc, one_that_reaches_over_many_others);
	tc = cache_case(suite, "processes and threads");
	tcase_add_test(tc, a_child_knows_none);
	tcase_add_test(tc, children_of_a_process_that_exports);
	tcase_add_test(tc, threads);
	return run_suite(suite);
}
