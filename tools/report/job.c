// SPDX-License-Identifier: MIT
/* pindown report DIR: compares the processes of a job, and names those that stand out. */
#define _GNU_SOURCE
#include "tools/report/job.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/base/memory.h"
#include "tools/base/texts.h"
#include "tools/command.h"
#include "tools/report/html.h"
#include "tools/trace/rank.h"
#include "tools/trace/symbols.h"

struct job_words job_words(enum job_figure figure)
{
	const struct answer_words *words;

	if (figure == JOB_PEAK)
		return (struct job_words){"peak_bytes", "Pinned at the peak", 'b', FACT};
	if (figure == JOB_PIN_NS)
		return (struct job_words){"pin_ns", "Time in pins", 'n', FACT};
	if (figure == JOB_MISSES)
		return (struct job_words){"misses", "Misses", 0, FACT};
	words = &answer_words[figure - JOB_ANSWER];
	return (struct job_words){words->is_size ? words->bytes_key : words->key, words->what,
				  words->is_size ? 'b' : 0, words->gravity};
}

bool job_is_shown(const struct job *job, enum job_figure figure)
{
	return figure < JOB_ANSWER || figure >= JOB_PIN_NS || job->spreads[figure].most ||
	       !answer_words[figure - JOB_ANSWER].if_any;
}

struct out_text job_text(enum job_figure figure, uint64_t value)
{
	char unit = job_words(figure).unit;

	return unit == 'b'   ? bytes_text(value)
	       : unit == 'n' ? duration_text(value)
			     : count_text(value);
}

bool job_is_folder(const char *name)
{
	struct stat status;

	return stat(name, &status) == 0 && S_ISDIR(status.st_mode);
}

/* ---- reading -------------------------------------------------------------------------------- */

static const char *host_of(struct job *job, const char *name)
{
	/* Neighbours in the folder are mostly of one host. */
	for (unsigned i = job->host_count; i-- > 0;)
		if (strcmp(job->hosts[i], name) == 0)
			return job->hosts[i];
	job->hosts = grow(job->hosts, &job->host_capacity, job->host_count, sizeof(*job->hosts));
	return job->hosts[job->host_count++] = text_of("%s", name);
}

static void count(struct job *job, char *trace, const struct reader *reader,
		  const struct tally *tally)
{
	const struct trace_file *file = reader_file(reader, 0);
	struct job_process *process;

	job->processes = grow(job->processes, &job->capacity, job->count, sizeof(*job->processes));
	process = &job->processes[job->count++];
	*process = (struct job_process){.trace = trace,
					.host = host_of(job, file->host),
					.rank = file->rank,
					.pid = file->header.pid,
					.bad = answers_are_bad(tally->answers.all),
					.hits = tally->counters.hits,
					.pins = tally->all.pins,
					.span = tally->span,
					.figures = {[JOB_PEAK] = tally->all.peak_bytes,
						    [JOB_PIN_NS] = tally->all.ns,
						    [JOB_MISSES] = tally->counters.misses}};
	for (unsigned i = 0; i < ANSWERS; i++) {
		process->figures[JOB_ANSWER + i] = answer_figure(tally->answers.all, i);
		if (report_none(tally, answer_words[i].events))
			process->unknown |= 1ull << i;
		if (answer_words[i].gravity == WRONG)
			process->problems += tally->answers.all[i].count;
	}
}

/* Takes over `trace`. */
static void read_trace(struct job *job, char *trace)
{
	struct reader *reader = reader_open(&trace, 1);
	struct tally *tally;

	if (!reader) {
		job->unreadable++;
		verdict_unread(&job->verdict, trace);
		release(trace);
		return;
	}
	tally = tally_make(reader, 1, 0);
	job->unreadable += reader_damaged(reader);
	count(job, trace, reader, tally);
	if (job->checks)
		verdict_add(&job->verdict, reader, tally);
	tally_free(tally, reader);
	symbols_free();
	reader_close(reader);
}

static int is_trace(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return length > 4 && strcmp(entry->d_name + length - 4, ".pdt") == 0;
}

/* False, after one line, when the folder has no traces. */
static bool read_folder(struct job *job)
{
	struct dirent **found;
	int number = scandir(job->folder, &found, is_trace, versionsort);

	if (number < 0) {
		complain("%s: %s", job->folder, strerror(errno));
		return false;
	}
	for (int i = 0; i < number; i++) {
		read_trace(job, text_of("%s/%s", job->folder, found[i]->d_name));
		free(found[i]);
	}
	free(found);
	if (!number)
		complain("%s: no file in this folder is named .pdt", job->folder);
	return job->count > 0;
}

/* ---- comparing ------------------------------------------------------------------------------ */

static int compare_numbers(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

	return (one > other) - (one < other);
}

static struct job_spread spread_of(const struct job *job, enum job_figure figure)
{
	uint64_t *sorted = allocate(job->count * sizeof(*sorted)), most = 0;
	struct job_spread spread = {.most = NULL};

	for (unsigned i = 0; i < job->count; i++) {
		const struct job_process *process = &job->processes[i];

		sorted[i] = process->figures[figure];
		spread.total += sorted[i];
		spread.processes += sorted[i] != 0;
		if (figure >= JOB_ANSWER && figure < JOB_PIN_NS)
			spread.unknown += process->unknown >> (figure - JOB_ANSWER) & 1;
		if (sorted[i] > most) {
			most = sorted[i];
			spread.most = process;
		}
	}
	sort(sorted, job->count, sizeof(*sorted), compare_numbers);
	spread.median = sorted[job->count / 2];
	release(sorted);
	return spread;
}

static int compare_ranks(const void *a, const void *b)
{
	const struct job_process *one = a, *other = b;

	if (one->rank != other->rank)
		return one->rank < other->rank ? -1 : 1;
	return (one->pid > other->pid) - (one->pid < other->pid);
}

/* Expects the processes in the order of their ranks. */
static void find_ranks(struct job *job)
{
	int64_t before = NO_RANK;

	job->highest = job->processes[job->count - 1].rank;
	job->missing = allocate(MAX_MISSING * sizeof(*job->missing));
	for (unsigned i = 0; i < job->count; i++) {
		int64_t rank = job->processes[i].rank;
		bool again = i > 1 && job->processes[i - 2].rank == rank;

		if (rank == NO_RANK)
			continue;
		if (rank == before && job->ranks) {
			job->repeated += !again;
			continue;
		}
		for (int64_t gap = before + 1; gap < rank && job->missing_count < MAX_MISSING;
		     gap++)
			job->missing[job->missing_count++] = gap;
		job->ranks++;
		before = rank;
	}
}

static int compare_badness(const void *a, const void *b)
{
	const struct job_process *one = a, *other = b;

	if (one->problems != other->problems)
		return one->problems > other->problems ? -1 : 1;
	if (one->figures[JOB_PEAK] != other->figures[JOB_PEAK])
		return one->figures[JOB_PEAK] > other->figures[JOB_PEAK] ? -1 : 1;
	return compare_ranks(a, b);
}

static void compare(struct job *job)
{
	sort(job->processes, job->count, sizeof(*job->processes), compare_ranks);
	find_ranks(job);
	sort(job->processes, job->count, sizeof(*job->processes), compare_badness);
	for (unsigned i = 0; i < JOB_FIGURES; i++)
		job->spreads[i] = spread_of(job, i);
}

/* ---- printing ------------------------------------------------------------------------------- */

static char *put_rank(char *at, const struct job_process *process)
{
	if (process->rank == NO_RANK)
		return put_right(at, "-", 8);
	return put_decimal_right(at, (uint64_t)process->rank, 8);
}

static void print_ranks(const struct job *job)
{
	uint64_t without = (uint64_t)job->highest + 1 - job->ranks;

	if (job->highest == NO_RANK) {
		out_print("  no trace names its rank\n");
		return;
	}
	out_print("  %s ranks", count_text(job->ranks).text);
	out_print(", the highest is %lld\n", (long long)job->highest);
	if (job->missing_count) {
		out_print("  %sno trace of %s rank%s:", out_yellow(), count_text(without).text,
			  without == 1 ? "" : "s");
		for (unsigned i = 0; i < job->missing_count && i < SHORT_LIST; i++)
			out_print(" %lld", (long long)job->missing[i]);
		out_print("%s%s\n", without > SHORT_LIST ? " ..." : "", out_plain());
	}
	if (job->repeated)
		out_print("  %s rank%s more than one trace: children, an exec, or a second run\n",
			  count_text(job->repeated).text, job->repeated == 1 ? " has" : "s have");
}

static void print_heading(const struct job *job)
{
	out_print("%s%s%s\n", out_bold(), job->folder, out_plain());
	out_print("  %s processes", count_text(job->count).text);
	out_print(" on %s host%s\n", count_text(job->host_count).text,
		  job->host_count == 1 ? "" : "s");
	print_ranks(job);
	if (job->unreadable)
		out_print("  %s%s trace%s could not be read, or only in part%s\n", out_red(),
			  count_text(job->unreadable).text, job->unreadable == 1 ? "" : "s",
			  out_plain());
}

static void print_spread(const struct job *job, enum job_figure figure)
{
	const struct job_spread *spread = &job->spreads[figure];
	char *at = put_left(put_text(out_reserve(), "  "), small_name(job_words(figure).what), 24);
	char text[64];

	if (!spread->most) {
		snprintf(text, sizeof(text), "unknown in %u of %u", spread->unknown, job->count);
		at = put_text(at, spread->unknown ? out_yellow() : out_green());
		at = put_text(put_text(at, spread->unknown ? text : "none"), out_plain());
		*at++ = '\n';
		out_commit(at);
		return;
	}
	if (spread->most->figures[figure] == spread->median)
		snprintf(text, sizeof(text), "many");
	else if (spread->most->rank == NO_RANK)
		snprintf(text, sizeof(text), "process %u", spread->most->pid);
	else
		snprintf(text, sizeof(text), "rank %u", (unsigned)spread->most->rank);
	at = put_right(at, job_text(figure, spread->most->figures[figure]).text, 9);
	at = put_left(put_text(at, "  "), text, 14);
	at = put_right(at, job_text(figure, spread->median).text, 10);
	at = put_right(at, job_text(figure, spread->total).text, 10);
	at = put_decimal_right(at, spread->processes, 8);
	*at++ = '\n';
	out_commit(at);
}

/* The columns of the table of processes. */
static const struct {
	const char *title;
	enum answer answer;
} columns[] = {{"stale", ANSWER_STALE},
	       {"exports", ANSWER_EXPORTS},
	       {"held", ANSWER_HELD},
	       {"failed", ANSWER_FAILED_PINS},
	       {"missed", ANSWER_MISSED}};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static void print_process(const struct job_process *process)
{
	char host[24];
	char *at = out_reserve();

	snprintf(host, sizeof(host), "%.12s", process->host);
	at = put_rank(at, process);
	at = put_decimal_right(at, process->pid, 9);
	at = put_left(put_text(at, "  "), host, 13);
	at = put_right(at, bytes_text(process->figures[JOB_PEAK]).text, 9);
	at = put_text(at, process->problems ? out_red() : "");
	for (unsigned i = 0; i < COLUMNS; i++)
		at = put_right(at,
			       count_text(process->figures[JOB_ANSWER + columns[i].answer]).text,
			       (unsigned)strlen(columns[i].title) + 2);
	at = put_text(at, process->problems ? out_plain() : "");
	*at++ = '\n';
	out_commit(at);
}

static void print_processes(const struct job *job, const struct report_wishes *wishes)
{
	unsigned shown = wishes->all || job->count <= SHORT_LIST ? job->count : SHORT_LIST;

	report_heading("Processes, the worst first");
	out_print("  %s  rank  process  host              peak", out_dim());
	for (unsigned i = 0; i < COLUMNS; i++)
		out_print("  %s", columns[i].title);
	out_print("%s\n", out_plain());
	for (unsigned i = 0; i < shown; i++)
		print_process(&job->processes[i]);
	if (shown < job->count)
		out_print("  and %s more (--all shows them)\n",
			  count_text(job->count - shown).text);
	out_print("\nOne of them in full: pindown report %s\n", job->processes[0].trace);
}

static void print(const struct job *job, const struct report_wishes *wishes)
{
	print_heading(job);
	report_heading("Outliers");
	out_print("  %s                             most  by                median     total   "
		  "not 0%s\n",
		  out_dim(), out_plain());
	for (unsigned i = 0; i < JOB_FIGURES; i++)
		if (job_is_shown(job, i))
			print_spread(job, i);
	print_processes(job, wishes);
}

static bool write_page(const struct job *job, const struct report_wishes *wishes)
{
	if (!html_begin(wishes->html))
		return false;
	print(job, wishes);
	html_data();
	job_json(job);
	return html_end(wishes->html);
}

/* ---- all ------------------------------------------------------------------------------------ */

static void free_job(struct job *job)
{
	for (unsigned i = 0; i < job->count; i++)
		release(job->processes[i].trace);
	for (unsigned i = 0; i < job->host_count; i++)
		release(job->hosts[i]);
	release(job->processes);
	release(job->hosts);
	release(job->missing);
}

int job_report(const char *folder, const struct report_wishes *wishes)
{
	struct job job = {.folder = folder, .checks = wishes->check};
	int status = STATUS_OK;

	if (!read_folder(&job))
		return wishes->check ? STATUS_UNKNOWN : STATUS_DAMAGED;
	compare(&job);
	if (wishes->json)
		job_json(&job);
	else if (!report_is_page(wishes))
		print(&job, wishes);
	out_flush();
	if (wishes->check)
		status = report_judge(&job.verdict, wishes);
	if (status == STATUS_OK && job.unreadable)
		status = wishes->check ? STATUS_UNKNOWN : STATUS_DAMAGED;
	if (wishes->html && !write_page(&job, wishes))
		status = STATUS_DAMAGED;
	free_job(&job);
	return status;
}
