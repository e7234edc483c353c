/* SPDX-License-Identifier: MIT */
/* Call sites: how often each place in the program called, and how long that took. */
#ifndef SITES_H
#define SITES_H

#include "tools/trace/reader.h"

/* One call of one caller, summed over all its call stacks. */
struct site {
	const char *caller; /* text of symbols_caller_text() */
	const char *what;   /* the call's name, or "pin" */
	uint64_t count, failed, ns, bytes;
};

/* Counts for one call stack of one file. */
struct stack_count {
	uint64_t calls, calls_failed, calls_ns, calls_bytes;
	uint64_t pins, pins_failed, pins_ns, pins_bytes;
	unsigned call; /* the number of the call; a stack has only one */
};

struct sites {
	struct stack_count **of_file; /* by file, then by index in its list of stacks */
	unsigned files;
	struct site *list; /* after sites_sum_up(); most time first */
	unsigned count, capacity;
};

void sites_begin(struct sites *sites, const struct reader *reader);
void sites_count(struct sites *sites, const struct event *event);
/* Finds the caller of each stack and adds up the stacks of the same caller. */
void sites_sum_up(struct sites *sites, const struct reader *reader);
void sites_free(struct sites *sites);

#endif
