/* SPDX-License-Identifier: MIT */
/* The events that the user selects. */
#ifndef FILTER_H
#define FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/trace/reader.h"

struct filter {
	const char *call;	     /* NULL: any; else a glob */
	uint64_t from_addr, to_addr; /* both 0: any; else overlaps [from, to) */
	uint32_t thread;	     /* 0: any */
	uint32_t process;	     /* 0: any */
	uint64_t from_time, to_time; /* ns */
	uint32_t events;	     /* bits 1 << enum pdn_event; 0: all */
	bool failed, stale;
};

/* Each parses an option's value; false after one line that says which values are accepted. */
bool filter_addr(struct filter *filter, const char *text);
bool filter_thread(struct filter *filter, const char *text);
bool filter_process(struct filter *filter, const char *text);
bool filter_time(struct filter *filter, const char *text);
bool filter_events(struct filter *filter, const char *text);

bool filter_wants(const struct filter *filter, const struct event *event);

/*
 * Whether an event is about a registration that is stale: its memory was freed while it was in use,
 * or its free was noticed too late.
 */
bool event_stale(const struct event *event);

/* Whether an event reports a failure, or that something is stale. */
bool event_failed(const struct event *event);
/* A call of cuMemCreate in which pindown has set gpuDirectRDMACapable. */
bool event_was_made_capable(const struct event *event);
/* The event's extra, without the mark of this. */
uint64_t event_extra(const struct event *event);
/* Of a retire: reserved, escaped, released, given back, dropped; NULL: a later version's. */
const char *event_outcome(const struct record *record);

#endif
