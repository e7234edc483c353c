/* SPDX-License-Identifier: MIT */
/* Copies and fills, done by the host. */
#include <string.h>

#include "core.h"
#include "graphs.h"
#include "memory.h"
#include "streams.h"
#include "work.h"

/* Is all of [addr, addr + length) memory? Plain host memory is not checked. */
static bool is_memory(uint64_t addr, uint64_t length)
{
	if (!length)
		return true;
	if (!addr || addr + length < addr)
		return false;
	while (length) {
		uint64_t piece = length;

		if (!sim_view(addr, &piece))
			return false;
		addr += piece;
		length -= piece;
	}
	return true;
}

static void copy_row(uint64_t dst, uint64_t src, uint64_t length)
{
	while (length) {
		uint64_t piece = length;
		char *to = sim_view(dst, &piece);
		const char *from = sim_view(src, &piece);

		memmove(to, from, piece);
		dst += piece;
		src += piece;
		length -= piece;
	}
}

static bool check_copy(const struct sim_copy *copy)
{
	uint64_t row, plane;

	for (plane = 0; plane < copy->depth; plane++)
		for (row = 0; row < copy->height; row++)
			if (!is_memory(copy->dst + plane * copy->dst_slice + row * copy->dst_pitch,
				       copy->width) ||
			    !is_memory(copy->src + plane * copy->src_slice + row * copy->src_pitch,
				       copy->width))
				return false;
	return true;
}

static void do_copy(const struct sim_copy *copy)
{
	uint64_t row, plane;

	for (plane = 0; plane < copy->depth; plane++)
		for (row = 0; row < copy->height; row++)
			copy_row(copy->dst + plane * copy->dst_slice + row * copy->dst_pitch,
				 copy->src + plane * copy->src_slice + row * copy->src_pitch,
				 copy->width);
}

static bool check_fill(const struct sim_fill *fill)
{
	uint64_t row;

	if (fill->dst % fill->element)
		return false;
	for (row = 0; row < fill->height; row++)
		if (!is_memory(fill->dst + row * fill->pitch, fill->width * fill->element))
			return false;
	return true;
}

static void fill_piece(char *to, uint64_t length, uint32_t value, uint32_t element)
{
	uint64_t i;

	if (element == 1)
		memset(to, (int)value, length);
	else
		for (i = 0; i < length; i += element)
			memcpy(to + i, &value, element);
}

static void fill_row(uint64_t dst, uint64_t length, uint32_t value, uint32_t element)
{
	while (length) {
		uint64_t piece = length;
		char *to = sim_view(dst, &piece);

		fill_piece(to, piece, value, element);
		dst += piece;
		length -= piece;
	}
}

static void do_fill(const struct sim_fill *fill)
{
	uint64_t row;

	for (row = 0; row < fill->height; row++)
		fill_row(fill->dst + row * fill->pitch, fill->width * fill->element, fill->value,
			 fill->element);
}

/* Calls the program from within the driver: without the lock, which the program may need. */
static void call_host(CUhostFn function, void *data)
{
	unsigned depth = sim_lock_leave();

	function(data);
	sim_lock_rejoin(depth);
}

static CUresult check(const struct sim_work *work)
{
	switch (work->type) {
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return check_copy(&work->copy) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return check_fill(&work->fill) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_HOST:
		return work->host.function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_SUCCESS;
	}
}

CUresult sim_work_do(const struct sim_work *work)
{
	CUresult result = check(work);

	if (result != CUDA_SUCCESS)
		return result;
	switch (work->type) {
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		do_copy(&work->copy);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		do_fill(&work->fill);
		break;
	case CU_GRAPH_NODE_TYPE_HOST:
		call_host(work->host.function, work->host.data);
		break;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		sim_event_done(work->event);
		break;
	default: /* kernels compute nothing here */
		break;
	}
	return CUDA_SUCCESS;
}

CUresult sim_submit(CUstream handle, bool per_thread, const struct sim_work *work)
{
	struct sim_stream *stream = sim_stream_of(handle, per_thread);

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture)
		return sim_capture_work(stream, work, NULL);
	return sim_work_do(work);
}
