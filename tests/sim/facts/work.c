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
	uint64_t first_id, later = 0;
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
	first_id = id_of(params.dptr);
	ASK_ABOUT("copy to it", cuMemcpyHtoD_v2(params.dptr, "1234567", 8));
	ASK_ABOUT("copy from it", cuMemcpyDtoH_v2(text, params.dptr, 8));
	ASK_ABOUT("launch again", cuGraphLaunch(exec, NULL));
	ASK_ABOUT("cuMemFree of it", cuMemFree_v2(params.dptr));
	ASK_ABOUT("cuMemFree again", cuMemFree_v2(params.dptr));
	describe("freed by cuMemFree", params.dptr);
	ASK_ABOUT("launch after the free", cuGraphLaunch(exec, NULL));
	NEED(cuStreamSynchronize(NULL));
	ASK_ABOUT("its id",
		  cuPointerGetAttribute(&later, CU_POINTER_ATTRIBUTE_BUFFER_ID, params.dptr));
	say("a later one", "%d", later > first_id);
	ASK_ABOUT("export of a part of a page", export_range(params.dptr, 4096));
	ASK_ABOUT("export of 2 MiB", export_range(params.dptr, 2 * MIB));
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
