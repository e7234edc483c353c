// SPDX-License-Identifier: MIT
/* Tells the runs of a family apart, and keeps the newest. */
#define _GNU_SOURCE
#include "tools/trace/runs.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tools/base/memory.h"
#include "tools/trace/reader.h"

/* A process: its time of day in ns, and the run to which it belongs. */
struct life {
	struct trace_file *file;
	uint64_t begin, end;
	const char *started_by; /* the mark of its `pindown run`; NULL: none */
	unsigned run;		/* index of another life of the run, or its own */
};

/* ---- one process ---------------------------------------------------------------------------- */

static const char *variable(const struct trace_file *file, const char *name)
{
	const char *end = file->environment + file->environment_bytes;
	size_t length = strlen(name);

	for (const char *at = file->environment; at < end; at += strlen(at) + 1)
		if (strncmp(at, name, length) == 0 && at[length] == '=' && at[length + 1])
			return at + length + 1;
	return NULL;
}

/* The pid may belong to another process by now: then its run seems to last until today. */
static bool still_runs(const struct trace_file *file)
{
	return !file->header.end.ticks && (kill((pid_t)file->header.pid, 0) == 0 || errno == EPERM);
}

static uint64_t end_of(const struct trace_file *file)
{
	unsigned hint = 0;
	uint64_t last = trace_file_ns(file, file->last_ticks, &hint);
	struct timespec now;

	if (still_runs(file) && clock_gettime(CLOCK_REALTIME, &now) == 0)
		return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	return file->header.begin.realtime + (last > file->first_ns ? last - file->first_ns : 0);
}

/* ---- runs ----------------------------------------------------------------------------------- */

static unsigned run_of(struct life *lives, unsigned i)
{
	while (lives[i].run != i)
		i = lives[i].run = lives[lives[i].run].run;
	return i;
}

/*
 * Whether a process with the number of the child's parent can be that. Without an end mark it may
 * have lived longer than its trace shows.
 */
static bool may_have_started(const struct life *parent, const struct life *child)
{
	return parent != child && parent->begin <= child->begin &&
	       !parent->file->header.end.ticks &&
	       strcmp(parent->file->host, child->file->host) == 0;
}

static bool same_start(const struct life *one, const struct life *other)
{
	return one->started_by && other->started_by &&
	       strcmp(one->started_by, other->started_by) == 0;
}

static int compare_begins(const void *a, const void *b)
{
	const struct life *one = a, *other = b;

	return (one->begin > other->begin) - (one->begin < other->begin);
}

static int compare_starts(const void *a, const void *b)
{
	const struct life *one = *(struct life *const *)a, *other = *(struct life *const *)b;

	return strcmp(one->started_by ? one->started_by : "",
		      other->started_by ? other->started_by : "");
}

static int compare_pids(const void *a, const void *b)
{
	const struct life *one = *(struct life *const *)a, *other = *(struct life *const *)b;

	return (one->file->header.pid > other->file->header.pid) -
	       (one->file->header.pid < other->file->header.pid);
}

static void join(struct life *lives, unsigned i, unsigned j)
{
	lives[run_of(lives, i)].run = run_of(lives, j);
}

/* `lives` is sorted by begin, so a process joins those before it if any of them has not ended. */
static void join_overlapping(struct life *lives, unsigned count)
{
	unsigned longest = 0;

	for (unsigned i = 1; i < count; i++) {
		if (lives[i].begin <= lives[longest].end)
			join(lives, i, longest);
		if (lives[i].end > lives[longest].end)
			longest = i;
	}
}

static void join_started_together(struct life *lives, struct life **sorted, unsigned count)
{
	sort(sorted, count, sizeof(*sorted), compare_starts);
	for (unsigned i = 1; i < count; i++)
		if (same_start(sorted[i - 1], sorted[i]))
			join(lives, (unsigned)(sorted[i - 1] - lives),
			     (unsigned)(sorted[i] - lives));
}

static unsigned first_with(struct life *const *sorted, unsigned count, uint64_t pid)
{
	unsigned low = 0, high = count;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;

		if (sorted[middle]->file->header.pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void join_children(struct life *lives, struct life **sorted, unsigned count)
{
	sort(sorted, count, sizeof(*sorted), compare_pids);
	for (unsigned i = 0; i < count; i++) {
		const struct pdn_trace_header *header = &lives[i].file->header;
		uint64_t parents[2] = {header->ppid, header->forked_from};

		for (unsigned k = 0; k < 2; k++)
			for (unsigned j = first_with(sorted, count, parents[k]);
			     j < count && sorted[j]->file->header.pid == parents[k]; j++)
				if (may_have_started(sorted[j], &lives[i]))
					join(lives, i, (unsigned)(sorted[j] - lives));
	}
}

static struct life *make_lives(struct trace_file **files, unsigned count)
{
	struct life *lives = allocate(count * sizeof(*lives));
	struct life **sorted = allocate(count * sizeof(*sorted));

	for (unsigned i = 0; i < count; i++)
		lives[i] = (struct life){.file = files[i],
					 .begin = files[i]->header.begin.realtime,
					 .end = end_of(files[i]),
					 .started_by = variable(files[i], "PINDOWNRUN")};
	sort(lives, count, sizeof(*lives), compare_begins);
	for (unsigned i = 0; i < count; i++) {
		lives[i].run = i;
		sorted[i] = &lives[i];
	}
	join_overlapping(lives, count);
	join_started_together(lives, sorted, count);
	join_children(lives, sorted, count);
	release(sorted);
	return lives;
}

/* ---- keeping one ---------------------------------------------------------------------------- */

static void name_file(const struct trace_file *file, struct texts *left_out)
{
	time_t began = (time_t)(file->header.begin.realtime / 1000000000u);
	char date[40] = "at an unknown time";
	struct tm when;
	char *text;

	if (localtime_r(&began, &when))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &when);
	text = text_of("%s (%s)", file->name, date);
	texts_add(left_out, text, strlen(text));
	release(text);
}

unsigned runs_keep_newest(struct trace_file **files, unsigned count, struct texts *left_out)
{
	struct life *lives;
	unsigned kept = 0, newest;

	if (count < 2)
		return count;
	lives = make_lives(files, count);
	newest = run_of(lives, count - 1);
	for (unsigned i = 0; i < count; i++)
		if (run_of(lives, i) != newest) {
			name_file(lives[i].file, left_out);
			lives[i].file->left_out = true;
		}
	release(lives);
	for (unsigned i = 0; i < count; i++) {
		if (files[i]->left_out)
			trace_file_close(files[i]);
		else
			files[kept++] = files[i];
	}
	return kept;
}
