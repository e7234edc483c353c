// SPDX-License-Identifier: MIT
/* The fixture of the trace writer's tests, and reading back what was written. */
#define _GNU_SOURCE
#include "tests/unit/support/trace_test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/thread/lock.h"
#include "cache/trace/journal/rescue.h"

static const char calls[] = "cuMemAlloc_v2\0cuMemFree_v2\0cuMemAllocAsync\0";
char folder[] = "/tmp/pindown-trace-XXXXXX";
int heard = -1;

void set_up(void)
{
	struct rlimit files;
	FILE *file = tmpfile();

	/* The trace's descriptor is half-way up: a test closes or replaces all below 1024. */
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	if (files.rlim_cur > 1024)
		files.rlim_cur = 1024;
	setrlimit(RLIMIT_NOFILE, &files);
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
	heard = dup(fileno(file));
	fclose(file);
	dup2(heard, STDERR_FILENO);
	setenv("PINDOWN_TRACE", "t.pdt", 1);
	pdn_race_wait_ns = PATIENCE_NS; /* waiting for another thread that opens the file */
	pdn_trace_call_names(calls);
}

void tear_down(void)
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

const char *printed(void)
{
	static char text[4096];
	ssize_t length = pread(heard, text, sizeof(text) - 1, 0);

	text[length > 0 ? length : 0] = '\0';
	return text;
}

/* Where a tick is long, two calls in one tick could as well be one within the other. */
void call_at(uint64_t addr)
{
	static __thread uint64_t last;
	uint64_t begin;

	while ((begin = pdn_ticks()) == last)
		;
	last = pdn_ticks();
	pdn_trace_call(1, addr, 4096, 0, begin, last, 0);
}

static struct reader *reader;
struct event *events;
unsigned event_count;
static unsigned event_capacity;
struct counters counters;

void read_back(const char *name)
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
		if (event_count == event_capacity) {
			event_capacity = event_capacity ? event_capacity * 2 : 1000;
			events = realloc(events, event_capacity * sizeof(*events));
			ck_assert_ptr_nonnull(events);
		}
		events[event_count] = event;
		events[event_count++].record.text = NULL;
	}
}

char *own_name(int pid, const char *tail)
{
	static char name[64];

	snprintf(name, sizeof(name), "t.%d%s.pdt", pid, tail);
	return name;
}

bool exists(const char *name)
{
	return access(name, F_OK) == 0;
}

int in_child(void (*function)(void), int *child)
{
	int status, pid = fork();

	/*
	 * The child first: an assertion allocates memory, and another thread may have held the
	 * allocator's lock at the fork.
	 */
	if (pid == 0) {
		function();
		_exit(0);
	}
	ck_assert_int_ge(pid, 0);
	if (child)
		*child = pid;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

unsigned count_events(enum pdn_event event)
{
	unsigned n = 0;

	for (unsigned i = 0; i < event_count; i++)
		n += events[i].record.event == event;
	return n;
}

void expect_one_line(const char *words)
{
	const char *text = printed();

	ck_assert_msg(strstr(text, words), "'%s' is not in: %s", words, text);
	ck_assert_msg(strchr(text, '\n') == strrchr(text, '\n'), "more than a line: %s", text);
}

static void count_journal(const struct pdn_journal *journal, uint64_t at, int segment,
			  const struct shmid_ds *about, void *context)
{
	unsigned *counts = context;

	(void)at;
	(void)segment;
	/* One that is removed stays as long as another process looks through all journals. */
	if (!(about->shm_perm.mode & SHM_DEST))
		counts[1] += journal->pid == counts[0];
}

unsigned journals_of(int pid)
{
	unsigned counts[2] = {(unsigned)pid, 0};

	pdn_journal_each(count_journal, counts);
	return counts[1];
}

void put_file(const char *name, const char *text)
{
	FILE *file = fopen(name, "w");

	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

struct pdn_trace_header read_header(const char *name)
{
	struct pdn_trace_header header;
	int fd = open(name, O_RDONLY);

	ck_assert_int_eq(read(fd, &header, sizeof(header)), sizeof(header));
	close(fd);
	return header;
}

TCase *add_case(Suite *suite, const char *name, const TTest *const *tests)
{
	TCase *tcase = suite_case(suite, name, set_up, tear_down);

	for (; *tests; tests++)
		tcase_add_test(tcase, *tests);
	return tcase;
}
