/* SPDX-License-Identifier: MIT */
/* Streams and events. All functions need the API lock. */
#ifndef SIM_STREAMS_H
#define SIM_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"

struct sim_context;
struct sim_capture;
struct sim_node;

struct sim_stream {
	struct sim_context *context;
	unsigned flags;
	int priority;
	uint64_t id;
	bool special;		     /* a default stream */
	uint64_t thread;	     /* a default stream of this thread */
	struct sim_capture *capture; /* into this graph, or NULL */
	struct sim_node **frontier;  /* the nodes that the next captured work depends on */
	size_t frontier_count;
	struct sim_stream *next; /* default streams of threads */
};

struct sim_event {
	struct sim_context *context;
	unsigned flags;
	bool recorded;
	uint64_t time; /* ns */
	struct sim_capture
		*capture; /* recorded in a captured stream: a fork or join of the capture */
	struct sim_node **frontier;
	size_t frontier_count;
};

/* The stream of a handle, including 0, 1 and 2; NULL: no such stream. */
struct sim_stream *sim_stream_of(CUstream handle, bool per_thread);
/* The work before the event is done at once. */
void sim_event_done(struct sim_event *event);

#endif
