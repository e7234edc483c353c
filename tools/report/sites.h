/* SPDX-License-Identifier: MIT */
/* Call sites: how often the program called from where, and what it cost. From the call stacks of a trace. */
#ifndef SITES_H
#define SITES_H

#include "tools/trace/reader.h"

/* One call stack's, while the events are counted; then those of all stacks of one caller together. */
struct site {
	const char *caller; /* text of symbols_caller_text() */
	const char *what;   /* the call's name, or "pin" */
	uint64_t count, failed, ns, bytes;
};

/* Of one file. */
struct stack_count {
	uint64_t calls, calls_failed, calls_ns, calls_bytes;
	uint64_t pins, pins_failed, pins_ns, pins_bytes;
	unsigned call; /* its number; a place calls one function */
};

struct sites {
	struct stack_count **of_file; /* by file, by place in its list of stacks */
	unsigned files;
	struct site *list; /* after sites_settle(), the most time first */
	unsigned count, capacity;
};

void sites_begin(struct sites *sites, const struct reader *reader);
void sites_count(struct sites *sites, const struct event *event);
/* Names the stacks and adds up those of the same caller. */
void sites_settle(struct sites *sites, const struct reader *reader);
void sites_free(struct sites *sites);

#endif
