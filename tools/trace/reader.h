/* SPDX-License-Identifier: MIT */
/*
 * The events of one or more traces, in the order in which they began.
 *
 * In a file, each thread's events lie in the order in which they ended. But people expect a call
 * that frees memory before the invalidation that it causes. So the events of a chunk are sorted by
 * their begin. An event that began before its chunk (`early`) is found in a first pass through the
 * file and comes from a separate list. Thus only one chunk of each thread is in memory at a time.
 */
#ifndef READER_H
#define READER_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/base/texts.h"
#include "tools/trace/record.h"
#include "tools/trace/file.h"

struct event {
	uint64_t ts;   /* ns since the first trace began */
	uint64_t took; /* ns */
	uint32_t tid;
	const struct trace_file *file;
	struct record record; /* its text is good until the next event is asked for */
};

struct reader;

/*
 * `names`: files, or families (app.pdt for app.<pid>.pdt). A family stands for its newest run
 * (runs.h). A file that is named twice is read once. NULL when none of them can be read, after one
 * line on standard error for each.
 */
struct reader *reader_open(char *const *names, unsigned count);
void reader_close(struct reader *reader);

/*
 * For files that are being written: opens the same files again, and new ones of their family, and
 * continues where `reader` stopped, which is closed. Never NULL: if nothing is new, or the files
 * have disappeared, the reader returned has no events.
 */
struct reader *reader_again(struct reader *reader, char *const *names, unsigned count);
/* Whether some process is still running that may add to its file. */
bool reader_grows(const struct reader *reader);

bool reader_next(struct reader *reader, struct event *event);

unsigned reader_files(const struct reader *reader);
const struct trace_file *reader_file(const struct reader *reader, unsigned i);

/*
 * In tables of several processes a column "rank" names each by its rank, if all have one and no two
 * the same; else a column "pid" names each by its number.
 */
bool reader_shows_ranks(const struct reader *reader);
uint64_t reader_rank_or_pid(const struct reader *reader, const struct trace_file *file);
/* The title of the column, 8 characters wide; "": there is one process, and no such column. */
const char *reader_process_title(const struct reader *reader);

/* The names of what could not be opened. */
const struct texts *reader_unread(const struct reader *reader);
/* Whether some file could not be read, or only in part. */
bool reader_damaged(const struct reader *reader);
/* ns from the first event to the last. */
uint64_t reader_span(const struct reader *reader);

/*
 * The files of older runs that a family has and that were left out, each with its time; NULL: none.
 * The caller frees the text with release().
 */
char *reader_left_out(const struct reader *reader);

/* Writes a line into `text` if the file is cut or has no end mark; else returns false. */
bool reader_note(const struct trace_file *file, char *text, size_t capacity);
/* Prints these lines of all files, and the files left out, on standard error. */
void reader_complain(const struct reader *reader);

/* The files that a name stands for; false, after one line, when there are none. */
bool family_find(const char *name, char ***files, unsigned *count, unsigned *capacity);

#endif
