// SPDX-License-Identifier: MIT
/*
 * Events that have not been written into the file yet: they are kept however the process ends, and
 * a later process or the command saves them.
 */
#define _GNU_SOURCE
#include "tests/unit/support/trace_test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/trace/journal.h"
#include "cache/base/thread/thread.h"
#include "cache/trace/writer/file.h" /* the command has one too */
#include "cache/trace/journal/rescue.h"

/*
 * Separates this program from the other processes of the machine, if that is allowed: traced
 * processes rescue the journals of all dead processes, and so they would take those that the tests
 * here count.
 */
__attribute__((constructor)) static void be_apart(void)
{
	unshare(CLONE_NEWIPC);
}

enum { FEW = 100, MANY = 5000 };

static void write_some(uint64_t first, uint64_t count)
{
	for (uint64_t i = first; i < first + count; i++) {
		call_at(i);
		pdn_count(&pdn_self()->counters->hits);
	}
}

static void expect_all(uint64_t count)
{
	ck_assert_uint_eq(event_count, count);
	ck_assert_uint_eq(counters.hits, count);
	ck_assert_uint_eq(counters.lost, 0);
	for (uint64_t i = 0; i < count; i++)
		ck_assert_uint_eq(events[i].record.addr, i);
}

/* Reads a copy of the file alone, without the journal. */
static void read_copy_back(int pid)
{
	char command[200];

	snprintf(command, sizeof(command), "cp %s copy.pdt", own_name(pid, ""));
	ck_assert_int_eq(system(command), 0);
	read_back("copy.pdt");
	unlink("copy.pdt");
}

/* ---- however the process ends ---------------------------------------------------------------- */

static void leave(void)
{
	_exit(3);
}

static void run_another(void)
{
	execl("/bin/sh", "sh", "-c", "exit 3", NULL);
}

static void crash(void)
{
	raise(SIGSEGV);
}

static void be_killed(void)
{
	kill(getpid(), SIGKILL);
}

static void be_terminated(void)
{
	raise(SIGTERM);
}

static const struct {
	void (*end)(void);
	int status;
	/* few events, all of them in memory; and many, of which only the last ones are */
	uint64_t count;
} ends[] = {
	{be_killed, -SIGKILL, FEW},
	{be_killed, -SIGKILL, MANY},
	{be_terminated, -SIGTERM, FEW},
	{be_terminated, -SIGTERM, MANY},
	{abort, -SIGABRT, FEW},
	{abort, -SIGABRT, MANY},
	{crash, -SIGSEGV, FEW},
	{crash, -SIGSEGV, MANY},
	{leave, 3, FEW},
	{leave, 3, MANY},
	{run_another, 3, FEW},
	{run_another, 3, MANY},
	{pdn_trace_close, 0, FEW},
	{pdn_trace_close, 0, MANY},
};
static unsigned this_end;

static void write_and_end(void)
{
	struct rlimit no_core = {0};

	setrlimit(RLIMIT_CORE, &no_core);
	signal(SIGSEGV, SIG_DFL); /* a sanitizer's */
	signal(SIGABRT, SIG_DFL);
	signal(SIGTERM, SIG_DFL); /* Check's */
	pdn_trace_open();
	write_some(0, ends[this_end].count);
	ends[this_end].end();
}

static void write_and_end_so(unsigned way, int *child)
{
	this_end = way;
	ck_assert_int_eq(in_child(write_and_end, child), ends[way].status);
}

/* The command that reads a trace adds them to the file. */
START_TEST(the_reader_saves)
{
	int child;

	write_and_end_so((unsigned)_i, &child);
	ck_assert_uint_eq(journals_of(child), ends[_i].end != pdn_trace_close);
	read_back("t.pdt");
	expect_all(ends[_i].count);
	ck_assert_uint_eq(journals_of(child), 0);
	read_copy_back(child);
	expect_all(ends[_i].count);
}
END_TEST

/* The next process that is traced does it, too. */
START_TEST(the_next_process_saves)
{
	int child;

	write_and_end_so((unsigned)_i, &child);
	pdn_trace_open();
	ck_assert_uint_eq(journals_of(child), 0);
	read_copy_back(child);
	expect_all(ends[_i].count);
}
END_TEST

/* ---- when they can't be saved ---------------------------------------------------------------- */

/* The journal stays, and is still read, as long as the file can't be written to. */
static void read_with_little_room(void)
{
	struct rlimit little = {1000, RLIM_INFINITY};

	setrlimit(RLIMIT_FSIZE, &little);
	read_back("t.pdt");
	if (event_count != FEW || counters.hits != FEW)
		_exit(1);
}

START_TEST(no_room_to_save_in)
{
	int child;

	write_and_end_so(0, &child);
	ck_assert_int_eq(in_child(read_with_little_room, NULL), 0);
	ck_assert_uint_eq(journals_of(child), 1);
	read_back("t.pdt");
	expect_all(FEW);
	ck_assert_uint_eq(journals_of(child), 0);
}
END_TEST

/* The file may have another name now: who reads it finds the journal, and saves it. */
START_TEST(the_file_was_renamed)
{
	char name[300];
	int child;

	write_and_end_so((unsigned)_i, &child);
	snprintf(name, sizeof(name), "%s", own_name(child, ""));
	ck_assert_int_eq(rename(name, "renamed.pdt"), 0);
	pdn_journal_rescue();
	ck_assert_uint_eq(journals_of(child), 1);
	read_back("renamed.pdt");
	expect_all(ends[_i].count);
	ck_assert_uint_eq(journals_of(child), 0);
	ck_assert_int_eq(rename("renamed.pdt", name), 0);
	read_copy_back(child);
	expect_all(ends[_i].count);
}
END_TEST

/* It can't be told from one that was removed. So these are kept, but not any number of them. */
START_TEST(many_files_are_gone)
{
	enum { TOO_MANY = 260, KEPT = 256 };
	unsigned left = 0;
	int children[TOO_MANY];

	if (unshare(CLONE_NEWIPC) != 0) {
		skip_test("no IPC namespace can be made here, and other tests' journals count");
		return;
	}
	for (unsigned i = 0; i < TOO_MANY; i++) {
		write_and_end_so(0, &children[i]);
		unlink(own_name(children[i], ""));
	}
	pdn_journal_rescue();
	for (unsigned i = 0; i < TOO_MANY; i++)
		left += journals_of(children[i]);
	ck_assert_uint_eq(left, KEPT);
}
END_TEST

/* Another file of that name is not touched. */
START_TEST(another_file_is_there)
{
	static char text[200000], after[sizeof(text)];
	FILE *file;
	int child;

	write_and_end_so(0, &child);
	unlink(own_name(child, ""));
	memset(text, 'x', sizeof(text) - 1);
	put_file(own_name(child, ""), text);
	pdn_journal_rescue();
	ck_assert_uint_eq(journals_of(child), 1);
	file = fopen(own_name(child, ""), "r");
	ck_assert_uint_eq(fread(after, 1, sizeof(after), file), sizeof(text) - 1);
	fclose(file);
	ck_assert_str_eq(text, after);
}
END_TEST

/* What another user may have put in its place is not followed, wherever it leads. */
START_TEST(a_link_to_the_file_is_there)
{
	char moved[300];
	int child;

	write_and_end_so(0, &child);
	snprintf(moved, sizeof(moved), "%s.moved", own_name(child, ""));
	ck_assert_int_eq(rename(own_name(child, ""), moved), 0);
	ck_assert_int_eq(symlink(moved, own_name(child, "")), 0);
	pdn_journal_rescue();
	ck_assert_uint_eq(journals_of(child), 1);
}
END_TEST

/* What was cut off does not come back. */
START_TEST(the_file_was_cut)
{
	struct stat status;
	int child;

	write_and_end_so(0, &child);
	ck_assert_int_eq(truncate(own_name(child, ""), 70000), 0);
	pdn_journal_rescue();
	ck_assert_uint_eq(journals_of(child), 0);
	ck_assert_int_eq(stat(own_name(child, ""), &status), 0);
	ck_assert_int_eq(status.st_size, 70000);
}
END_TEST

/*
 * A process that sees other files under the same names, as in a container, leaves the journal
 * alone.
 */
static void rescue_elsewhere(void)
{
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("none", folder, "tmpfs", 0, NULL) != 0)
		_exit(77);
	pdn_journal_rescue();
}

START_TEST(the_file_is_elsewhere)
{
	int child, result;

	write_and_end_so(0, &child);
	result = in_child(rescue_elsewhere, NULL);
	if (result == 77) {
		skip_test("no tmpfs can be mounted here");
		return;
	}
	ck_assert_int_eq(result, 0);
	ck_assert_uint_eq(journals_of(child), 1);
	read_back("t.pdt");
	expect_all(FEW);
}
END_TEST

static int told[2], asked[2];

static void write_when_asked(void)
{
	char any = 1;

	pdn_trace_open();
	for (uint64_t i = 0;; i++) {
		write_some(i * FEW, FEW);
		if (write(told[1], &any, 1) != 1 || read(asked[0], &any, 1) != 1)
			_exit(1);
	}
}

/* A running process keeps its journal, also while others look: its later events are not lost. */
START_TEST(a_living_process_is_left_alone)
{
	int child;
	char any;

	ck_assert_int_eq(pipe(told), 0);
	ck_assert_int_eq(pipe(asked), 0);
	child = fork();
	if (child == 0)
		write_when_asked();
	for (unsigned i = 1; i < 3; i++) {
		ck_assert_int_eq(read(told[0], &any, 1), 1);
		read_back("t.pdt");
		expect_all(i * FEW);
		ck_assert_uint_eq(journals_of(child), 1);
		ck_assert_int_eq(write(asked[1], &any, 1), 1);
	}
	ck_assert_int_eq(read(told[0], &any, 1), 1);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	read_back("t.pdt");
	expect_all(3 * FEW);
	ck_assert_uint_eq(journals_of(child), 0);
}
END_TEST

static void *write_one(void *arg)
{
	(void)arg;
	call_at(1);
	return NULL;
}

/* The file has nothing of the chunk yet, and empty units before it. */
START_TEST(a_chunk_behind_a_hole)
{
	pthread_t thread;

	uint64_t hole;
	int fd;

	pdn_trace_open();
	call_at(0);
	hole = pdn_trace_file_claim();
	ck_assert_uint_ne(hole, 0);
	ck_assert_uint_eq(pdn_trace_file_claim(), hole + PDN_TRACE_UNIT);
	ck_assert_uint_eq(pdn_trace_file_claim(), hole + 2 * PDN_TRACE_UNIT);
	pthread_create(&thread, NULL, write_one, NULL);
	pthread_join(thread, NULL);
	/* As on a file system that can't allocate space beforehand. */
	fd = open(own_name(getpid(), ""), O_RDWR);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)hole,
		      4 * PDN_TRACE_UNIT) != 0) {
		skip_test("no holes can be made in files here");
		return;
	}
	close(fd);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 2);
}
END_TEST

/*
 * A copy of the journal is merged into a file that is read later: meanwhile the thread may have
 * filled its piece and written it.
 */
START_TEST(the_file_has_more_by_now)
{
	static char before[PDN_JOURNAL_PIECE_SIZE], after[sizeof(before)];
	struct pdn_trace_header header;
	struct journal *journal;
	off_t place;
	int fd;

	pdn_trace_open();
	call_at(0);
	place = (off_t)pdn_self()->trace_piece->place - 1;
	header = read_header(own_name(getpid(), ""));
	fd = open(own_name(getpid(), ""), O_RDONLY);
	journals_look();
	journal = journal_copy(fd, own_name(getpid(), ""), &header);
	ck_assert_ptr_nonnull(journal);
	for (uint64_t i = 1; (off_t)pdn_self()->trace_piece->place - 1 == place; i++)
		call_at(i);
	ck_assert_int_eq(pread(fd, before, sizeof(before), place), sizeof(before));
	memcpy(after, before, sizeof(before));
	journal_lay_over(journal, after, sizeof(after), (uint64_t)place);
	ck_assert_int_eq(memcmp(before, after, sizeof(before)), 0);
	journal_free(journal);
	close(fd);
}
END_TEST

static size_t seen_bytes;

static bool see_events(const void *from, size_t bytes, uint64_t offset)
{
	(void)from;
	if (offset && bytes < PDN_JOURNAL_PIECE_SIZE)
		seen_bytes = bytes;
	return true;
}

/*
 * A record that a thread is writing just now does not go into the file: its end would be
 * overwritten.
 */
START_TEST(a_record_under_way)
{
	size_t used;

	pdn_trace_open();
	for (uint64_t i = 0; i < 3; i++)
		call_at(i);
	used = (size_t)(pdn_self()->trace_at - pdn_self()->trace_memory);
	((uint64_t *)(void *)pdn_self()->trace_at)[1] = 5;
	ck_assert(pdn_journal_write_all(see_events));
	ck_assert_uint_eq(seen_bytes, used);
}
END_TEST

/* A forged journal for this file: positions outside the file do no harm. */
START_TEST(a_journal_that_lies)
{
	static const uint64_t places[] = {UINT64_MAX, 1ull << 63, 2, 65537 + 4, 1ull << 40};
	struct pdn_journal *journal;
	struct stat status;
	char *real;
	int child, segment;

	write_and_end_so(1, &child);
	real = own_name(child, "");
	ck_assert_int_eq(stat(real, &status), 0);
	segment = shmget(IPC_PRIVATE, PDN_JOURNAL_BYTES, IPC_CREAT | 0600);
	ck_assert_int_ge(segment, 0);
	journal = shmat(segment, NULL, 0);
	journal->device = status.st_dev;
	journal->inode = status.st_ino;
	journal->pid = (uint64_t)child;
	journal->begin = read_header(real).begin;
	memset(journal->path, 'x', sizeof(journal->path)); /* it has no terminating zero */
	for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		journal->pieces[i].place = places[i];
	memset((char *)journal + PDN_JOURNAL_HEAD, 0x11, 5 * PDN_JOURNAL_PIECE_SIZE);
	memcpy(journal->magic, PDN_JOURNAL_MAGIC, sizeof(journal->magic));
	read_back("t.pdt");
	expect_all(MANY);
	shmdt(journal);
	pdn_journal_rescue();
	ck_assert_int_eq(stat(real, &status), 0);
	read_copy_back(child);
	expect_all(MANY);
	shmctl(segment, IPC_RMID, NULL);
}
END_TEST

/*
 * In an IPC namespace of its own, as each pindown on the machine would look at this segment: its
 * pages are huge ones that nobody has reserved, and there may be none.
 */
static void trace_beside_a_segment_without_memory(void)
{
	const int flags = IPC_CREAT | SHM_HUGETLB | SHM_NORESERVE | 0600;

	if (unshare(CLONE_NEWIPC) != 0 || shmget(IPC_PRIVATE, PDN_JOURNAL_BYTES, flags) < 0)
		_exit(77);
	pdn_trace_open();
	write_some(0, FEW);
	read_back("t.pdt");
	if (event_count != FEW)
		_exit(1);
	pdn_trace_close();
}

START_TEST(a_segment_without_memory)
{
	int result = in_child(trace_beside_a_segment_without_memory, NULL);

	if (result == 77) {
		skip_test("no segment of huge pages can be made here");
		return;
	}
	ck_assert_int_eq(result, 0);
}
END_TEST

/* ---- no shared memory ------------------------------------------------------------------------ */

/* In an IPC namespace of its own that allows no segments. */
static void allow_no_segments(void)
{
	int fd = unshare(CLONE_NEWIPC) == 0 ? open("/proc/sys/kernel/shmmni", O_WRONLY) : -1;

	if (fd < 0 || write(fd, "0", 1) != 1)
		_exit(77);
	close(fd);
}

static void trace_without_segments(void)
{
	allow_no_segments();
	pdn_trace_open();
	write_some(0, MANY);
	pdn_trace_close();
}

static void be_killed_without_segments(void)
{
	allow_no_segments();
	pdn_trace_open();
	write_some(0, MANY);
	kill(getpid(), SIGKILL);
}

START_TEST(without_shared_memory)
{
	int child, result = in_child(trace_without_segments, &child);

	if (result == 77) {
		skip_test("shared memory can't be forbidden here");
		return;
	}
	ck_assert_int_eq(result, 0);
	expect_one_line("no shared memory of System V (No space left on device)");
	read_copy_back(child);
	expect_all(MANY);
	ck_assert_int_eq(in_child(be_killed_without_segments, &child), -SIGKILL);
	read_back(own_name(child, ""));
	/* At most one piece is lost then. */
	ck_assert_uint_lt(event_count, MANY);
	ck_assert_uint_ge(event_count, MANY - PDN_JOURNAL_PIECE_SIZE / 32);
}
END_TEST

/* ---- after the end --------------------------------------------------------------------------- */

static pthread_barrier_t both;
static bool stop;

static void *write_until_the_end(void *arg)
{
	(void)arg;
	write_some(0, FEW);
	pthread_barrier_wait(&both);
	pthread_barrier_wait(&both);
	write_some(FEW, FEW);
	return NULL;
}

static void write_after_the_end(void)
{
	pthread_t thread;

	pthread_barrier_init(&both, NULL, 2);
	pdn_trace_open();
	pthread_create(&thread, NULL, write_until_the_end, NULL);
	pthread_barrier_wait(&both);
	pdn_trace_close();
	pthread_barrier_wait(&both);
	pthread_join(thread, NULL);
}

/* Other threads' events are in the file, also those that come after the end. */
START_TEST(after_the_end)
{
	int child;

	ck_assert_int_eq(in_child(write_after_the_end, &child), 0);
	ck_assert_uint_eq(journals_of(child), 0);
	read_copy_back(child);
	ck_assert_uint_eq(event_count, 2 * FEW);
	ck_assert_uint_ne(events[0].file->header.end.ticks, 0);
}
END_TEST

static uint64_t *written; /* shared with the parent: how many events each thread has written */

static void *write_all_the_time(void *arg)
{
	uint64_t number = (uint64_t)(uintptr_t)arg;

	for (uint64_t i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		call_at(number << 32 | i);
		__atomic_store_n(&written[number], i + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void end_while_others_write(void)
{
	pthread_t threads[3];

	pdn_trace_open();
	call_at(0);
	for (unsigned i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, write_all_the_time, (void *)(uintptr_t)i);
	while (__atomic_load_n(&written[0], __ATOMIC_RELAXED) < 20000)
		sched_yield();
	pdn_trace_close();
}

/*
 * The process ends while threads write: the events of each thread are there, in order, without a
 * gap.
 */
START_TEST(the_end_while_others_write)
{
	uint64_t next[3] = {0, 0, 0};
	int child;

	written = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_int_eq(in_child(end_while_others_write, &child), 0);
	ck_assert_uint_eq(journals_of(child), 0);
	read_copy_back(child);
	for (unsigned i = 1; i < event_count; i++) {
		uint64_t thread = events[i].record.addr >> 32;

		ck_assert_uint_eq(events[i].record.addr & 0xffffffff, next[thread]++);
	}
	/*
	 * The last ones may be an event that was not counted yet, or one that was just being
	 * written.
	 */
	for (unsigned i = 0; i < 3; i++)
		ck_assert_msg(next[i] + 1 >= written[i], "thread %u: %llu of %llu", i,
			      (unsigned long long)next[i], (unsigned long long)written[i]);
}
END_TEST

static void have_a_child_that_exits(void)
{
	int child;

	pdn_trace_open();
	write_some(0, FEW);
	child = (int)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (child == 0) {
		pdn_trace_close();
		_exit(0);
	}
	waitpid(child, NULL, 0);
	write_some(FEW, FEW);
	be_killed();
}

/* One that no fork handler has told that it is a child. */
START_TEST(a_child_does_not_end_its_parents_trace)
{
	int child;

	ck_assert_int_eq(in_child(have_a_child_that_exits, &child), -SIGKILL);
	ck_assert_uint_eq(journals_of(child), 1);
	read_back("t.pdt");
	expect_all(2 * FEW);
	ck_assert_uint_eq(read_header(own_name(child, "")).end.ticks, 0);
}
END_TEST

/* ---- all ------------------------------------------------------------------------------------- */

int main(void)
{
	Suite *suite = suite_create("trace journal");
	TCase *ends_case;

	ends_case = add_case(suite, "ends",
			     (const TTest *const[]){after_the_end,
						    a_child_does_not_end_its_parents_trace, NULL});
	tcase_add_loop_test(ends_case, the_end_while_others_write, 0, 10);
	tcase_add_loop_test(ends_case, the_reader_saves, 0, sizeof(ends) / sizeof(ends[0]));
	tcase_add_loop_test(ends_case, the_next_process_saves, 0, sizeof(ends) / sizeof(ends[0]));
	add_case(suite, "saving",
		 (const TTest *const[]){
			 no_room_to_save_in, many_files_are_gone, another_file_is_there,
			 a_link_to_the_file_is_there, the_file_was_cut, the_file_is_elsewhere,
			 a_living_process_is_left_alone, a_chunk_behind_a_hole, a_record_under_way,
			 the_file_has_more_by_now, a_journal_that_lies, a_segment_without_memory,
			 without_shared_memory, NULL});
	ends_case = add_case(suite, "names", (const TTest *const[]){NULL});
	tcase_add_loop_test(ends_case, the_file_was_renamed, 0, 2);
	return run_suite(suite);
}
