/* SPDX-License-Identifier: MIT */
/*
 * Stream capture: submitted work becomes nodes of a graph instead of being done. Other streams join
 * by waiting for an event that was recorded in the capture, and must be joined back in the same way
 * before its end.
 */
#include <stdlib.h>
#include <string.h>

#include "contexts.h"
#include "core.h"
#include "graphs.h"
#include "handles.h"
#include "streams.h"

static uint64_t last_capture, last_thread;
static __thread uint64_t this_thread;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static struct sim_capture *captures; /* those that have not ended */

CUresult sim_capture_forbids(void)
{
	CUresult result = CUDA_SUCCESS;
	struct sim_capture *capture;

	if (likely(!captures) || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (capture = captures; capture; capture = capture->next) {
		bool own = capture->thread == this_thread;

		if (own ? capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED
			: capture->mode != CU_STREAM_CAPTURE_MODE_GLOBAL ||
				    thread_mode != CU_STREAM_CAPTURE_MODE_GLOBAL)
			continue;
		capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

CUresult sim_capture_forbids_waiting(const struct sim_context *context)
{
	CUresult result = sim_capture_forbids();
	struct sim_capture *capture;

	for (capture = captures; capture; capture = capture->next) {
		if (capture->origin->context != context)
			continue;
		capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

static uint64_t thread_number(void)
{
	if (!this_thread)
		this_thread = ++last_thread;
	return this_thread;
}

void sim_capture_drop(struct sim_capture *capture)
{
	if (--capture->users == 0)
		free(capture);
}

static bool set_frontier(struct sim_node ***frontier, size_t *count, struct sim_node *const *nodes,
			 size_t nodes_count)
{
	struct sim_node **copy = malloc((nodes_count ? nodes_count : 1) * sizeof(*copy));

	if (!copy)
		return false;
	if (nodes_count)
		memcpy(copy, nodes, nodes_count * sizeof(*copy));
	free(*frontier);
	*frontier = copy;
	*count = nodes_count;
	return true;
}

/* ---- what is captured ----------------------------------------------------------------------- */

/*
 * The next node must be of the same kind, and allocate or free the same memory; all else is
 * replaced by the captured work.
 */
static CUresult recapture(struct sim_capture *capture, const struct sim_work *work,
			  struct sim_node **out)
{
	struct sim_graph *graph = capture->graph;
	struct sim_node *node = capture->done < graph->count ? graph->nodes[capture->done] : NULL;

	if (!node || node->work.type != work->type ||
	    (work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
	     work->alloc.size != node->work.alloc.size) ||
	    (work->type == CU_GRAPH_NODE_TYPE_MEM_FREE && work->free != node->work.free)) {
		capture->invalid = true;
		return CUDA_ERROR_GRAPH_RECAPTURE_FAILURE;
	}
	if (work->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		node->work = *work;
	capture->done++;
	*out = node;
	return CUDA_SUCCESS;
}

CUresult sim_capture_work(struct sim_stream *stream, const struct sim_work *work,
			  struct sim_node **out)
{
	struct sim_node *node;
	CUresult result;

	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (stream->capture->again)
		result = recapture(stream->capture, work, &node);
	else
		result = sim_graph_add(stream->capture->graph, work, stream->frontier,
				       stream->frontier_count, &node);
	if (result != CUDA_SUCCESS)
		return result;
	if (!set_frontier(&stream->frontier, &stream->frontier_count, &node, 1))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (out)
		*out = node;
	return CUDA_SUCCESS;
}

void sim_capture_invalidate(struct sim_stream *stream)
{
	stream->capture->invalid = true;
}

CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event)
{
	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!set_frontier(&event->frontier, &event->frontier_count, stream->frontier,
			  stream->frontier_count))
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->capture->users++;
	if (event->capture)
		sim_capture_drop(event->capture);
	event->capture = stream->capture;
	return CUDA_SUCCESS;
}

bool sim_event_captured(struct sim_event *event)
{
	if (event->capture && !event->capture->origin) { /* the capture has ended */
		sim_capture_drop(event->capture);
		event->capture = NULL;
	}
	return event->capture != NULL;
}

CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event)
{
	size_t count = stream->frontier_count + event->frontier_count;
	struct sim_node **both;

	if (stream->capture && stream->capture != event->capture)
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	if (event->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!stream->capture && stream->special && !stream->thread)
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	both = malloc((count ? count : 1) * sizeof(*both));
	if (!both)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (stream->frontier_count)
		memcpy(both, stream->frontier, stream->frontier_count * sizeof(*both));
	if (event->frontier_count)
		memcpy(both + stream->frontier_count, event->frontier,
		       event->frontier_count * sizeof(*both));
	free(stream->frontier);
	stream->frontier = both;
	stream->frontier_count = count;
	if (!stream->capture) {
		stream->capture = event->capture;
		stream->capture->users++;
	}
	return CUDA_SUCCESS;
}

/* ---- the end -------------------------------------------------------------------------------- */

static void leave(struct sim_stream *stream)
{
	struct sim_capture *capture = stream->capture;

	stream->capture = NULL;
	free(stream->frontier);
	stream->frontier = NULL;
	stream->frontier_count = 0;
	sim_capture_drop(capture);
}

/* All streams leave; events see by the missing origin that the capture is over. */
static void end_capture(struct sim_capture *capture)
{
	struct sim_capture **at = &captures;
	unsigned long position = 0;
	struct sim_stream *stream;

	while (*at != capture)
		at = &(*at)->next;
	*at = capture->next;
	capture->origin = NULL;
	capture->users++; /* until all have left */
	while ((stream = sim_handle_next(SIM_STREAM, &position)))
		if (stream->capture == capture)
			leave(stream);
	sim_capture_drop(capture);
}

void sim_capture_abandon(struct sim_stream *stream)
{
	struct sim_capture *capture = stream->capture;

	if (capture->origin != stream) {
		capture->invalid = true;
		leave(stream);
		return;
	}
	if (!capture->into_existing)
		sim_graph_delete(capture->graph);
	end_capture(capture);
}

static bool joined(const struct sim_stream *fork, const struct sim_stream *origin)
{
	size_t i, j;

	for (i = 0; i < fork->frontier_count; i++) {
		for (j = 0; j < origin->frontier_count; j++)
			if (sim_comes_before(fork->frontier[i], origin->frontier[j]))
				break;
		if (j == origin->frontier_count)
			return false;
	}
	return true;
}

bool sim_graph_captured(const struct sim_graph *graph)
{
	unsigned long position = 0;
	struct sim_stream *stream;

	while ((stream = sim_handle_next(SIM_STREAM, &position)))
		if (stream->capture && stream->capture->graph == graph)
			return true;
	return false;
}

static bool all_joined(const struct sim_capture *capture)
{
	unsigned long position = 0;
	struct sim_stream *stream;

	while ((stream = sim_handle_next(SIM_STREAM, &position)))
		if (stream->capture == capture && !joined(stream, capture->origin))
			return false;
	return true;
}

static CUresult end(CUstream handle, bool per_thread, CUgraph *graph)
{
	struct sim_stream *stream = sim_stream_of(handle, per_thread);
	struct sim_capture *capture = stream ? stream->capture : NULL;
	CUresult result = CUDA_SUCCESS;
	struct sim_graph *made;

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = NULL;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->origin != stream)
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_number())
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	if (capture->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (capture->again && capture->done < capture->graph->count)
		result = CUDA_ERROR_GRAPH_RECAPTURE_FAILURE;
	else if (!all_joined(capture))
		result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	made = capture->graph;
	if (result == CUDA_SUCCESS)
		*graph = (CUgraph)made;
	else if (!capture->into_existing)
		sim_graph_delete(made);
	end_capture(capture);
	return result;
}

SIM_CTX_CALL(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph))
{
	return end(stream, false, graph);
}

SIM_CTX_CALL(cuStreamEndCapture_ptsz, (CUstream stream, CUgraph *graph), (stream, graph))
{
	return end(stream, true, graph);
}

/* ---- the beginning -------------------------------------------------------------------------- */

static CUresult begin(CUstream handle, bool per_thread, CUstreamCaptureMode mode,
		      struct sim_graph *graph, struct sim_node *const *nodes, size_t count)
{
	struct sim_stream *stream = sim_stream_of(handle, per_thread);
	struct sim_capture *capture;

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->special && !stream->thread)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	capture = calloc(1, sizeof(*capture));
	if (!capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	capture->into_existing = graph != NULL;
	capture->graph = graph ? graph : sim_graph_new();
	if (!capture->graph ||
	    !set_frontier(&stream->frontier, &stream->frontier_count, nodes, count)) {
		free(capture);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	capture->origin = stream;
	capture->mode = mode;
	capture->id = ++last_capture;
	capture->thread = thread_number();
	capture->users = 1;
	stream->capture = capture;
	capture->next = captures;
	captures = capture;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuStreamBeginCapture, (CUstream stream), (stream))
{
	return begin(stream, false, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0);
}

SIM_CTX_CALL(cuStreamBeginCapture_ptsz, (CUstream stream), (stream))
{
	return begin(stream, true, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0);
}

SIM_CTX_CALL(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
{
	return begin(stream, false, mode, NULL, NULL, 0);
}

SIM_CTX_CALL(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode),
	     (stream, mode))
{
	return begin(stream, true, mode, NULL, NULL, 0);
}

static CUresult begin_into(CUstream stream, bool per_thread, CUgraph handle,
			   const CUgraphNode *dependencies, size_t count, CUstreamCaptureMode mode)
{
	struct sim_graph *graph = sim_handle(handle, SIM_GRAPH_HANDLE);
	size_t i;

	if (!graph || (count && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++) {
		struct sim_node *node = sim_handle(dependencies[i], SIM_GRAPH_NODE);

		if (!node || node->graph != graph)
			return CUDA_ERROR_INVALID_VALUE;
	}
	return begin(stream, per_thread, mode, graph, (struct sim_node *const *)dependencies,
		     count);
}

SIM_CTX_CALL(cuStreamBeginCaptureToGraph,
	     (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
	      const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode),
	     (stream, graph, dependencies, edges, count, mode))
{
	(void)edges;
	return begin_into(stream, false, graph, dependencies, count, mode);
}

SIM_CTX_CALL(cuStreamBeginCaptureToGraph_ptsz,
	     (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
	      const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode),
	     (stream, graph, dependencies, edges, count, mode))
{
	(void)edges;
	return begin_into(stream, true, graph, dependencies, count, mode);
}

static CUresult begin_again(CUstream handle, bool per_thread, CUstreamCaptureMode mode,
			    CUgraph graph)
{
	CUresult result = begin_into(handle, per_thread, graph, NULL, 0, mode);

	if (result == CUDA_SUCCESS)
		sim_stream_of(handle, per_thread)->capture->again = true;
	return result;
}

/* Nodes with other parameters are changed without a check: their work is hardly simulated. */
SIM_CTX_CALL(cuStreamBeginRecaptureToGraph,
	     (CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
	      CUgraphRecaptureCallback callback, void *data),
	     (stream, mode, graph, callback, data))
{
	(void)callback;
	(void)data;
	return begin_again(stream, false, mode, graph);
}

SIM_CTX_CALL(cuStreamBeginRecaptureToGraph_ptsz,
	     (CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
	      CUgraphRecaptureCallback callback, void *data),
	     (stream, mode, graph, callback, data))
{
	(void)callback;
	(void)data;
	return begin_again(stream, true, mode, graph);
}

/* ---- questions ------------------------------------------------------------------------------ */

static CUstreamCaptureStatus status_of(const struct sim_stream *stream)
{
	if (!stream->capture)
		return CU_STREAM_CAPTURE_STATUS_NONE;
	return stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					: CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUresult is_capturing(CUstream handle, bool per_thread, CUstreamCaptureStatus *status)
{
	struct sim_stream *stream = sim_stream_of(handle, per_thread);

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	*status = status_of(stream);
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status),
	     (stream, status))
{
	return is_capturing(stream, false, status);
}

SIM_CTX_CALL(cuStreamIsCapturing_ptsz, (CUstream stream, CUstreamCaptureStatus *status),
	     (stream, status))
{
	return is_capturing(stream, true, status);
}

static CUresult capture_info(CUstream handle, bool per_thread, CUstreamCaptureStatus *status,
			     cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
			     size_t *count)
{
	struct sim_stream *stream = sim_stream_of(handle, per_thread);

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	*status = status_of(stream);
	if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_SUCCESS;
	if (id)
		*id = stream->capture->id;
	if (graph)
		*graph = (CUgraph)stream->capture->graph;
	if (nodes)
		*nodes = (const CUgraphNode *)stream->frontier;
	if (count)
		*count = stream->frontier_count;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuStreamGetCaptureInfo_v2,
	     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	      const CUgraphNode **nodes, size_t *count),
	     (stream, status, id, graph, nodes, count))
{
	return capture_info(stream, false, status, id, graph, nodes, count);
}

SIM_CTX_CALL(cuStreamGetCaptureInfo_v2_ptsz,
	     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	      const CUgraphNode **nodes, size_t *count),
	     (stream, status, id, graph, nodes, count))
{
	return capture_info(stream, true, status, id, graph, nodes, count);
}

/* No edge of the simulated driver has data. */
SIM_CTX_CALL(cuStreamGetCaptureInfo_v3,
	     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	      const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count),
	     (stream, status, id, graph, nodes, edges, count))
{
	if (edges)
		*edges = NULL;
	return capture_info(stream, false, status, id, graph, nodes, count);
}

SIM_CTX_CALL(cuStreamGetCaptureInfo_v3_ptsz,
	     (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
	      const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count),
	     (stream, status, id, graph, nodes, edges, count))
{
	if (edges)
		*edges = NULL;
	return capture_info(stream, true, status, id, graph, nodes, count);
}

SIM_CALL(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode))
{
	CUstreamCaptureMode old = thread_mode;

	if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
