/* SPDX-License-Identifier: MIT */
/*
 * What `pindown report --check` decides: nothing is wrong, something is, or the traces cannot tell,
 * because a part of what happened is not in them.
 */
#ifndef VERDICT_H
#define VERDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/trace/reader.h"

struct tally;

struct verdict {
	char *found, *unknown; /* lists of texts, each with the file's name; NULL: empty */
	unsigned found_count, unknown_count;
	unsigned files, unended; /* unended: of `files`, without an end mark */
};

/* The events of a file that its process was to record, as bits 1 << enum pdn_event. */
uint64_t recorded_events(const struct trace_file *file);

/* Whether events that were to be recorded are missing. */
bool is_incomplete(const struct trace_file *file);

void verdict_add(struct verdict *verdict, const struct reader *reader, const struct tally *tally);
/* A trace that could not be opened. */
void verdict_unread(struct verdict *verdict, const char *name);
/* Ends the text and returns the exit status. The caller frees the text with release(). */
int verdict_end(struct verdict *verdict, char **text);

#endif
