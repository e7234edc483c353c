/* SPDX-License-Identifier: MIT */
/*
 * Work for a stream: done at once, in the calling thread, or kept in a graph while the stream is
 * being captured. The simulated GPU has finished everything when a call returns, which is one of
 * the orders that a real GPU may have.
 */
#ifndef SIM_WORK_H
#define SIM_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"

struct sim_stream;
struct sim_graph;
struct sim_event;

struct sim_copy {
	uint64_t dst, src; /* addresses of either kind */
	uint64_t dst_pitch, src_pitch;
	uint64_t dst_slice, src_slice; /* bytes between planes */
	uint64_t width, height, depth; /* in bytes, rows, planes */
};

struct sim_fill {
	uint64_t dst, pitch;
	uint32_t value, element; /* bytes of an element: 1, 2, 4 */
	uint64_t width, height;	 /* in elements, rows */
};

struct sim_work {
	CUgraphNodeType type;
	union {
		struct sim_copy copy;
		struct sim_fill fill;
		struct {
			CUhostFn function;
			void *data;
		} host;
		struct {
			uint64_t addr, size;
			int device;
			CUDA_MEM_ALLOC_NODE_PARAMS params;
		} alloc;
		uint64_t free;
		struct sim_graph *child; /* owned by the node */
		struct sim_event *event;
		CUfunction kernel;
	};
};

/*
 * Does the work, if all its addresses are memory. A host function is called without the API lock.
 */
CUresult sim_work_do(const struct sim_work *work);
/* Does it, or adds it to the graph of a captured stream. per_thread: the meaning of stream 0. */
CUresult sim_submit(CUstream stream, bool per_thread, const struct sim_work *work);

#endif
