/* SPDX-License-Identifier: MIT */
/* Memory that a graph owns: alloc and free nodes, frees that a stream capture records, launches. */
#include "app.h"

#define SIZE (256u << 10)

static CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(CUdevice device)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
		.bytesize = SIZE,
	};

	return params;
}

static void launch_twice(CUgraphExec exec, CUstream stream, uint64_t at)
{
	WATCHED(0, cuGraphLaunch, exec, stream);
	PLAIN(cuStreamSynchronize, stream);
	if (at != 0)
		app_say("between launches: %s", app_write_and_read(at, SIZE, 16));
	WATCHED(0, cuGraphLaunch, exec, stream);
	PLAIN(cuStreamSynchronize, stream);
}

/* A graph that allocates and frees: each launch begins and ends the memory. */
static void nodes(CUdevice device, CUstream stream)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(device);
	CUgraphNode allocate = NULL, release = NULL;
	CUgraphExec exec = NULL;
	CUgraph graph = NULL;

	PLAIN(cuGraphCreate, &graph, 0);
	WATCHED(params.dptr, cuGraphAddMemAllocNode, &allocate, graph, NULL, 0, &params);
	WATCHED(params.dptr, cuGraphAddMemFreeNode, &release, graph, &allocate, 1, params.dptr);
	WATCHED(0, cuGraphInstantiateWithFlags, &exec, graph, 0);
	launch_twice(exec, stream, 0);
	WATCHED(0, cuGraphExecDestroy, exec);
	WATCHED(0, cuGraphDestroy, graph);
	WATCHED(0, cuDeviceGraphMemTrim, device);
}

/* A graph that only allocates: the memory outlives the launch, and the program frees it. */
static void freed_outside(CUdevice device, CUstream stream)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(device);
	CUgraphNode allocate = NULL;
	CUgraphExec exec = NULL;
	CUgraph graph = NULL;

	PLAIN(cuGraphCreate, &graph, 0);
	WATCHED(params.dptr, cuGraphAddMemAllocNode, &allocate, graph, NULL, 0, &params);
	WATCHED(0, cuGraphInstantiateWithFlags, &exec, graph, 0);
	WATCHED(0, cuGraphLaunch, exec, stream);
	PLAIN(cuStreamSynchronize, stream);
	app_say("%s", app_write_and_read(params.dptr, SIZE, 17));
	WATCHED(params.dptr, cuMemFreeAsync, params.dptr, stream);
	PLAIN(cuStreamSynchronize, stream);
	WATCHED(0, cuGraphExecDestroy, exec);
	WATCHED(0, cuGraphDestroy, graph);
}

/* Allocations and frees of a capture happen only at the launches. */
static void captured(CUstream stream)
{
	CUgraphExec exec = NULL;
	CUgraph graph = NULL;
	CUdeviceptr at = 0;

	WATCHED(0, cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	WATCHED(at, cuMemAllocAsync, &at, SIZE, stream);
	WATCHED(at, cuMemFreeAsync, at, stream);
	WATCHED(0, cuStreamEndCapture, stream, &graph);
	WATCHED(0, cuGraphInstantiateWithFlags, &exec, graph, 0);
	launch_twice(exec, stream, 0);
	WATCHED(0, cuGraphExecDestroy, exec);
	WATCHED(0, cuGraphDestroy, graph);
}

/* One graph allocates, another frees: between the launches the memory exists. */
static void freed_by_another_graph(CUstream stream)
{
	CUgraphExec allocates = NULL, frees = NULL;
	CUgraph first = NULL, second = NULL;
	CUdeviceptr at = 0;

	WATCHED(0, cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	WATCHED(at, cuMemAllocAsync, &at, SIZE, stream);
	WATCHED(0, cuStreamEndCapture, stream, &first);
	WATCHED(0, cuGraphInstantiateWithFlags, &allocates, first, 0);
	WATCHED(0, cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	WATCHED(at, cuMemFreeAsync, at, stream);
	WATCHED(0, cuStreamEndCapture, stream, &second);
	WATCHED(0, cuGraphInstantiateWithFlags, &frees, second, 0);
	WATCHED(0, cuGraphLaunch, allocates, stream);
	PLAIN(cuStreamSynchronize, stream);
	app_say("between the launches: %s", app_write_and_read(at, SIZE, 18));
	WATCHED(0, cuGraphLaunch, frees, stream);
	PLAIN(cuStreamSynchronize, stream);
	WATCHED(0, cuGraphExecDestroy, allocates);
	WATCHED(0, cuGraphExecDestroy, frees);
	WATCHED(0, cuGraphDestroy, first);
	WATCHED(0, cuGraphDestroy, second);
}

/* A graph can't free memory of no graph: the call is refused, and the memory stays. */
static void refused_in_capture(CUstream stream)
{
	CUgraph graph = NULL;
	CUdeviceptr at = 0;

	WATCHED(at, cuMemAllocAsync, &at, SIZE, stream);
	PLAIN(cuStreamSynchronize, stream);
	WATCHED(0, cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	WATCHED(at, cuMemFreeAsync, at, stream);
	WATCHED(0, cuStreamEndCapture, stream, &graph);
	app_say("after it: %s", app_write_and_read(at, SIZE, 19));
	if (graph != NULL)
		WATCHED(0, cuGraphDestroy, graph);
	WATCHED(at, cuMemFreeAsync, at, stream);
	PLAIN(cuStreamSynchronize, stream);
}

int app_graph(int argc, char **argv)
{
	CUdevice device = app_begin();
	CUstream stream = NULL;

	(void)argc, (void)argv;
	PLAIN(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	nodes(device, stream);
	freed_outside(device, stream);
	captured(stream);
	freed_by_another_graph(stream);
	refused_in_capture(stream);
	WATCHED(0, cuGraphDestroy, NULL);
	WATCHED(0, cuGraphLaunch, NULL, stream);
	WATCHED(0, cuStreamDestroy_v2, stream);
	app_end(device);
	return 0;
}
