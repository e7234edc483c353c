/* SPDX-License-Identifier: MIT */
/* Streams and events. Work is done when it is submitted, so waiting is short. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "contexts.h"
#include "core.h"
#include "graphs.h"
#include "handles.h"
#include "pools.h"
#include "streams.h"

static uint64_t last_stream_id;
static struct sim_stream *of_threads; /* the default streams of threads */
static uint64_t last_thread;
static __thread uint64_t this_thread;

static struct sim_stream *new_stream(struct sim_context *context, unsigned flags, int priority)
{
	struct sim_stream *stream = sim_handle_new(SIM_STREAM, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->context = context;
	stream->flags = flags;
	stream->priority = priority;
	stream->id = ++last_stream_id;
	return stream;
}

static struct sim_stream *legacy_stream(struct sim_context *context)
{
	if (!context->legacy)
		context->legacy = new_stream(context, 0, 0);
	if (context->legacy)
		context->legacy->special = true;
	return context->legacy;
}

static struct sim_stream *thread_stream(struct sim_context *context)
{
	struct sim_stream *stream;

	if (!this_thread)
		this_thread = ++last_thread;
	for (stream = of_threads; stream; stream = stream->next)
		if (stream->context == context && stream->thread == this_thread)
			return stream;
	stream = new_stream(context, 0, 0);
	if (!stream)
		return NULL;
	stream->special = true;
	stream->thread = this_thread;
	stream->next = of_threads;
	of_threads = stream;
	return stream;
}

struct sim_stream *sim_stream_of(CUstream handle, bool per_thread)
{
	struct sim_context *context = sim_current();

	if (!handle)
		handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	if (handle == CU_STREAM_LEGACY)
		return context ? legacy_stream(context) : NULL;
	if (handle == CU_STREAM_PER_THREAD)
		return context ? thread_stream(context) : NULL;
	return sim_handle(handle, SIM_STREAM);
}

static void delete_stream(struct sim_stream *stream)
{
	struct sim_stream **at = &of_threads;

	if (stream->capture)
		sim_capture_abandon(stream);
	if (stream->thread) {
		while (*at != stream)
			at = &(*at)->next;
		*at = stream->next;
	}
	free(stream->frontier);
	sim_handle_delete(stream);
}

static void delete_event(struct sim_event *event)
{
	if (event->capture)
		sim_capture_drop(event->capture);
	free(event->frontier);
	sim_handle_delete(event);
}

void sim_streams_context_ended(struct sim_context *context)
{
	unsigned long position = 0;
	struct sim_stream *stream;
	struct sim_event *event;

	/* Deleting may move others to places already passed: start again. */
	while ((stream = sim_handle_next(SIM_STREAM, &position)))
		if (stream->context == context) {
			delete_stream(stream);
			position = 0;
		}
	context->legacy = NULL;
	position = 0;
	while ((event = sim_handle_next(SIM_EVENT, &position)))
		if (event->context == context) {
			delete_event(event);
			position = 0;
		}
}

/* ---- streams -------------------------------------------------------------------------------- */

static CUresult create_stream(CUstream *handle, unsigned flags, int priority)
{
	struct sim_stream *stream;

	if (!handle || flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	stream = new_stream(sim_current(), flags, priority);
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle = (CUstream)stream;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuStreamCreate, (CUstream * handle, unsigned int flags), (handle, flags))
{
	return create_stream(handle, flags, 0);
}

SIM_CTX_CALL(cuStreamCreateWithPriority, (CUstream * handle, unsigned int flags, int priority),
	     (handle, flags, priority))
{
	return create_stream(handle, flags, priority);
}

static CUresult destroy_stream(CUstream handle)
{
	struct sim_stream *stream = sim_handle(handle, SIM_STREAM);

	if (!stream || stream->special)
		return CUDA_ERROR_INVALID_HANDLE;
	delete_stream(stream);
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuStreamDestroy, (CUstream handle), (handle))
{
	return destroy_stream(handle);
}

SIM_CTX_CALL(cuStreamDestroy_v2, (CUstream handle), (handle))
{
	return destroy_stream(handle);
}

static CUresult wait_for_stream(CUstream handle, bool per_thread)
{
	struct sim_stream *stream = sim_stream_of(handle, per_thread);
	CUresult forbidden;

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture) {
		sim_capture_invalidate(stream);
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	forbidden = sim_capture_forbids();
	if (forbidden == CUDA_SUCCESS)
		sim_pools_synchronized(stream->context->device);
	return forbidden;
}

SIM_CTX_CALL(cuStreamSynchronize, (CUstream handle), (handle))
{
	return wait_for_stream(handle, false);
}

SIM_CTX_CALL(cuStreamSynchronize_ptsz, (CUstream handle), (handle))
{
	return wait_for_stream(handle, true);
}

static CUresult query_stream(CUstream handle, bool per_thread)
{
	struct sim_stream *stream = sim_stream_of(handle, per_thread);

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture) {
		sim_capture_invalidate(stream);
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return sim_capture_forbids();
}

SIM_CTX_CALL(cuStreamQuery, (CUstream handle), (handle))
{
	return query_stream(handle, false);
}

SIM_CTX_CALL(cuStreamQuery_ptsz, (CUstream handle), (handle))
{
	return query_stream(handle, true);
}

static CUresult stream_context(CUstream handle, bool per_thread, CUcontext *context)
{
	struct sim_stream *stream = sim_stream_of(handle, per_thread);

	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	*context = (CUcontext)stream->context;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuStreamGetCtx, (CUstream handle, CUcontext *context), (handle, context))
{
	return stream_context(handle, false, context);
}

SIM_CTX_CALL(cuStreamGetCtx_ptsz, (CUstream handle, CUcontext *context), (handle, context))
{
	return stream_context(handle, true, context);
}

SIM_CTX_CALL(cuStreamGetFlags, (CUstream handle, unsigned int *flags), (handle, flags))
{
	struct sim_stream *stream = sim_stream_of(handle, false);

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = stream->flags;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuStreamGetPriority, (CUstream handle, int *priority), (handle, priority))
{
	struct sim_stream *stream = sim_stream_of(handle, false);

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!priority)
		return CUDA_ERROR_INVALID_VALUE;
	*priority = stream->priority;
	return CUDA_SUCCESS;
}

static CUresult stream_id(CUstream handle, bool per_thread, unsigned long long *id)
{
	struct sim_stream *stream = sim_stream_of(handle, per_thread);

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	*id = stream->id;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuStreamGetId, (CUstream handle, unsigned long long *id), (handle, id))
{
	return stream_id(handle, false, id);
}

SIM_CTX_CALL(cuStreamGetId_ptsz, (CUstream handle, unsigned long long *id), (handle, id))
{
	return stream_id(handle, true, id);
}

SIM_CTX_CALL(cuCtxSynchronize, (void), ())
{
	CUresult forbidden = sim_capture_forbids_waiting(sim_current());

	if (forbidden == CUDA_SUCCESS)
		sim_pools_synchronized(sim_current()->device);
	return forbidden;
}

SIM_CTX_CALL(cuCtxGetStreamPriorityRange, (int *least, int *greatest), (least, greatest))
{
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}

static CUresult launch_host(CUstream handle, bool per_thread, CUhostFn function, void *data)
{
	struct sim_work work = {.type = CU_GRAPH_NODE_TYPE_HOST,
				.host = {.function = function, .data = data}};

	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	return sim_submit(handle, per_thread, &work);
}

SIM_CTX_CALL(cuLaunchHostFunc, (CUstream handle, CUhostFn function, void *data),
	     (handle, function, data))
{
	return launch_host(handle, false, function, data);
}

SIM_CTX_CALL(cuLaunchHostFunc_ptsz, (CUstream handle, CUhostFn function, void *data),
	     (handle, function, data))
{
	return launch_host(handle, true, function, data);
}

/* ---- events --------------------------------------------------------------------------------- */

void sim_event_done(struct sim_event *event)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	event->time = now.tv_sec * 1000000000ull + now.tv_nsec;
	event->recorded = true;
}

SIM_CTX_CALL(cuEventCreate, (CUevent * handle, unsigned int flags), (handle, flags))
{
	struct sim_event *event;

	if (!handle || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	event = sim_handle_new(SIM_EVENT, sizeof(*event));
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->context = sim_current();
	event->flags = flags;
	*handle = (CUevent)event;
	return CUDA_SUCCESS;
}

static CUresult destroy_event(CUevent handle)
{
	struct sim_event *event = sim_handle(handle, SIM_EVENT);

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	delete_event(event);
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuEventDestroy, (CUevent handle), (handle))
{
	return destroy_event(handle);
}

SIM_CTX_CALL(cuEventDestroy_v2, (CUevent handle), (handle))
{
	return destroy_event(handle);
}

static CUresult record_event(CUevent handle, CUstream stream_handle, bool per_thread)
{
	struct sim_event *event = sim_handle(handle, SIM_EVENT);
	struct sim_stream *stream = sim_stream_of(stream_handle, per_thread);

	if (!event || !stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture)
		return sim_capture_record(stream, event);
	if (event->capture)
		sim_capture_drop(event->capture);
	event->capture = NULL;
	sim_event_done(event);
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuEventRecord, (CUevent event, CUstream stream), (event, stream))
{
	return record_event(event, stream, false);
}

SIM_CTX_CALL(cuEventRecord_ptsz, (CUevent event, CUstream stream), (event, stream))
{
	return record_event(event, stream, true);
}

static CUresult wait_event(CUstream stream_handle, bool per_thread, CUevent handle)
{
	struct sim_event *event = sim_handle(handle, SIM_EVENT);
	struct sim_stream *stream = sim_stream_of(stream_handle, per_thread);

	if (!event || !stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (sim_event_captured(event))
		return sim_capture_wait(stream, event);
	if (stream->capture)
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags),
	     (stream, event, flags))
{
	return flags > 1 ? CUDA_ERROR_INVALID_VALUE : wait_event(stream, false, event);
}

SIM_CTX_CALL(cuStreamWaitEvent_ptsz, (CUstream stream, CUevent event, unsigned int flags),
	     (stream, event, flags))
{
	return flags > 1 ? CUDA_ERROR_INVALID_VALUE : wait_event(stream, true, event);
}

static CUresult query_event(CUevent handle)
{
	struct sim_event *event = sim_handle(handle, SIM_EVENT);

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	return sim_event_captured(event) ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

SIM_UNSAFE_CALL(cuEventQuery, (CUevent handle), (handle))
{
	return query_event(handle);
}

SIM_UNSAFE_CALL(cuEventSynchronize, (CUevent handle), (handle))
{
	CUresult result = query_event(handle);

	if (result == CUDA_SUCCESS)
		sim_pools_synchronized(sim_current()->device);
	return result;
}

static CUresult elapsed(float *milliseconds, CUevent from_handle, CUevent to_handle)
{
	struct sim_event *from = sim_handle(from_handle, SIM_EVENT);
	struct sim_event *to = sim_handle(to_handle, SIM_EVENT);

	if (!milliseconds)
		return CUDA_ERROR_INVALID_VALUE;
	if (!from || !to || !from->recorded || !to->recorded ||
	    (from->flags | to->flags) & CU_EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	*milliseconds = ((double)to->time - (double)from->time) / 1e6;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuEventElapsedTime, (float *milliseconds, CUevent from, CUevent to),
	     (milliseconds, from, to))
{
	return elapsed(milliseconds, from, to);
}

SIM_CTX_CALL(cuEventElapsedTime_v2, (float *milliseconds, CUevent from, CUevent to),
	     (milliseconds, from, to))
{
	return elapsed(milliseconds, from, to);
}
