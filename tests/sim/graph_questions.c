/* SPDX-License-Identifier: MIT */
/* The calls that look into graphs. */
#include <string.h>

#include "core.h"
#include "graphs.h"

/* Without an array: their number. Else as many as fit, and NULL in the rest. */
static void hand_out(struct sim_node *const *nodes, size_t have, CUgraphNode *out, size_t *count)
{
	size_t i;

	for (i = 0; out && i < *count; i++)
		out[i] = i < have ? (CUgraphNode)nodes[i] : NULL;
	if (!out || *count > have)
		*count = have;
}

SIM_CALL(cuGraphGetNodes, (CUgraph handle, CUgraphNode *nodes, size_t *count),
	 (handle, nodes, count))
{
	struct sim_graph *graph = sim_graph_of(handle);

	if (!graph || !count)
		return CUDA_ERROR_INVALID_VALUE;
	hand_out(graph->nodes, graph->count, nodes, count);
	return CUDA_SUCCESS;
}

SIM_CALL(cuGraphGetRootNodes, (CUgraph handle, CUgraphNode *nodes, size_t *count),
	 (handle, nodes, count))
{
	struct sim_graph *graph = sim_graph_of(handle);
	size_t i, found = 0;

	if (!graph || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < graph->count; i++) {
		if (graph->nodes[i]->dependency_count)
			continue;
		if (nodes && found < *count)
			nodes[found] = (CUgraphNode)graph->nodes[i];
		found++;
	}
	if (!nodes || *count > found)
		*count = found;
	return CUDA_SUCCESS;
}

static CUresult dependencies_of(CUgraphNode handle, CUgraphNode *nodes, size_t *count)
{
	struct sim_node *node = sim_node_of(handle);

	if (!node || !count)
		return CUDA_ERROR_INVALID_VALUE;
	hand_out(node->dependencies, node->dependency_count, nodes, count);
	return CUDA_SUCCESS;
}

SIM_CALL(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode *nodes, size_t *count),
	 (node, nodes, count))
{
	return dependencies_of(node, nodes, count);
}

SIM_CALL(cuGraphNodeGetDependencies_v2,
	 (CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count),
	 (node, nodes, edges, count))
{
	if (edges && count)
		memset(edges, 0, *count * sizeof(*edges));
	return dependencies_of(node, nodes, count);
}

SIM_CALL(cuGraphNodeGetType, (CUgraphNode handle, CUgraphNodeType *type), (handle, type))
{
	struct sim_node *node = sim_node_of(handle);

	if (!node || !type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = node->work.type;
	return CUDA_SUCCESS;
}

static struct sim_node *node_of_type(CUgraphNode handle, CUgraphNodeType type)
{
	struct sim_node *node = sim_node_of(handle);

	return node && node->work.type == type ? node : NULL;
}

SIM_CALL(cuGraphMemAllocNodeGetParams, (CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *params),
	 (handle, params))
{
	struct sim_node *node = node_of_type(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC);

	if (!node || !params)
		return CUDA_ERROR_INVALID_VALUE;
	*params = node->work.alloc.params;
	return CUDA_SUCCESS;
}

SIM_CALL(cuGraphMemFreeNodeGetParams, (CUgraphNode handle, CUdeviceptr *dptr), (handle, dptr))
{
	struct sim_node *node = node_of_type(handle, CU_GRAPH_NODE_TYPE_MEM_FREE);

	if (!node || !dptr)
		return CUDA_ERROR_INVALID_VALUE;
	*dptr = node->work.free;
	return CUDA_SUCCESS;
}

SIM_CALL(cuGraphChildGraphNodeGetGraph, (CUgraphNode handle, CUgraph *graph), (handle, graph))
{
	struct sim_node *node = node_of_type(handle, CU_GRAPH_NODE_TYPE_GRAPH);

	if (!node || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = (CUgraph)node->work.child;
	return CUDA_SUCCESS;
}
