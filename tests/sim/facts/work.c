/* SPDX-License-Identifier: MIT */
/* Graphs and the capture of streams. */
#include <string.h>

#include "facts.h"

static CUDA_MEM_ALLOC_NODE_PARAMS alloc_of(size_t size)
{
	return (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytesize = size};
}

static void ask_graph_that_frees(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_of(MIB);
	CUgraphNode alloc, release;
	CUgraph graph, clone, parent;
	CUgraphNode child;
	CUgraphExec exec, second;

	NEED(cuGraphCreate(&graph, 0));
	NEED(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
	ASK_ABOUT("free node of a wild address",
		  cuGraphAddMemFreeNode(&release, graph, &alloc, 1, 4096));
	NEED(cuGraphAddMemFreeNode(&release, graph, &alloc, 1, params.dptr));
	ASK_ABOUT("a second free node",
		  cuGraphAddMemFreeNode(&release, graph, &alloc, 1, params.dptr));
	ASK_ABOUT("clone", cuGraphClone(&clone, graph));
	NEED(cuGraphCreate(&parent, 0));
	ASK_ABOUT("as a child graph", cuGraphAddChildGraphNode(&child, parent, NULL, 0, graph));
	NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ASK_ABOUT("instantiate twice", cuGraphInstantiateWithFlags(&second, graph, 0));
	ASK_ABOUT("destroy of its allocation node", cuGraphDestroyNode(alloc));
	ASK_ABOUT("launch", cuGraphLaunch(exec, NULL));
	ASK_ABOUT("launch again", cuGraphLaunch(exec, NULL));
	NEED(cuStreamSynchronize(NULL));
	describe("allocated and freed by a graph", params.dptr);
	ASK(cuGraphExecDestroy(exec));
	ASK(cuGraphDestroy(graph));
}

void facts_graphs(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_of(MIB);
	CUgraphExec exec, automatic;
	CUgraphNode node;
	CUdeviceptr linear;
	CUgraph graph, other;
	char text[8];

	begin();
	ASK(cuGraphCreate(NULL, 0));
	ASK(cuGraphCreate(&graph, 1));
	NEED(cuGraphCreate(&graph, 0));
	ASK_ABOUT("allocation node", cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
	say("an address comes back", "%d", params.dptr != 0);
	describe("before the launch", params.dptr);
	NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ASK_ABOUT("copy before the launch", cuMemcpyHtoD_v2(params.dptr, "1234567", 8));
	ASK_ABOUT("launch", cuGraphLaunch(exec, NULL));
	NEED(cuStreamSynchronize(NULL));
	describe("after the launch", params.dptr);
	ASK_ABOUT("copy to it", cuMemcpyHtoD_v2(params.dptr, "1234567", 8));
	ASK_ABOUT("copy from it", cuMemcpyDtoH_v2(text, params.dptr, 8));
	ASK_ABOUT("launch again", cuGraphLaunch(exec, NULL));
	ASK_ABOUT("cuMemFree of it", cuMemFree_v2(params.dptr));
	ASK_ABOUT("cuMemFree again", cuMemFree_v2(params.dptr));
	ASK_ABOUT("launch after the free", cuGraphLaunch(exec, NULL));
	ASK_ABOUT("cuMemFreeAsync of it", cuMemFreeAsync(params.dptr, NULL));
	ASK_ABOUT("cuMemFreeAsync again", cuMemFreeAsync(params.dptr, NULL));
	ASK_ABOUT("trim", cuDeviceGraphMemTrim(0));
	ASK_ABOUT("launch after that", cuGraphLaunch(exec, NULL));
	ASK_ABOUT("destroy of the executable graph", cuGraphExecDestroy(exec));
	ASK_ABOUT("copy to its memory then", cuMemcpyHtoD_v2(params.dptr, "1234567", 8));
	ASK_ABOUT("destroy of the graph", cuGraphDestroy(graph));
	ASK_ABOUT("copy to its memory then", cuMemcpyHtoD_v2(params.dptr, "1234567", 8));
	ASK_ABOUT("cuMemFree of it", cuMemFree_v2(params.dptr));
	ask_graph_that_frees();
	NEED(cuGraphCreate(&other, 0));
	params = alloc_of(MIB);
	NEED(cuGraphAddMemAllocNode(&node, other, NULL, 0, &params));
	NEED(cuGraphInstantiateWithFlags(&automatic, other,
					 CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	ASK_ABOUT("automatic free, launch", cuGraphLaunch(automatic, NULL));
	ASK_ABOUT("automatic free, launch again", cuGraphLaunch(automatic, NULL));
	NEED(cuMemAlloc_v2(&linear, 4096));
	ASK_ABOUT("free node of linear memory",
		  cuGraphAddMemFreeNode(&node, other, NULL, 0, linear));
}

static CUstream stream;
static CUgraph graph;

/* Whether a call is allowed while a stream is being captured, and what becomes of the capture. */
static void during_capture(const char *what, CUstreamCaptureMode mode, CUresult (*call)(void))
{
	CUresult result;
	char question[128];

	NEED(cuStreamBeginCapture_v2(stream, mode));
	result = call();
	snprintf(question, sizeof(question), "%s in a %s capture", what,
		 mode == CU_STREAM_CAPTURE_MODE_GLOBAL ? "global" : "relaxed");
	answer(question, result);
	result = cuStreamEndCapture(stream, &graph);
	snprintf(question, sizeof(question), "%s, the capture's end", what);
	answer(question, result);
	if (result == CUDA_SUCCESS)
		cuGraphDestroy(graph);
}

static CUdeviceptr target;

static CUresult call_alloc(void)
{
	CUdeviceptr ptr;
	CUresult result = cuMemAlloc_v2(&ptr, 4096);

	return result;
}

static CUresult call_free(void)
{
	return cuMemFree_v2(target);
}

static CUresult call_free_zero(void)
{
	return cuMemFree_v2(0);
}

static CUresult call_copy(void)
{
	return cuMemcpyHtoD_v2(target, "1234567", 8);
}

static CUresult call_export(void)
{
	return export_range(target, 64 * KIB);
}

static CUresult call_attribute(void)
{
	uint64_t id;

	return cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, target);
}

static CUresult call_sync_memops(void)
{
	unsigned on = 1;

	return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, target);
}

static CUresult call_info(void)
{
	size_t left;

	return cuMemGetInfo_v2(&left, NULL);
}

static CUresult call_free_async(void)
{
	return cuMemFreeAsync(target, stream);
}

static CUresult call_synchronize(void)
{
	return cuStreamSynchronize(stream);
}

void facts_capture(void)
{
	CUstreamCaptureStatus status;
	CUdeviceptr ptr, pool;
	CUgraphExec exec;
	char text[8];

	begin();
	NEED(cuMemAlloc_v2(&target, 2 * MIB));
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ASK_ABOUT("capture of the legacy stream",
		  cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ASK_ABOUT("end without a beginning", cuStreamEndCapture(stream, &graph));
	NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ASK_ABOUT("begin twice", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ASK(cuStreamIsCapturing(stream, &status));
	say("status", "%d", (int)status);
	ASK_ABOUT("allocation", cuMemAllocAsync(&ptr, MIB, stream));
	say("an address comes back", "%d", ptr != 0);
	describe("captured", ptr);
	ASK_ABOUT("fill", cuMemsetD8Async(ptr, 5, MIB, stream));
	ASK_ABOUT("copy", cuMemcpyDtoHAsync_v2(text, ptr, 8, stream));
	ASK_ABOUT("free", cuMemFreeAsync(ptr, stream));
	ASK_ABOUT("free again", cuMemFreeAsync(ptr, stream));
	ASK_ABOUT("end", cuStreamEndCapture(stream, &graph));
	NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
	memset(text, 0, sizeof(text));
	ASK_ABOUT("launch", cuGraphLaunch(exec, stream));
	NEED(cuStreamSynchronize(stream));
	say("copied", "%d", text[0]);
	describe("captured, after the launch", ptr);
	during_capture("cuMemAlloc", CU_STREAM_CAPTURE_MODE_GLOBAL, call_alloc);
	during_capture("cuMemAlloc", CU_STREAM_CAPTURE_MODE_RELAXED, call_alloc);
	during_capture("cuMemFree(0)", CU_STREAM_CAPTURE_MODE_GLOBAL, call_free_zero);
	during_capture("cuMemcpyHtoD", CU_STREAM_CAPTURE_MODE_GLOBAL, call_copy);
	during_capture("cuMemcpyHtoD", CU_STREAM_CAPTURE_MODE_RELAXED, call_copy);
	during_capture("export", CU_STREAM_CAPTURE_MODE_GLOBAL, call_export);
	during_capture("buffer id", CU_STREAM_CAPTURE_MODE_GLOBAL, call_attribute);
	during_capture("sync memops", CU_STREAM_CAPTURE_MODE_GLOBAL, call_sync_memops);
	during_capture("cuMemGetInfo", CU_STREAM_CAPTURE_MODE_GLOBAL, call_info);
	during_capture("cuMemFreeAsync of linear memory", CU_STREAM_CAPTURE_MODE_RELAXED,
		       call_free_async);
	during_capture("cuStreamSynchronize", CU_STREAM_CAPTURE_MODE_RELAXED, call_synchronize);
	during_capture("cuMemFree", CU_STREAM_CAPTURE_MODE_GLOBAL, call_free);
	ASK_ABOUT("its id then", call_attribute());
	NEED(cuMemAlloc_v2(&target, 2 * MIB));
	during_capture("cuMemFree", CU_STREAM_CAPTURE_MODE_RELAXED, call_free);
	NEED(cuMemAllocAsync(&pool, MIB, stream));
	target = pool;
	during_capture("cuMemFreeAsync of pool memory", CU_STREAM_CAPTURE_MODE_RELAXED,
		       call_free_async);
	ASK_ABOUT("its id then", call_attribute());
}
