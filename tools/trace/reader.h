/* SPDX-License-Identifier: MIT */
/*
 * The events of one or more traces, in the order in which they began.
 *
 * In a file each thread's events lie in the order in which they ended. A call that frees memory
 * began before the invalidation that it caused, so that people want the other order. Within a chunk
 * that is a sort; an event that began before its chunk (`early`) is known from a first look through
 * the file and comes from a list beside. So one chunk for each thread is in memory at a time.
 */
#ifndef READER_H
#define READER_H

#include <stdbool.h>
#include <stdint.h>

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
 * `names`: files, or families (app.pdt for app.<pid>.pdt). NULL when none of them can be read,
 * after one line on standard error for each.
 */
struct reader *reader_open(char *const *names, unsigned count);
void reader_close(struct reader *reader);

/*
 * For files that are being written: the same files, opened anew, and what was added to their family,
 * from where the reader given came to, which is closed. Never NULL; nothing new, or nothing there any
 * more: no events.
 */
struct reader *reader_again(struct reader *reader, char *const *names, unsigned count);
/* Some process is still there that may add to its file. */
bool reader_grows(const struct reader *reader);

bool reader_next(struct reader *reader, struct event *event);

unsigned reader_files(const struct reader *reader);
const struct trace_file *reader_file(const struct reader *reader, unsigned i);

/* Some file could not be read, or not wholly. */
bool reader_damaged(const struct reader *reader);
/* ns from the first event to the last. */
uint64_t reader_span(const struct reader *reader);

/* One line for each file that is cut or has no end mark, for people: into `text`; false for none.
 */
bool reader_note(const struct trace_file *file, char *text, size_t capacity);
/* All of them on standard error. */
void reader_complain(const struct reader *reader);

/* Files that a name stands for; false when there is none. Tells on standard error. */
bool family_find(const char *name, char ***files, unsigned *count, unsigned *capacity);

#endif
