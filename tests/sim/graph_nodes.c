/* SPDX-License-Identifier: MIT */
/* The calls that build graphs and look into them. */
#include <stdlib.h>
#include <string.h>

#include "contexts.h"
#include "copies.h"
#include "core.h"
#include "graphs.h"
#include "handles.h"
#include "streams.h"

static CUresult add(CUgraphNode *out, CUgraph handle, const CUgraphNode *dependencies, size_t count,
		    const struct sim_work *work)
{
	struct sim_graph *graph = sim_graph_of(handle);
	struct sim_node *node;
	CUresult result;
	size_t i;

	if (!out || !graph || (count && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++)
		if (!sim_node_of(dependencies[i]) || sim_node_of(dependencies[i])->graph != graph)
			return CUDA_ERROR_INVALID_VALUE;
	result = sim_graph_add(graph, work, (struct sim_node *const *)dependencies, count, &node);
	if (result == CUDA_SUCCESS)
		*out = (CUgraphNode)node;
	return result;
}

/* ---- graphs --------------------------------------------------------------------------------- */

SIM_CALL(cuGraphCreate, (CUgraph * handle, unsigned int flags), (handle, flags))
{
	struct sim_graph *graph;

	if (!handle || flags)
		return CUDA_ERROR_INVALID_VALUE;
	graph = sim_graph_new();
	if (!graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle = (CUgraph)graph;
	return CUDA_SUCCESS;
}

SIM_CALL(cuGraphDestroy, (CUgraph handle), (handle))
{
	struct sim_graph *graph = sim_graph_of(handle);

	if (!graph || graph->owned || sim_graph_captured(graph))
		return CUDA_ERROR_INVALID_VALUE;
	sim_graph_delete(graph);
	return CUDA_SUCCESS;
}

SIM_CALL(cuGraphClone, (CUgraph * clone, CUgraph original), (clone, original))
{
	struct sim_graph *graph = sim_graph_of(original), *copy;

	if (!clone || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_graph_has_memory_nodes(graph))
		return CUDA_ERROR_NOT_SUPPORTED;
	copy = sim_graph_copy(graph);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*clone = (CUgraph)copy;
	return CUDA_SUCCESS;
}

/* ---- nodes of each type --------------------------------------------------------------------- */

SIM_CALL(cuGraphAddEmptyNode,
	 (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count),
	 (node, graph, dependencies, count))
{
	return add(node, graph, dependencies, count,
		   &(struct sim_work){.type = CU_GRAPH_NODE_TYPE_EMPTY});
}

/* Translates the program's description of a node. */
static CUresult alloc_work(const CUDA_MEM_ALLOC_NODE_PARAMS *params, struct sim_work *work)
{
	if (!params || !params->bytesize ||
	    params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    !sim_device_known(params->poolProps.location.id))
		return CUDA_ERROR_INVALID_VALUE;
	work->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	work->alloc.size = params->bytesize;
	work->alloc.device = params->poolProps.location.id;
	work->alloc.params = *params;
	return CUDA_SUCCESS;
}

static CUresult fill_work(const CUDA_MEMSET_NODE_PARAMS *params, struct sim_work *work)
{
	if (!params ||
	    (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4))
		return CUDA_ERROR_INVALID_VALUE;
	work->type = CU_GRAPH_NODE_TYPE_MEMSET;
	work->fill = (struct sim_fill){.dst = params->dst,
				       .pitch = params->pitch,
				       .value = params->value,
				       .element = params->elementSize,
				       .width = params->width,
				       .height = params->height};
	return CUDA_SUCCESS;
}

static CUresult host_work(const CUDA_HOST_NODE_PARAMS *params, struct sim_work *work)
{
	if (!params || !params->fn)
		return CUDA_ERROR_INVALID_VALUE;
	work->type = CU_GRAPH_NODE_TYPE_HOST;
	work->host.function = params->fn;
	work->host.data = params->userData;
	return CUDA_SUCCESS;
}

static CUresult event_work(CUevent handle, CUgraphNodeType type, struct sim_work *work)
{
	work->event = sim_handle(handle, SIM_EVENT);
	work->type = type;
	return work->event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS_v1 *params, struct sim_work *work)
{
	if (!params || !sim_handle(params->func, SIM_FUNCTION))
		return CUDA_ERROR_INVALID_VALUE;
	work->type = CU_GRAPH_NODE_TYPE_KERNEL;
	work->kernel = params->func;
	return CUDA_SUCCESS;
}

/* A child graph is copied into its node, or moved there. */
static CUresult child_work(CUgraph handle, bool move, struct sim_work *work)
{
	struct sim_graph *child = sim_graph_of(handle);

	if (!child || (move && child->owned))
		return CUDA_ERROR_INVALID_VALUE;
	if (!move && sim_graph_has_memory_nodes(child))
		return CUDA_ERROR_NOT_SUPPORTED;
	work->type = CU_GRAPH_NODE_TYPE_GRAPH;
	work->child = move ? child : sim_graph_copy(child);
	if (!work->child)
		return CUDA_ERROR_OUT_OF_MEMORY;
	work->child->owned = true;
	return CUDA_SUCCESS;
}

static CUresult add_child(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			  size_t count, CUgraph child, bool move)
{
	struct sim_work work;
	CUresult result = child_work(child, move, &work);

	if (result != CUDA_SUCCESS)
		return result;
	result = add(node, graph, dependencies, count, &work);
	if (result != CUDA_SUCCESS) {
		work.child->owned = false;
		if (!move)
			sim_graph_delete(work.child);
	}
	return result;
}

static CUresult add_alloc(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			  size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	struct sim_work work;
	CUresult result = alloc_work(params, &work);

	if (result == CUDA_SUCCESS)
		result = add(node, graph, dependencies, count, &work);
	if (result == CUDA_SUCCESS)
		params->dptr = ((struct sim_node *)*node)->work.alloc.addr;
	return result;
}

static CUresult add_free(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			 size_t count, CUdeviceptr dptr)
{
	return add(node, graph, dependencies, count,
		   &(struct sim_work){.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = dptr});
}

SIM_CALL(cuGraphAddMemAllocNode,
	 (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
	  CUDA_MEM_ALLOC_NODE_PARAMS *params),
	 (node, graph, dependencies, count, params))
{
	return add_alloc(node, graph, dependencies, count, params);
}

SIM_CALL(cuGraphAddMemFreeNode,
	 (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
	  CUdeviceptr dptr),
	 (node, graph, dependencies, count, dptr))
{
	return add_free(node, graph, dependencies, count, dptr);
}

SIM_CALL(cuGraphAddChildGraphNode,
	 (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
	  CUgraph child),
	 (node, graph, dependencies, count, child))
{
	return add_child(node, graph, dependencies, count, child, false);
}

SIM_CALL(cuGraphAddMemcpyNode,
	 (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
	  const CUDA_MEMCPY3D *params, CUcontext context),
	 (node, graph, dependencies, count, params, context))
{
	struct sim_work work;
	CUresult result = sim_describe_box(params, &work);

	if (!sim_context_of(context))
		return CUDA_ERROR_INVALID_VALUE;
	return result == CUDA_SUCCESS ? add(node, graph, dependencies, count, &work) : result;
}

SIM_CALL(cuGraphAddMemsetNode,
	 (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
	  const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context),
	 (node, graph, dependencies, count, params, context))
{
	struct sim_work work;
	CUresult result = fill_work(params, &work);

	if (!sim_context_of(context))
		return CUDA_ERROR_INVALID_VALUE;
	return result == CUDA_SUCCESS ? add(node, graph, dependencies, count, &work) : result;
}

SIM_CALL(cuGraphAddHostNode,
	 (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
	  const CUDA_HOST_NODE_PARAMS *params),
	 (node, graph, dependencies, count, params))
{
	struct sim_work work;
	CUresult result = host_work(params, &work);

	return result == CUDA_SUCCESS ? add(node, graph, dependencies, count, &work) : result;
}

static CUresult add_kernel(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			   size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	struct sim_work work;
	CUresult result = kernel_work(params, &work);

	return result == CUDA_SUCCESS ? add(node, graph, dependencies, count, &work) : result;
}

SIM_CALL(cuGraphAddKernelNode,
	 (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
	  const CUDA_KERNEL_NODE_PARAMS_v1 *params),
	 (node, graph, dependencies, count, params))
{
	return add_kernel(node, graph, dependencies, count, params);
}

/* The description of the later version begins with that of the earlier one. */
SIM_CALL(cuGraphAddKernelNode_v2,
	 (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
	  const CUDA_KERNEL_NODE_PARAMS_v1 *params),
	 (node, graph, dependencies, count, params))
{
	return add_kernel(node, graph, dependencies, count, params);
}

SIM_CALL(cuGraphAddEventRecordNode,
	 (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
	  CUevent event),
	 (node, graph, dependencies, count, event))
{
	struct sim_work work;
	CUresult result = event_work(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &work);

	return result == CUDA_SUCCESS ? add(node, graph, dependencies, count, &work) : result;
}

SIM_CALL(cuGraphAddEventWaitNode,
	 (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
	  CUevent event),
	 (node, graph, dependencies, count, event))
{
	struct sim_work work;
	CUresult result = event_work(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &work);

	return result == CUDA_SUCCESS ? add(node, graph, dependencies, count, &work) : result;
}

/* ---- nodes of any type ---------------------------------------------------------------------- */

static CUresult work_of_params(const CUgraphNodeParams *params, struct sim_work *work)
{
	const void *what = params->reserved1;

	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_EMPTY:
		work->type = CU_GRAPH_NODE_TYPE_EMPTY;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_work(what, work);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return sim_describe_box(&((const CUDA_MEMCPY_NODE_PARAMS *)what)->copyParams, work);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return fill_work(what, work);
	case CU_GRAPH_NODE_TYPE_HOST:
		return host_work(what, work);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return event_work(*(const CUevent *)what, params->type, work);
	default: /* semaphores, batched and conditional nodes */
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult add_any(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			size_t count, CUgraphNodeParams *params)
{
	struct sim_work work;
	CUresult result;

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return add_alloc(node, graph, dependencies, count, &params->alloc);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return add_free(node, graph, dependencies, count, params->free.dptr);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return add_child(node, graph, dependencies, count, params->graph.graph,
				 params->graph.ownership == 1);
	default:
		result = work_of_params(params, &work);
		return result == CUDA_SUCCESS ? add(node, graph, dependencies, count, &work)
					      : result;
	}
}

SIM_CALL(cuGraphAddNode,
	 (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
	  CUgraphNodeParams *params),
	 (node, graph, dependencies, count, params))
{
	return add_any(node, graph, dependencies, count, params);
}

SIM_CALL(cuGraphAddNode_v2,
	 (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies,
	  const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params),
	 (node, graph, dependencies, edges, count, params))
{
	(void)edges;
	return add_any(node, graph, dependencies, count, params);
}

SIM_CALL(cuGraphDestroyNode, (CUgraphNode handle), (handle))
{
	struct sim_node *node = sim_node_of(handle);

	if (!node || node->graph->owned)
		return CUDA_ERROR_INVALID_VALUE;
	if (node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
	    node->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return CUDA_ERROR_NOT_SUPPORTED;
	sim_graph_remove(node);
	return CUDA_SUCCESS;
}

/* ---- edges ---------------------------------------------------------------------------------- */

static CUresult add_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
			  size_t count)
{
	struct sim_graph *graph = sim_graph_of(handle);
	size_t i;

	if (!graph || (count && (!from || !to)))
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++) {
		struct sim_node *early = sim_node_of(from[i]), *late = sim_node_of(to[i]);
		CUresult result;

		if (!early || !late || early->graph != graph || late->graph != graph)
			return CUDA_ERROR_INVALID_VALUE;
		result = sim_graph_connect(early, late);
		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

SIM_CALL(cuGraphAddDependencies,
	 (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count),
	 (graph, from, to, count))
{
	return add_edges(graph, from, to, count);
}

SIM_CALL(cuGraphAddDependencies_v2,
	 (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
	  const CUgraphEdgeData *edges, size_t count),
	 (graph, from, to, edges, count))
{
	(void)edges;
	return add_edges(graph, from, to, count);
}
