/* SPDX-License-Identifier: MIT */
/* Graphs, and the capture of streams into graphs. All functions need the API lock. */
#ifndef SIM_GRAPHS_H
#define SIM_GRAPHS_H

#include <stdbool.h>
#include <stddef.h>

#include "handles.h"
#include "memory.h"
#include "work.h"

struct sim_stream;
struct sim_event;

struct sim_node {
	struct sim_graph *graph;
	struct sim_work work;
	struct sim_node **dependencies;
	size_t dependency_count;
	size_t place; /* in its graph: always after its dependencies */
};

struct sim_graph {
	struct sim_node *
		*nodes; /* in the order in which they were added: an order to run them in */
	size_t count, capacity;
	uint64_t id;
	bool owned; /* a child node owns it: the program must not destroy it */
};

/* A capture: several streams may take part. */
struct sim_capture {
	struct sim_graph *graph;
	struct sim_stream *origin; /* NULL: ended */
	CUstreamCaptureMode mode;
	bool invalid;
	bool into_existing; /* cuStreamBeginCaptureToGraph and RecaptureToGraph */
	bool again;	    /* RecaptureToGraph: its nodes must come again, in the same order */
	size_t done;	    /* the number of these nodes that have come */
	uint64_t id, thread;
	unsigned users;		  /* streams and events */
	struct sim_capture *next; /* of those that have not ended */
};

/*
 * Some calls could have effects that the capture does not see. They are refused while this thread
 * is capturing, or another thread globally, and invalidate the capture.
 */
CUresult sim_capture_forbids(void);
/* The same for a call that waits for all streams of a context. */
CUresult sim_capture_forbids_waiting(const struct sim_context *context);

/* Frees memory of an allocation node: by a free node, cuMemFree or cuMemFreeAsync. */
void sim_graph_memory_free(struct sim_alloc *alloc);
static inline struct sim_graph *sim_graph_of(CUgraph handle)
{
	return sim_handle(handle, SIM_GRAPH_HANDLE);
}

static inline struct sim_node *sim_node_of(CUgraphNode handle)
{
	return sim_handle(handle, SIM_GRAPH_NODE);
}

struct sim_graph *sim_graph_new(void);
void sim_graph_delete(struct sim_graph *graph);
/* Adds a node that depends on others of the graph; an allocation node gets its address. */
CUresult sim_graph_add(struct sim_graph *graph, const struct sim_work *work,
		       struct sim_node *const *dependencies, size_t count, struct sim_node **node);

/* Does the graph, or a graph in it, allocate or free? */
bool sim_graph_has_memory_nodes(const struct sim_graph *graph);
struct sim_graph *sim_graph_copy(struct sim_graph *graph);
void sim_graph_remove(struct sim_node *node);
/* Makes one node wait for another. INVALID_VALUE: the dependencies would have a cycle. */
CUresult sim_graph_connect(struct sim_node *early, struct sim_node *late);
CUresult sim_graph_run(struct sim_graph *graph);
/* The memory at an allocation node's address now. */
bool sim_graph_memory_mapped(uint64_t addr);
void sim_graph_memory_unmap(uint64_t addr);

/* capture.c */
CUresult sim_capture_work(struct sim_stream *stream, const struct sim_work *work,
			  struct sim_node **node);
CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event);
CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event);
void sim_capture_invalidate(struct sim_stream *stream);
/* The stream is destroyed while it is being captured. */
void sim_capture_abandon(struct sim_stream *stream);
void sim_capture_drop(struct sim_capture *capture);
/* Is a stream being captured into it? */
bool sim_graph_captured(const struct sim_graph *graph);
bool sim_comes_before(const struct sim_node *early, const struct sim_node *late);
/* Was it recorded in a capture that has not ended? */
bool sim_event_captured(struct sim_event *event);

#endif
