// SPDX-License-Identifier: MIT
/*
 * The trace writer. Each test is a process of its own; a part of it that is to be killed, or to run
 * out of room, is a child of that. What was written is read back with the command's reader.
 */
#define _GNU_SOURCE
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "pindown.h"
#include "reader.h"
#include "thread.h"
#include "trace.h"

static const char *const call_names[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocAsync"};

static char folder[] = "/tmp/pindown-trace-XXXXXX";
static int heard = -1; /* what was printed on standard error */

/* ---- helpers -------------------------------------------------------------------------------- */

static void set_up(void)
{
	FILE *file = tmpfile();

	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
	heard = dup(fileno(file));
	fclose(file);
	dup2(heard, STDERR_FILENO);
	setenv("PINDOWN_TRACE", "t.pdt", 1);
	pd_trace_call_names(call_names, 3);
}

static void tear_down(void)
{
	struct dirent *found;
	DIR *directory;

	ck_assert_int_eq(chdir("/"), 0);
	directory = opendir(folder);
	while (directory && (found = readdir(directory)))
		unlinkat(dirfd(directory), found->d_name, 0);
	if (directory)
		closedir(directory);
	rmdir(folder);
}

static const char *printed(void)
{
	static char text[4096];
	ssize_t length = pread(heard, text, sizeof(text) - 1, 0);

	text[length > 0 ? length : 0] = '\0';
	return text;
}

static void call_at(uint64_t addr)
{
	uint64_t begin = pd_ticks();

	pd_trace_call(1, addr, 4096, 0, begin, pd_ticks(), 0);
}

/* All events of a trace; text is not kept. The files stay open until the next trace is read. */
static struct reader *reader;
static struct event *events;
static unsigned event_count, event_room;
static struct counters counters;

static void read_back(const char *name)
{
	char path[100];
	char *names[] = {path};
	struct event event;

	snprintf(path, sizeof(path), "%s", name);
	if (reader)
		reader_close(reader);
	event_count = 0;
	memset(&counters, 0, sizeof(counters));
	reader = reader_open(names, 1);
	ck_assert_msg(reader && !reader_damaged(reader), "%s", printed());
	for (unsigned i = 0; i < reader_files(reader); i++) {
		counters.hits += reader_file(reader, i)->counters.hits;
		counters.misses += reader_file(reader, i)->counters.misses;
		counters.lost += reader_file(reader, i)->counters.lost;
	}
	while (reader_next(reader, &event)) {
		if (event_count == event_room) {
			event_room = event_room ? event_room * 2 : 1000;
			events = realloc(events, event_room * sizeof(*events));
			ck_assert_ptr_nonnull(events);
		}
		events[event_count] = event;
		events[event_count++].record.text = NULL;
	}
}

static char *own_name(int pid, const char *tail)
{
	static char name[64];

	snprintf(name, sizeof(name), "t.%d%s.pdt", pid, tail);
	return name;
}

static bool exists(const char *name)
{
	return access(name, F_OK) == 0;
}

/* Runs a function in a child; its exit status, or -signal. */
static int in_child(void (*function)(void), int *child)
{
	int status, pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		function();
		_exit(0);
	}
	if (child)
		*child = pid;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- names ---------------------------------------------------------------------------------- */

static const struct {
	const char *given, *made; /* # is the process number */
} names[] = {
	{"a.pdt", "a.#.pdt"},	    {"a", "a.#.pdt"},	{"a.b.pdt", "a.b.#.pdt"},
	{"a%p.pdt", "a#.pdt"},	    {"%p", "#.pdt"},	{"a%%p.pdt", "a%p.#.pdt"},
	{"a%p-%p.pdt", "a#-#.pdt"}, {"a%", "a%.#.pdt"}, {"a%n%s.pdt", "a%n%s.#.pdt"},
};

START_TEST(file_names)
{
	char expected[100] = "", *to = expected;

	for (const char *at = names[_i].made; *at; at++) {
		if (*at == '#')
			to += sprintf(to, "%d", getpid());
		else
			*to++ = *at;
	}
	setenv("PINDOWN_TRACE", names[_i].given, 1);
	pd_trace_open();
	ck_assert_uint_eq(pd_trace_mask, 0xf7);
	ck_assert_msg(exists(expected), "%s is not there", expected);
	ck_assert_str_eq(printed(), "");
}
END_TEST

static void put_file(const char *name, const char *text)
{
	FILE *file = fopen(name, "w");

	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

/* As after an exec, which keeps the process number; a symbolic link is not followed either. */
START_TEST(another_file_is_never_touched)
{
	char text[20] = "", first[100], name[100];
	FILE *file;

	snprintf(first, sizeof(first), "%s", own_name(getpid(), ""));
	snprintf(name, sizeof(name), "%s", own_name(getpid(), ".1"));
	put_file(first, "precious");
	ck_assert_int_eq(symlink("elsewhere", name), 0);
	pd_trace_open();
	call_at(1);
	file = fopen(first, "r");
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
	fclose(file);
	ck_assert_str_eq(text, "precious");
	ck_assert(!exists("elsewhere"));
	read_back(own_name(getpid(), ".2"));
	ck_assert_uint_eq(event_count, 1);
}
END_TEST

START_TEST(the_start_directory_counts)
{
	pd_config();
	ck_assert_int_eq(chdir("/"), 0);
	pd_trace_open();
	ck_assert_int_eq(chdir(folder), 0);
	ck_assert(exists(own_name(getpid(), "")));
}
END_TEST

static const struct {
	const char *given, *says;
} impossible[] = {
	{"nowhere/t.pdt", "No such file or directory"},
	{"/proc/self/t.pdt", "No such file or directory"},
	{"/dev/null/t.pdt", "Not a directory"},
};

/* One line, and the program runs on. */
START_TEST(no_file_can_be_made)
{
	setenv("PINDOWN_TRACE", impossible[_i].given, 1);
	errno = 55;
	pd_trace_open();
	ck_assert_int_eq(errno, 55);
	ck_assert_uint_eq(pd_trace_mask, 0);
	call_at(1);
	pd_trace_error("nothing", 0, 0, 0);
	pd_trace_open();
	pd_trace_close();
	ck_assert_ptr_nonnull(strstr(printed(), impossible[_i].says));
	ck_assert_ptr_nonnull(strstr(printed(), "nothing is traced\n"));
	ck_assert_ptr_eq(strchr(printed(), '\n'), strrchr(printed(), '\n'));
}
END_TEST

START_TEST(no_trace_is_wanted)
{
	DIR *directory;
	struct dirent *found;

	unsetenv("PINDOWN_TRACE");
	pd_trace_open();
	ck_assert_uint_eq(pd_trace_mask, 0);
	call_at(1);
	pd_trace_close();
	directory = opendir(".");
	while ((found = readdir(directory)))
		ck_assert_int_eq(found->d_name[0], '.');
	closedir(directory);
	ck_assert_str_eq(printed(), "");
}
END_TEST

START_TEST(switched_off)
{
	setenv("PINDOWN", "0", 1);
	pd_trace_open();
	ck_assert_uint_eq(pd_trace_mask, 0);
	ck_assert(!exists(own_name(getpid(), "")));
}
END_TEST

/* ---- what is written ------------------------------------------------------------------------ */

START_TEST(a_call_comes_back)
{
	static const struct {
		uint64_t addr, size, extra;
		int result;
	} calls[] = {
		{0x7f0012345678, 65536, 0, 0},
		{0, 0, 0, 0},
		{UINT64_MAX, UINT64_MAX, UINT64_MAX, 1},
		{0, 1, 0x55, 999},
		{8, 0, 0x55, 65535},
		{8, 0, 0, 65536},
		{8, 9, 10, -1},
		{8, 9, 10, INT32_MIN},
		{8, 9, 10, INT32_MAX},
	};
	const unsigned count = sizeof(calls) / sizeof(calls[0]);

	pd_trace_open();
	for (unsigned i = 0; i < count; i++) {
		uint64_t begin = pd_ticks();

		errno = 44;
		pd_trace_call(i % 3, calls[i].addr, calls[i].size, calls[i].result, begin,
			      pd_ticks(), calls[i].extra);
		ck_assert_int_eq(errno, 44);
	}
	pd_trace_close();
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, count);
	for (unsigned i = 0; i < count; i++) {
		const struct record *record = &events[i].record;

		ck_assert_int_eq(record->event, PD_EV_CALL);
		ck_assert_uint_eq(record->call, i % 3);
		ck_assert_uint_eq(record->addr, calls[i].addr);
		ck_assert_uint_eq(record->size, calls[i].size);
		ck_assert_uint_eq(record->extra, calls[i].extra);
		ck_assert_int_eq(record->result, calls[i].result);
		ck_assert_uint_eq(events[i].tid, (uint32_t)syscall(SYS_gettid));
	}
}
END_TEST

START_TEST(a_plain_call_is_small)
{
	struct stat before, after;
	unsigned count = 100000;

	pd_trace_open();
	call_at(1);
	ck_assert_int_eq(stat(own_name(getpid(), ""), &before), 0);
	for (unsigned i = 0; i < count; i++)
		call_at(0x7f0000000000 + i);
	ck_assert_int_eq(stat(own_name(getpid(), ""), &after), 0);
	/* One chunk may just have been begun. */
	ck_assert_int_le(after.st_size - before.st_size, 48ll * count + 4 * 65536);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, count + 1);
}
END_TEST

START_TEST(a_region_comes_back)
{
	const struct pd_trace_region whole = {.addr = 0x7f0000000200,
					      .size = 100,
					      .pin_addr = 0x7f0000000000,
					      .pin_size = 65536,
					      .buffer_id = 12345678901,
					      .context = 0x5555aaaa0000,
					      .region = 0xfedcba98,
					      .device = 7,
					      .result = PINDOWN_ERR_NO_SPACE,
					      .reason = PINDOWN_REASON_STALE,
					      .flags = PD_TRACE_IN_USE | PD_TRACE_VOLATILE |
						       PD_TRACE_MISSED | PD_TRACE_NO_SYNC},
				     none = {.device = 0, .result = 801};
	const enum pd_event kinds[] = {PD_EV_PIN,   PD_EV_UNPIN,      PD_EV_HIT,
				       PD_EV_EVICT, PD_EV_INVALIDATE, PD_EV_MAP};

	setenv("PINDOWN_TRACE_EVENTS", "all", 1);
	pd_trace_open();
	for (unsigned i = 0; i < 6; i++) {
		uint64_t begin = pd_ticks();

		errno = 44;
		pd_trace_region(kinds[i], i % 2 ? &none : &whole, begin, pd_ticks());
		ck_assert_int_eq(errno, 44);
	}
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 6);
	for (unsigned i = 0; i < 6; i++) {
		const struct pd_trace_region *sent = i % 2 ? &none : &whole;
		const struct record *record = &events[i].record;

		ck_assert_int_eq(record->event, kinds[i]);
		ck_assert_uint_eq(record->addr, sent->addr);
		ck_assert_uint_eq(record->size, sent->size);
		ck_assert_uint_eq(record->pin_addr, sent->pin_addr);
		ck_assert_uint_eq(record->pin_size, sent->pin_size);
		ck_assert_uint_eq(record->buffer_id, sent->buffer_id);
		ck_assert_uint_eq(record->context, sent->context);
		ck_assert_uint_eq(record->region, sent->region);
		ck_assert_int_eq(record->device, sent->device);
		ck_assert_int_eq(record->result, sent->result);
		ck_assert_uint_eq(record->reason, sent->reason);
		ck_assert_uint_eq(record->flags, sent->flags);
	}
}
END_TEST

/* 0 to 200 bytes of text, more is cut; none is written beyond a chunk's end. */
START_TEST(errors_come_back)
{
	char text[301];
	char path[] = "t.pdt";
	char *names_of_one[] = {path};
	struct event event;
	unsigned n = 0;

	memset(text, 'e', 300);
	text[300] = '\0';
	pd_trace_open();
	for (unsigned length = 0; length <= 300; length++)
		pd_trace_error(text + 300 - length, length, 0, (int)length);
	reader = reader_open(names_of_one, 1);
	ck_assert(reader && !reader_damaged(reader));
	for (; reader_next(reader, &event); n++) {
		unsigned expected = n < 200 ? n : 200;

		ck_assert_int_eq(event.record.event, PD_EV_ERROR);
		ck_assert_int_eq(event.record.result, n);
		ck_assert_uint_eq(event.record.text_length, expected);
		ck_assert_int_eq(memcmp(event.record.text, text, expected), 0);
	}
	ck_assert_uint_eq(n, 301);
	reader_close(reader);
}
END_TEST

START_TEST(only_wanted_events)
{
	struct pd_trace_region what = {.addr = 1};

	setenv("PINDOWN_TRACE_EVENTS", "pin", 1);
	pd_trace_open();
	ck_assert(pd_tracing(PD_EV_PIN) && !pd_tracing(PD_EV_CALL) && !pd_tracing(PD_EV_HIT));
	call_at(1);
	pd_trace_region(PD_EV_UNPIN, &what, 0, pd_ticks());
	pd_trace_region(PD_EV_PIN, &what, 0, pd_ticks());
	pd_trace_error("no", 0, 0, 0);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 1);
	ck_assert_int_eq(events[0].record.event, PD_EV_PIN);
}
END_TEST

static uint64_t monotonic(void)
{
	return pd_ticks_ns();
}

/* Also times that need more than 32 bits, and begins that were never taken. */
START_TEST(times)
{
	const uint64_t second = pd_ticks_steady ? 1ull << 32 : 1000000000;
	uint64_t before[3], after[3], begin, end;
	const uint64_t slack = 100000; /* of clocks read one after the other */

	pd_trace_open();
	for (unsigned i = 0; i < 3; i++) {
		before[i] = monotonic();
		begin = pd_ticks();
		usleep(2000);
		end = pd_ticks();
		after[i] = monotonic();
		pd_trace_call(0, 1, 0, 0, begin, end, 0);
	}
	end = pd_ticks();
	pd_trace_call(1, 1, 0, 0, 0, end, 0);
	pd_trace_call(1, 2, 0, 0, end - 5 * second, end, 0);
	pd_trace_call(1, 3, 0, 0, end + 1, end, 0);
	pd_trace_close();
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 6);
	/* The long one began first of all, before the trace even. */
	ck_assert_uint_eq(events[0].record.addr, 2);
	ck_assert_uint_eq(events[0].record.taken, 5 * second);
	ck_assert_uint_eq(events[0].ts, 0);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t ts = events[i + 1].ts + events[0].file->first_ns;

		ck_assert_uint_ge(ts + slack, before[i]);
		ck_assert_uint_le(ts + events[i + 1].took, after[i] + slack);
		ck_assert_uint_ge(events[i + 1].took + slack, 2000000);
	}
	ck_assert_uint_eq(events[4].took, 0);
	ck_assert_uint_eq(events[5].took, 0);
}
END_TEST

/* What caused comes before what was caused, though it is written after it. */
START_TEST(nested_events_are_in_order)
{
	struct pd_trace_region what = {.addr = 7};
	unsigned count = 30000; /* several chunks, whose ends fall anywhere */

	pd_trace_open();
	for (unsigned i = 0; i < count; i++) {
		uint64_t begin = pd_ticks(), inner;

		while ((inner = pd_ticks()) == begin)
			;
		what.region = i;
		pd_trace_region(PD_EV_INVALIDATE, &what, inner, pd_ticks());
		pd_trace_call(1, i, 0, 0, begin, pd_ticks(), 0);
	}
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 2 * count);
	for (unsigned i = 0; i < count; i++) {
		ck_assert_int_eq(events[2 * i].record.event, PD_EV_CALL);
		ck_assert_uint_eq(events[2 * i].record.addr, i);
		ck_assert_int_eq(events[2 * i + 1].record.event, PD_EV_INVALIDATE);
		ck_assert_uint_eq(events[2 * i + 1].record.region, i);
	}
}
END_TEST

/* ---- threads -------------------------------------------------------------------------------- */

enum { THREADS = 8, EACH = 20000, GENERATIONS = 5 };

static void *write_many(void *arg)
{
	uint64_t number = (uint64_t)(uintptr_t)arg;

	for (uint64_t i = 0; i < EACH; i++) {
		call_at(number << 32 | i);
		pd_count(&pd_self()->counters->hits);
	}
	return NULL;
}

static void run_threads(void *(*function)(void *), unsigned first, unsigned count)
{
	pthread_t threads[THREADS];

	for (unsigned i = 0; i < count; i++)
		ck_assert_int_eq(
			pthread_create(&threads[i], NULL, function, (void *)(uintptr_t)(first + i)),
			0);
	for (unsigned i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

/* Threads come and go, and later ones take over the earlier ones' records. */
START_TEST(many_threads)
{
	static uint64_t next[THREADS * GENERATIONS];
	static uint32_t tid[THREADS * GENERATIONS];

	pd_trace_open();
	for (unsigned i = 0; i < GENERATIONS; i++)
		run_threads(write_many, i * THREADS, THREADS);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, THREADS * GENERATIONS * EACH);
	ck_assert_uint_eq(counters.hits, THREADS * GENERATIONS * EACH);
	ck_assert_uint_eq(counters.lost, 0);
	for (unsigned i = 0; i < event_count; i++) {
		uint64_t thread = events[i].record.addr >> 32;

		ck_assert_uint_lt(thread, THREADS * GENERATIONS);
		/* Each thread's events are in order, and all of one thread's. */
		ck_assert_uint_eq(events[i].record.addr & 0xffffffff, next[thread]);
		next[thread]++;
		if (!tid[thread])
			tid[thread] = events[i].tid;
		ck_assert_uint_eq(events[i].tid, tid[thread]);
		ck_assert(i == 0 || events[i].ts >= events[i - 1].ts);
	}
	for (unsigned i = 0; i < THREADS * GENERATIONS; i++)
		for (unsigned j = 0; j < i; j++)
			ck_assert(i / THREADS != j / THREADS || tid[i] != tid[j]);
}
END_TEST

static void *open_and_write(void *arg)
{
	pd_trace_open();
	return write_many(arg);
}

/* Whoever comes while the file is opened waits: nothing is missed. */
START_TEST(all_open_at_once)
{
	run_threads(open_and_write, 0, THREADS);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, THREADS * EACH);
	ck_assert_uint_eq(counters.hits, THREADS * EACH);
}
END_TEST

enum { CROWD = 600 };
static pthread_barrier_t crowd_is_here;

static void *one_of_a_crowd(void *arg)
{
	(void)arg;
	pd_count(&pd_self()->counters->hits);
	call_at(1);
	pthread_barrier_wait(&crowd_is_here);
	pd_count(&pd_self()->counters->hits);
	return NULL;
}

/* More threads than one chunk of counters has slots. */
START_TEST(a_crowd)
{
	static pthread_t threads[CROWD];
	pthread_attr_t small;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 256 * 1024);
	pthread_barrier_init(&crowd_is_here, NULL, CROWD);
	pd_trace_open();
	for (unsigned i = 0; i < CROWD; i++)
		ck_assert_int_eq(pthread_create(&threads[i], &small, one_of_a_crowd, NULL), 0);
	for (unsigned i = 0; i < CROWD; i++)
		pthread_join(threads[i], NULL);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, CROWD);
	ck_assert_uint_eq(counters.hits, 2 * CROWD);
}
END_TEST

/* ---- the end -------------------------------------------------------------------------------- */

static int told[2];

static void write_and_tell(void)
{
	pd_trace_open();
	for (uint64_t i = 1;; i++) {
		call_at(i);
		pd_count(&pd_self()->counters->misses);
		if (i % 64 == 0 && write(told[1], &i, sizeof(i)) != sizeof(i))
			_exit(1);
	}
}

/* Everything that was written before the kill is there, whole. */
START_TEST(kill_9)
{
	uint64_t last = 0, n;
	int child;

	ck_assert_int_eq(pipe(told), 0);
	child = fork();
	if (child == 0)
		write_and_tell();
	close(told[1]);
	while (last < 50000 && read(told[0], &n, sizeof(n)) == sizeof(n))
		last = n;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	ck_assert_uint_ge(last, 50000);
	while (read(told[0], &n, sizeof(n)) == sizeof(n))
		last = n;
	read_back("t.pdt");
	ck_assert_uint_ge(event_count, last);
	ck_assert_uint_le(event_count, last + 64);
	/* The kill may have come between an event and its count. */
	ck_assert_uint_le(counters.misses, event_count);
	ck_assert_uint_ge(counters.misses + 1, event_count);
	for (unsigned i = 0; i < event_count; i++)
		ck_assert_uint_eq(events[i].record.addr, i + 1);
	ck_assert_uint_eq(events[0].file->header.end.ticks, 0);
}
END_TEST

static void *count_and_wait(void *arg)
{
	pthread_barrier_t *barrier = arg;

	pd_count(&pd_self()->counters->hits);
	pthread_barrier_wait(barrier);
	pthread_barrier_wait(barrier);
	pd_count(&pd_self()->counters->hits);
	return NULL;
}

static struct pd_trace_header read_header(const char *name)
{
	struct pd_trace_header header;
	int fd = open(name, O_RDONLY);

	ck_assert_int_eq(read(fd, &header, sizeof(header)), sizeof(header));
	close(fd);
	return header;
}

/* Threads from before the trace count on their own: what they counted is added at the end. */
START_TEST(closing)
{
	pthread_barrier_t barrier;
	pthread_t thread;
	char name[64];

	strcpy(name, own_name(getpid(), ""));
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, count_and_wait, &barrier);
	pthread_barrier_wait(&barrier);
	pd_trace_open();
	call_at(1);
	ck_assert_uint_eq(read_header(name).end.ticks, 0);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	errno = 33;
	pd_trace_close();
	ck_assert_int_eq(errno, 33);
	ck_assert_uint_ne(read_header(name).end.ticks, 0);
	/* Whatever still comes is written, and closing again changes nothing. */
	call_at(2);
	pd_trace_close();
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 2);
	ck_assert_uint_eq(counters.hits, 2);
}
END_TEST

START_TEST(about_the_process)
{
	char here[PATH_MAX], host[100];
	struct trace_file *file;

	pd_trace_open();
	file = trace_file_open(own_name(getpid(), ""));
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(file->header.pid, (unsigned)getpid());
	ck_assert_uint_eq(file->header.ppid, (unsigned)getppid());
	ck_assert_uint_eq(file->header.event_mask, 0xf7);
	ck_assert_uint_eq(file->call_count, 3);
	ck_assert_str_eq(file->calls[2], "cuMemAllocAsync");
	ck_assert_str_eq(file->directory, getcwd(here, sizeof(here)));
	gethostname(host, sizeof(host));
	ck_assert_str_eq(file->host, host);
	ck_assert_ptr_nonnull(strstr(file->program, "test_trace"));
	ck_assert_ptr_nonnull(strstr(file->command, "test_trace"));
	ck_assert_ptr_nonnull(
		memmem(file->environment, file->environment_bytes, "PINDOWN_TRACE=t.pdt", 20));
	ck_assert_uint_ne(file->header.begin.ticks, 0);
	trace_file_close(file);
}
END_TEST

START_TEST(call_names_may_come_late)
{
	static const char *const late[] = {"cuOne", "cuTwo"};
	struct trace_file *file;

	pd_trace_call_names(NULL, 0);
	pd_trace_open();
	pd_trace_call_names(late, 2);
	file = trace_file_open(own_name(getpid(), ""));
	ck_assert_uint_eq(file->call_count, 2);
	ck_assert_str_eq(file->calls[1], "cuTwo");
	trace_file_close(file);
}
END_TEST

/* ---- no room -------------------------------------------------------------------------------- */

enum { MANY = 50000 };

static void write_into_little_room(void)
{
	struct rlimit limit = {400000, RLIM_INFINITY};

	pd_trace_open();
	setrlimit(RLIMIT_FSIZE, &limit);
	for (uint64_t i = 0; i < MANY; i++)
		call_at(i);
}

static unsigned count_events(enum pd_event event)
{
	unsigned n = 0;

	for (unsigned i = 0; i < event_count; i++)
		n += events[i].record.event == event;
	return n;
}

/* The limit on a file's size raises a signal that kills: not for us. */
START_TEST(file_size_limit)
{
	int child;

	ck_assert_int_eq(in_child(write_into_little_room, &child), 0);
	ck_assert_ptr_nonnull(strstr(printed(), "File too large"));
	ck_assert_ptr_nonnull(strstr(printed(), "events are lost, and counted"));
	ck_assert_ptr_eq(strchr(printed(), '\n'), strrchr(printed(), '\n'));
	read_back("t.pdt");
	ck_assert_uint_gt(counters.lost, 0);
	ck_assert_uint_gt(count_events(PD_EV_CALL), 1000);
	ck_assert_uint_eq(count_events(PD_EV_CALL) + counters.lost, MANY);
	ck_assert_uint_eq(count_events(PD_EV_LOST), 1);
	ck_assert_uint_eq(events[event_count - 1].record.lost, counters.lost);
}
END_TEST

/* When there is room again it is told where the gap is, and how large. */
START_TEST(room_again)
{
	struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	uint64_t lost;
	unsigned i = 0;

	write_into_little_room();
	lost = pd_self()->counters->lost_events;
	ck_assert_uint_gt(lost, 0);
	setrlimit(RLIMIT_FSIZE, &none);
	usleep(50000); /* room is looked for again only now and then */
	call_at(MANY);
	ck_assert_uint_eq(pd_self()->counters->lost_events, lost);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, MANY - lost + 2);
	while (events[i].record.addr == i && events[i].record.event == PD_EV_CALL)
		i++;
	ck_assert_uint_eq(i, MANY - lost);
	ck_assert_int_eq(events[i].record.event, PD_EV_LOST);
	ck_assert_uint_eq(events[i].record.lost, lost);
	ck_assert_uint_eq(events[i + 1].record.addr, MANY);
}
END_TEST

START_TEST(no_room_from_the_start)
{
	struct rlimit limit = {1000, RLIM_INFINITY};

	setrlimit(RLIMIT_FSIZE, &limit);
	pd_trace_open();
	ck_assert_uint_eq(pd_trace_mask, 0);
	call_at(1);
	ck_assert_ptr_nonnull(strstr(printed(), "File too large; nothing is traced"));
	ck_assert(!exists(own_name(getpid(), "")));
}
END_TEST

/* A file system of one MiB, in a name space of its own. */
static void write_into_a_small_disk(void)
{
	if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		_exit(77);
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("none", folder, "tmpfs", 0, "size=1m") != 0 || chdir(folder) != 0)
		_exit(77);
	pd_trace_open();
	for (uint64_t i = 0; i < MANY; i++)
		call_at(i);
	ck_assert_ptr_nonnull(strstr(printed(), "No space left on device"));
	read_back("t.pdt");
	ck_assert_uint_gt(counters.lost, 0);
	ck_assert_uint_gt(count_events(PD_EV_CALL), 1000);
	ck_assert_uint_eq(count_events(PD_EV_CALL) + counters.lost, MANY);
}

START_TEST(full_disk)
{
	int result = in_child(write_into_a_small_disk, NULL);

	if (result == 77) {
		dprintf(STDOUT_FILENO, "skip: no tmpfs can be mounted here\n");
		return;
	}
	ck_assert_msg(result == 0, "%d: %s", result, printed());
}
END_TEST

/* ---- descriptors ---------------------------------------------------------------------------- */

START_TEST(the_descriptor_is_out_of_the_way)
{
	struct rlimit limit;
	int before = dup(0), after;

	close(before);
	getrlimit(RLIMIT_NOFILE, &limit);
	pd_trace_open();
	call_at(1);
	after = dup(0);
	ck_assert(limit.rlim_cur <= 1000 || before == after);
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
	pd_trace_open();
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

/* The number is then somebody else's file's: that is neither written nor closed. */
START_TEST(another_file_has_our_number)
{
	struct stat status;
	int other;

	pd_trace_open();
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
	pd_trace_open();
	call_at(0);
	unlink(own_name(getpid(), ""));
	for (int fd = 3; fd < 4096; fd++)
		if (fd != heard)
			close(fd);
	for (uint64_t i = 1; i < MANY; i++)
		call_at(i);
	ck_assert_uint_gt(pd_self()->counters->lost_events, 0);
	ck_assert_ptr_nonnull(strstr(printed(), "the file is no longer there"));
	ck_assert_ptr_eq(strchr(printed(), '\n'), strrchr(printed(), '\n'));
}
END_TEST

/* A removed file whose descriptor is left is written on: somebody may hold it open. */
START_TEST(the_file_is_removed)
{
	int fd;

	pd_trace_open();
	call_at(0);
	fd = open(own_name(getpid(), ""), O_RDONLY);
	unlink(own_name(getpid(), ""));
	for (uint64_t i = 1; i < MANY; i++)
		call_at(i);
	ck_assert_uint_eq(pd_self()->counters->lost_events, 0);
	close(fd);
}
END_TEST

/* ---- fork ----------------------------------------------------------------------------------- */

static void trace_in_child(void)
{
	pd_thread_fork_child();
	pd_trace_fork_child();
	pd_count(&pd_self()->counters->hits);
	for (uint64_t i = 0; i < 10000; i++)
		call_at(1000000 + i);
	pd_trace_close();
}

START_TEST(a_child_has_its_own_file)
{
	int child;

	pd_trace_open();
	pd_count(&pd_self()->counters->hits);
	for (uint64_t i = 0; i < 100; i++)
		call_at(i);
	ck_assert_int_eq(in_child(trace_in_child, &child), 0);
	for (uint64_t i = 100; i < 200; i++)
		call_at(i);
	read_back(own_name(getpid(), ""));
	ck_assert_uint_eq(event_count, 200);
	ck_assert_uint_eq(counters.hits, 1);
	for (unsigned i = 0; i < 200; i++)
		ck_assert_uint_eq(events[i].record.addr, i);
	ck_assert_uint_eq(read_header(own_name(getpid(), "")).forked_from, 0);
	read_back(own_name(child, ""));
	ck_assert_uint_eq(event_count, 10000);
	ck_assert_uint_eq(counters.hits, 1);
	ck_assert_uint_eq(events[0].record.addr, 1000000);
	ck_assert_uint_eq(read_header(own_name(child, "")).forked_from, (unsigned)getpid());
	/* The name without a number is both, by time. */
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 10200);
	ck_assert_uint_eq(events[100].record.addr, 1000000);
	ck_assert_uint_eq(events[10199].record.addr, 199);
}
END_TEST

static void do_nothing_in_child(void)
{
	pd_thread_fork_child();
	pd_trace_fork_child();
	pd_trace_close();
}

START_TEST(a_child_that_does_nothing_has_none)
{
	int child;

	pd_trace_open();
	call_at(0);
	ck_assert_int_eq(in_child(do_nothing_in_child, &child), 0);
	ck_assert(!exists(own_name(child, "")));
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 1);
	ck_assert_uint_eq(events[0].file->header.end.ticks, 0);
}
END_TEST

static int generation;

static void trace_generations(void)
{
	pd_thread_fork_child();
	pd_trace_fork_child();
	call_at((uint64_t)++generation);
	if (generation < 20 && in_child(trace_generations, NULL) != 0)
		_exit(1);
}

START_TEST(children_of_children)
{
	pd_trace_open();
	call_at(0);
	ck_assert_int_eq(in_child(trace_generations, NULL), 0);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 21);
	for (unsigned i = 0; i < 21; i++)
		ck_assert_uint_eq(events[i].record.addr, i);
}
END_TEST

static volatile bool stop;

static void *write_until_stopped(void *arg)
{
	uint64_t i = 0;

	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		call_at(i++);
	return NULL;
}

static void write_a_little_in_child(void)
{
	pd_thread_fork_child();
	pd_trace_fork_child();
	for (uint64_t i = 0; i < 100; i++)
		call_at(i);
}

/* Forks fall anywhere into other threads' writing: their places are not the child's. */
START_TEST(forks_while_others_write)
{
	pthread_t threads[2];

	pd_trace_open();
	call_at(0);
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, write_until_stopped, NULL);
	for (unsigned i = 0; i < 20; i++) {
		int child;

		ck_assert_int_eq(in_child(write_a_little_in_child, &child), 0);
		read_back(own_name(child, ""));
		ck_assert_uint_eq(event_count, 100);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	read_back(own_name(getpid(), ""));
	ck_assert_uint_gt(event_count, 1);
}
END_TEST

/* ---- cancellation --------------------------------------------------------------------------- */

static void *write_with_a_cancellation_pending(void *arg)
{
	pthread_cancel(pthread_self());
	for (uint64_t i = 0; i < MANY; i++)
		call_at(i);
	*(bool *)arg = true;
	pthread_testcancel();
	return NULL;
}

/* A driver call is no cancellation point, so it must not become one. */
START_TEST(no_cancellation_point)
{
	pthread_t thread;
	bool done = false;
	void *result;

	pd_trace_open();
	pthread_create(&thread, NULL, write_with_a_cancellation_pending, &done);
	pthread_join(thread, &result);
	ck_assert(done);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, MANY);
}
END_TEST

/* ---- all ------------------------------------------------------------------------------------ */

static void add_case(Suite *suite, const char *name, const TTest *const *tests)
{
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 100);
	for (; *tests; tests++)
		tcase_add_test(tcase, *tests);
	suite_add_tcase(suite, tcase);
}

int main(void)
{
	Suite *suite = suite_create("trace");
	TCase *names_case = tcase_create("names");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(names_case, set_up, tear_down);
	tcase_add_loop_test(names_case, file_names, 0, sizeof(names) / sizeof(names[0]));
	tcase_add_loop_test(names_case, no_file_can_be_made, 0,
			    sizeof(impossible) / sizeof(impossible[0]));
	suite_add_tcase(suite, names_case);
	add_case(suite, "file",
		 (const TTest *const[]){another_file_is_never_touched, the_start_directory_counts,
					no_trace_is_wanted, switched_off, about_the_process,
					call_names_may_come_late, NULL});
	add_case(suite, "events",
		 (const TTest *const[]){a_call_comes_back, a_plain_call_is_small,
					a_region_comes_back, errors_come_back, only_wanted_events,
					times, nested_events_are_in_order, NULL});
	add_case(suite, "threads",
		 (const TTest *const[]){many_threads, all_open_at_once, a_crowd,
					no_cancellation_point, NULL});
	add_case(suite, "end", (const TTest *const[]){kill_9, closing, NULL});
	add_case(suite, "room",
		 (const TTest *const[]){file_size_limit, room_again, no_room_from_the_start,
					full_disk, NULL});
	add_case(suite, "descriptors",
		 (const TTest *const[]){
			 the_descriptor_is_out_of_the_way, a_program_closes_all_descriptors,
			 another_file_has_our_number, the_file_is_gone, the_file_is_removed, NULL});
	add_case(suite, "fork",
		 (const TTest *const[]){a_child_has_its_own_file,
					a_child_that_does_nothing_has_none, children_of_children,
					forks_while_others_write, NULL});
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
