/* SPDX-License-Identifier: MIT */
/* Graphs by their newer and older calls: generic nodes, updates, and each way to instantiate. */
#include "app.h"

#define SIZE (256u << 10)

static CUgraphNodeParams allocation(CUdevice device)
{
	CUgraphNodeParams params;

	memset(&params, 0, sizeof(params));
	params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	params.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	params.alloc.poolProps.location.id = device;
	params.alloc.bytesize = SIZE;
	return params;
}

static CUgraphNodeParams release(CUdeviceptr at)
{
	CUgraphNodeParams params;

	memset(&params, 0, sizeof(params));
	params.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
	params.free.dptr = at;
	return params;
}

static CUgraph with_first_version(CUdevice device)
{
	CUgraphNodeParams params = allocation(device);
	CUgraphNode first = NULL, second = NULL;
	CUgraph graph = NULL;
	CUdeviceptr at;

	PLAIN(cuGraphCreate, &graph, 0);
	WATCHED(params.alloc.dptr, cuGraphAddNode, &first, graph, NULL, 0, &params);
	at = params.alloc.dptr;
	params = release(at);
	WATCHED(at, cuGraphAddNode, &second, graph, &first, 1, &params);
	return graph;
}

static CUgraph with_second_version(CUdevice device)
{
	CUgraphNodeParams params = allocation(device);
	CUgraphNode first = NULL, second = NULL;
	CUgraph graph = NULL;
	CUdeviceptr at;

	PLAIN(cuGraphCreate, &graph, 0);
	WATCHED(params.alloc.dptr, cuGraphAddNode_v2, &first, graph, NULL, NULL, 0, &params);
	at = params.alloc.dptr;
	params = release(at);
	WATCHED(at, cuGraphAddNode_v2, &second, graph, &first, NULL, 1, &params);
	return graph;
}

static void run(CUgraphExec exec, CUstream stream)
{
	WATCHED(0, cuGraphLaunch, exec, stream);
	PLAIN(cuStreamSynchronize, stream);
	WATCHED(0, cuGraphExecDestroy, exec);
}

static void instantiate(CUgraph graph, CUstream stream)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = 0};
	CUgraphNode wrong = NULL;
	CUgraphExec exec = NULL;
	char log[64] = "";

	WATCHED(0, cuGraphInstantiate, &exec, graph, &wrong, log, sizeof(log));
	run(exec, stream);
	exec = NULL;
	WATCHED(0, cuGraphInstantiate_v2, &exec, graph, &wrong, log, sizeof(log));
	run(exec, stream);
	exec = NULL;
	WATCHED(0, cuGraphInstantiateWithParams, &exec, graph, &params);
	run(exec, stream);
}

static void update(CUgraph first, CUgraph second, CUstream stream)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphExec exec = NULL;

	memset(&info, 0, sizeof(info));
	WATCHED(0, cuGraphInstantiateWithFlags, &exec, first, 0);
	WATCHED(0, cuGraphExecUpdate_v2, exec, second, &info);
	run(exec, stream);
}

/* Adds to an existing graph. */
static void capture_to_graph(CUstream stream)
{
	CUgraph graph = NULL, same = NULL;
	CUgraphExec exec = NULL;
	CUdeviceptr at = 0;

	PLAIN(cuGraphCreate, &graph, 0);
	WATCHED(0, cuStreamBeginCaptureToGraph, stream, graph, NULL, NULL, 0,
		CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	WATCHED(at, cuMemAllocAsync, &at, SIZE, stream);
	WATCHED(at, cuMemFreeAsync, at, stream);
	WATCHED(0, cuStreamEndCapture, stream, &same);
	app_say("captured to %s graph", same == graph ? "the same" : "another");
	WATCHED(0, cuGraphInstantiateWithFlags, &exec, graph, 0);
	run(exec, stream);
	WATCHED(0, cuGraphDestroy, graph);
}

int app_nodes(int argc, char **argv)
{
	CUdevice device = app_begin();
	CUgraph first, second;
	CUstream stream = NULL;

	(void)argc, (void)argv;
	PLAIN(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	first = with_first_version(device);
	second = with_second_version(device);
	instantiate(first, stream);
	instantiate(second, stream);
	update(first, second, stream);
	capture_to_graph(stream);
	WATCHED(0, cuGraphDestroy, first);
	WATCHED(0, cuGraphDestroy, second);
	WATCHED(0, cuStreamDestroy_v2, stream);
	app_end(device);
	return 0;
}
