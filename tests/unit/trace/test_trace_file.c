// SPDX-License-Identifier: MIT
/* The writer's file: its space, its descriptor. test_trace_name has its name. */
#define _GNU_SOURCE
#include "tests/unit/support/trace_test.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache/base/thread/thread.h"
#include "cache/trace/writer/file.h"
#include "cache/trace/journal/journal.h"

/* ---- no space ------------------------------------------------------------------------------- */

enum { MANY = 50000 };

static void write_into_little_room(void)
{
	struct rlimit limit = {400000, RLIM_INFINITY};

	pdn_trace_open();
	setrlimit(RLIMIT_FSIZE, &limit);
	for (uint64_t i = 0; i < MANY; i++)
		call_at(i);
}

START_TEST(file_size_limit)
{
	int child;

	ck_assert_int_eq(in_child(write_into_little_room, &child), 0);
	ck_assert_ptr_nonnull(strstr(printed(), "File too large"));
	ck_assert_ptr_nonnull(strstr(printed(), "events are lost, and counted"));
	ck_assert_ptr_eq(strchr(printed(), '\n'), strrchr(printed(), '\n'));
	read_back("t.pdt");
	ck_assert_uint_gt(counters.lost, 0);
	ck_assert_uint_gt(count_events(PDN_EV_CALL), 1000);
	ck_assert_uint_eq(count_events(PDN_EV_CALL) + counters.lost, MANY);
	ck_assert_uint_eq(count_events(PDN_EV_LOST), 1);
	ck_assert_uint_eq(events[event_count - 1].record.lost, counters.lost);
}
END_TEST

static void have_the_signal_waiting(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGXFSZ);
	sigprocmask(SIG_BLOCK, &set, NULL);
	raise(SIGXFSZ);
	write_into_little_room();
	sigpending(&set);
	_exit(sigismember(&set, SIGXFSZ) ? 0 : 1);
}

/* The program's own signal, which it has blocked. */
START_TEST(the_programs_signal_stays)
{
	ck_assert_int_eq(in_child(have_the_signal_waiting, NULL), 0);
	ck_assert_ptr_nonnull(strstr(printed(), "File too large"));
}
END_TEST

/* Waits for twenty milliseconds of the clock that the writer uses. */
static void wait_for_coarse_clock(void)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &begin);
	do {
		usleep(1000);
		clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < 20000000);
}

/* When there is space again, an event says where the gap is and how large. */
START_TEST(room_again)
{
	struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	uint64_t lost;
	unsigned i = 0;

	write_into_little_room();
	lost = pdn_self()->counters->lost_events;
	ck_assert_uint_gt(lost, 0);
	setrlimit(RLIMIT_FSIZE, &none);
	wait_for_coarse_clock(); /* the writer looks for space only now and then */
	call_at(MANY);
	ck_assert_uint_eq(pdn_self()->counters->lost_events, lost);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, MANY - lost + 2);
	while (events[i].record.addr == i && events[i].record.event == PDN_EV_CALL)
		i++;
	ck_assert_uint_eq(i, MANY - lost);
	ck_assert_int_eq(events[i].record.event, PDN_EV_LOST);
	ck_assert_uint_eq(events[i].record.lost, lost);
	ck_assert_uint_eq(events[i + 1].record.addr, MANY);
}
END_TEST

START_TEST(no_room_from_the_start)
{
	struct rlimit limit = {1000, RLIM_INFINITY};

	setrlimit(RLIMIT_FSIZE, &limit);
	pdn_trace_open();
	ck_assert_uint_eq(pdn_trace_mask, 0);
	call_at(1);
	ck_assert_ptr_nonnull(strstr(printed(), "File too large; nothing is traced"));
	ck_assert(!exists(own_name(getpid(), "")));
}
END_TEST

/* A file system of one MiB, in a mount namespace of its own. */
static void write_into_a_small_disk(void)
{
	if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		_exit(77);
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("none", folder, "tmpfs", 0, "size=1m") != 0 || chdir(folder) != 0)
		_exit(77);
	pdn_trace_open();
	for (uint64_t i = 0; i < MANY; i++)
		call_at(i);
	ck_assert_ptr_nonnull(strstr(printed(), "No space left on device"));
	read_back("t.pdt");
	ck_assert_uint_gt(counters.lost, 0);
	ck_assert_uint_gt(count_events(PDN_EV_CALL), 1000);
	ck_assert_uint_eq(count_events(PDN_EV_CALL) + counters.lost, MANY);
	/* no other process sees this file, so the journal would be kept for a day */
	pdn_journal_end();
}

START_TEST(full_disk)
{
	int result = in_child(write_into_a_small_disk, NULL);

	if (result == 77) {
		skip_test("no tmpfs can be mounted here");
		return;
	}
	ck_assert_msg(result == 0, "%d: %s", result, printed());
}
END_TEST

/* ---- a file system that copies on write ------------------------------------------------------ */

/* Exits with 77 if there are no tools for it, or no right to use them. */
static void mount_btrfs(void)
{
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    system("exec >/dev/null 2>&1; PATH=$PATH:/sbin:/usr/sbin; truncate -s 128M image && "
		   "mkfs.btrfs -q --mixed image && mkdir disk && mount -o loop image disk") != 0 ||
	    chdir("disk") != 0)
		_exit(77);
}

static void fill_disk(void)
{
	static char block[65536];
	size_t bytes = sizeof(block);
	int fd = open("filler", O_WRONLY | O_CREAT, 0600);

	memset(block, 1, sizeof(block));
	sync();
	while (bytes >= 512) {
		while (write(fd, block, bytes) > 0)
			;
		fsync(fd);
		bytes /= 2;
	}
	close(fd);
	sync();
}

/* There, written data needs new space for each page that is written again. */
static void write_into_a_full_btrfs(void)
{
	mount_btrfs();
	pdn_trace_open();
	for (uint64_t i = 0; i < 100; i++)
		call_at(i);
	fill_disk();
	for (uint64_t i = 100; i < MANY; i++) {
		call_at(i);
		pdn_count(&pdn_self()->counters->hits);
	}
	expect_one_line("No space left on device");
	read_back("t.pdt");
	ck_assert_uint_gt(counters.lost, 0);
	ck_assert_uint_ge(count_events(PDN_EV_CALL), 100);
	ck_assert_uint_eq(count_events(PDN_EV_CALL) + counters.lost, MANY);
	ck_assert_uint_eq(counters.hits, MANY - 100);
	unlink("filler");
	sync();
	wait_for_coarse_clock();
	call_at(MANY);
	pdn_trace_close();
	ck_assert_uint_eq(pdn_self()->counters->lost_events, counters.lost);
}

START_TEST(full_btrfs)
{
	int child, result = in_child(write_into_a_full_btrfs, &child);

	if (result == 77) {
		skip_test("no btrfs can be made and mounted here");
		return;
	}
	ck_assert_msg(result == 0, "%d: %s", result, printed());
	ck_assert_uint_eq(journals_of(child), 0);
}
END_TEST

/* ---- another process makes the file shorter -------------------------------------------------- */

static const long lengths[] = {0, 1, 100, 40000, 65536, 100000};
static long new_length;

static void cut_the_parents(void)
{
	if (truncate(own_name(getppid(), ""), new_length) != 0)
		_exit(1);
}

static void trace_and_be_cut(void)
{
	pdn_trace_open();
	for (uint64_t i = 0; i < 100; i++)
		call_at(i);
	ck_assert_int_eq(in_child(cut_the_parents, NULL), 0);
	ck_assert_str_eq(printed(), "");
}

static long file_length(void)
{
	struct stat status;

	ck_assert_int_eq(stat(own_name(getpid(), ""), &status), 0);
	return status.st_size;
}

static void write_into_a_cut_file(void)
{
	trace_and_be_cut();
	for (uint64_t i = 0; i < MANY; i++) {
		call_at(i);
		pdn_count(&pdn_self()->counters->hits);
	}
	expect_one_line("the file was truncated: nothing is traced from here on");
	ck_assert_uint_eq(pdn_trace_mask, 0);
	ck_assert_uint_eq(pdn_self()->counters->hits, MANY);
	pdn_trace_close();
	expect_one_line("the file was truncated");
	ck_assert_int_eq(file_length(), new_length);
}

START_TEST(somebody_cuts_the_file)
{
	int child;

	new_length = lengths[_i];
	ck_assert_int_eq(in_child(write_into_a_cut_file, &child), 0);
	ck_assert_uint_eq(journals_of(child), 0);
}
END_TEST

static void end_with_a_cut_file(void)
{
	trace_and_be_cut();
	pdn_count(&pdn_self()->counters->hits);
	pdn_trace_close();
	expect_one_line("the file was truncated");
	ck_assert_int_eq(file_length(), new_length);
}

/* Found at the end, because nothing was written since. */
START_TEST(somebody_cuts_the_file_of_an_idle_process)
{
	int child;

	new_length = lengths[_i];
	ck_assert_int_eq(in_child(end_with_a_cut_file, &child), 0);
	ck_assert_uint_eq(journals_of(child), 0);
}
END_TEST

/* A child gets a trace of its own, although its parent's trace has ended. */
static void write_in_child(void)
{
	pdn_thread_fork_child();
	pdn_trace_fork_child();
	call_at(1);
	pdn_trace_close();
}

START_TEST(a_child_of_one_whose_file_was_cut)
{
	int child;

	trace_and_be_cut();
	for (uint64_t i = 0; i < MANY; i++)
		call_at(i);
	ck_assert_uint_eq(pdn_trace_mask, 0);
	ck_assert_int_eq(in_child(write_in_child, &child), 0);
	read_back(own_name(child, ""));
	ck_assert_uint_eq(event_count, 1);
}
END_TEST

/* ---- descriptors ---------------------------------------------------------------------------- */

START_TEST(the_descriptor_is_out_of_the_way)
{
	int before = dup(0), after;

	close(before);
	pdn_trace_open();
	call_at(1);
	after = dup(0);
	ck_assert_int_eq(before, after);
	for (int fd = 3; fd < 2000; fd++) {
		int flags = fcntl(fd, F_GETFD);
		char link[40], target[PATH_MAX] = "";

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		if (flags >= 0 && readlink(link, target, sizeof(target) - 1) > 0 &&
		    strstr(target, ".pdt"))
			ck_assert(flags & FD_CLOEXEC);
	}
}
END_TEST

START_TEST(a_program_closes_all_descriptors)
{
	pdn_trace_open();
	call_at(0);
	for (int fd = 3; fd < 4096; fd++)
		if (fd != heard)
			close(fd);
	for (uint64_t i = 1; i < MANY; i++)
		call_at(i);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, MANY);
	ck_assert_uint_eq(counters.lost, 0);
}
END_TEST

/* The number then belongs to another file, which is neither written to nor closed. */
START_TEST(another_file_has_our_number)
{
	struct stat status;
	int other;

	pdn_trace_open();
	call_at(0);
	put_file("other", "precious");
	other = open("other", O_RDWR);
	for (int fd = 3; fd < 1100; fd++)
		if (fd != heard && fd != other && fcntl(fd, F_GETFD) >= 0)
			dup2(other, fd);
	for (uint64_t i = 1; i < MANY; i++)
		call_at(i);
	ck_assert_int_eq(fstat(other, &status), 0);
	ck_assert_int_eq(status.st_size, 8);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, MANY);
}
END_TEST

START_TEST(the_file_is_gone)
{
	pdn_trace_open();
	call_at(0);
	unlink(own_name(getpid(), ""));
	for (int fd = 3; fd < 4096; fd++)
		if (fd != heard)
			close(fd);
	for (uint64_t i = 1; i < MANY; i++)
		call_at(i);
	ck_assert_uint_gt(pdn_self()->counters->lost_events, 0);
	ck_assert_ptr_nonnull(strstr(printed(), "the file is no longer there"));
	ck_assert_ptr_eq(strchr(printed(), '\n'), strrchr(printed(), '\n'));
}
END_TEST

/*
 * A removed file is still written to while its descriptor is open: another process may have it
 * open.
 */
START_TEST(the_file_is_removed)
{
	int fd;

	pdn_trace_open();
	call_at(0);
	fd = open(own_name(getpid(), ""), O_RDONLY);
	unlink(own_name(getpid(), ""));
	for (uint64_t i = 1; i < MANY; i++)
		call_at(i);
	ck_assert_uint_eq(pdn_self()->counters->lost_events, 0);
	close(fd);
}
END_TEST

/* ---- the first three descriptors ------------------------------------------------------------ */

static void trace_without_standard_error(void)
{
	struct rlimit few = {64, 64};

	if (setrlimit(RLIMIT_NOFILE, &few) != 0 || close(STDERR_FILENO) != 0)
		_exit(2);
	pdn_trace_open();
	if (!pdn_trace_file_name() || fcntl(STDERR_FILENO, F_GETFD) >= 0)
		_exit(1);
	pdn_trace_close();
}

/* The program's messages don't go into the trace. */
START_TEST(standard_error_is_closed)
{
	ck_assert_int_eq(in_child(trace_without_standard_error, NULL), 0);
}
END_TEST

static void trace_with_no_higher_number(void)
{
	struct rlimit one = {1, 1};

	if (close(STDIN_FILENO) != 0 || setrlimit(RLIMIT_NOFILE, &one) != 0)
		_exit(2);
	pdn_trace_open();
	if (pdn_trace_file_name() || fcntl(STDIN_FILENO, F_GETFD) >= 0)
		_exit(1);
}

START_TEST(no_higher_number)
{
	int child;

	ck_assert_int_eq(in_child(trace_with_no_higher_number, &child), 0);
	expect_one_line("Too many open files; nothing is traced");
	ck_assert(!exists(own_name(child, "")));
}
END_TEST

/* ---- all ------------------------------------------------------------------------------------ */

int main(void)
{
	Suite *suite = suite_create("trace file");
	TCase *cut_case;

	add_case(suite, "space",
		 (const TTest *const[]){file_size_limit, room_again, no_room_from_the_start,
					the_programs_signal_stays, full_disk, NULL});
	cut_case = add_case(
		suite, "cut",
		(const TTest *const[]){full_btrfs, a_child_of_one_whose_file_was_cut, NULL});
	tcase_add_loop_test(cut_case, somebody_cuts_the_file, 0,
			    sizeof(lengths) / sizeof(lengths[0]));
	tcase_add_loop_test(cut_case, somebody_cuts_the_file_of_an_idle_process, 0,
			    sizeof(lengths) / sizeof(lengths[0]));
	add_case(suite, "descriptors",
		 (const TTest *const[]){
			 the_descriptor_is_out_of_the_way, a_program_closes_all_descriptors,
			 another_file_has_our_number, the_file_is_gone, the_file_is_removed,
			 standard_error_is_closed, no_higher_number, NULL});
	return run_suite(suite);
}
