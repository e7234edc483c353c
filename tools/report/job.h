/* SPDX-License-Identifier: MIT */
/*
 * `pindown report DIR`: the traces of a whole job. They are read one after another, so the memory
 * that this takes is that of the largest trace, and a line of figures for each process.
 */
#ifndef JOB_H
#define JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/report/report.h"

/* What is compared between the processes: the answers, and what they cost. */
enum job_figure {
	JOB_PEAK,   /* bytes pinned, at the peak */
	JOB_ANSWER, /* the first of ANSWERS */
	JOB_PIN_NS = JOB_ANSWER + ANSWERS,
	JOB_MISSES,
	JOB_FIGURES
};

struct job_process {
	char *trace;
	const char *host; /* in job.hosts */
	int64_t rank;	  /* or NO_RANK */
	uint32_t pid;
	bool bad;	   /* as --check finds */
	uint64_t problems; /* how many, the sort of them does not matter */
	uint64_t unknown;  /* bits: answers that the trace can't give where they are 0 */
	uint64_t hits, pins, span;
	uint64_t figures[JOB_FIGURES];
};

/* How a figure is distributed over the processes. */
struct job_spread {
	const struct job_process *most; /* NULL: it is 0 in all processes */
	uint64_t median, total;
	unsigned processes; /* in which it is not 0 */
	unsigned unknown;   /* processes whose trace can't tell */
};

struct job {
	const char *folder;
	struct job_process *processes; /* the worst first */
	unsigned count, capacity;
	char **hosts;
	unsigned host_count, host_capacity;
	bool checks; /* for --check: collects the verdict */
	struct verdict verdict;
	unsigned unreadable; /* traces that could not be read, or only in part */
	struct job_spread spreads[JOB_FIGURES];
	/* Ranks from 0 to the highest. */
	int64_t highest;	  /* NO_RANK: none is known */
	unsigned ranks, repeated; /* with a trace; with more than one */
	int64_t *missing;	  /* the first MAX_MISSING of those without */
	unsigned missing_count;
};
enum { MAX_MISSING = 100 };

struct job_words {
	const char *key, *what;
	char unit; /* 'b' for bytes, 'n' for ns, or 0 */
	enum gravity gravity;
};
struct job_words job_words(enum job_figure figure);
/* Whether it is shown: some answers only where some process has them. */
bool job_is_shown(const struct job *job, enum job_figure figure);

/* "1.5 GiB", "3 ms" or "12". */
struct out_text job_text(enum job_figure figure, uint64_t value);

/* Whether the argument is a folder. */
bool job_is_folder(const char *name);

/* Reads, prints, and returns the exit status. */
int job_report(const char *folder, const struct report_wishes *wishes);

/* The same as JSON (json.c). */
void job_json(const struct job *job);

#endif
