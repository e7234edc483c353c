/* SPDX-License-Identifier: MIT */
/* Executable graphs: made from a graph, updated, launched. */
#include <stdlib.h>

#include "contexts.h"
#include "core.h"
#include "graphs.h"
#include "handles.h"
#include "streams.h"

struct exec {
	struct sim_graph *graph; /* a copy */
	uint64_t source;	 /* id of the original graph */
	bool destroyed;
	cuuint64_t flags;
	unsigned launches; /* under way: a host function may destroy what runs it */
};

static struct exec *exec_of(CUgraphExec handle)
{
	return sim_handle(handle, SIM_GRAPH_EXEC);
}

/* Only one executable graph at a time can use the addresses of a graph. */
static bool instantiated(const struct sim_graph *graph)
{
	unsigned long position = 0;
	struct exec *exec;

	while ((exec = sim_handle_next(SIM_GRAPH_EXEC, &position)))
		if (exec->source == graph->id)
			return true;
	return false;
}

static CUresult instantiate(CUgraphExec *handle, CUgraph graph_handle, cuuint64_t flags)
{
	struct sim_graph *graph = sim_handle(graph_handle, SIM_GRAPH_HANDLE);
	struct exec *exec;

	if (!handle || !graph || flags & ~(cuuint64_t)15)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_graph_has_memory_nodes(graph) && instantiated(graph))
		return CUDA_ERROR_NOT_SUPPORTED;
	exec = sim_handle_new(SIM_GRAPH_EXEC, sizeof(*exec));
	if (!exec)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exec->graph = sim_graph_copy(graph);
	if (!exec->graph) {
		sim_handle_delete(exec);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	exec->graph->owned = true;
	exec->source = graph->id;
	exec->flags = flags;
	*handle = (CUgraphExec)exec;
	return CUDA_SUCCESS;
}

static CUresult instantiate_with_log(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
				     char *log, size_t size)
{
	if (error_node)
		*error_node = NULL;
	if (log && size)
		*log = '\0';
	return instantiate(exec, graph, 0);
}

SIM_CALL(cuGraphInstantiate,
	 (CUgraphExec * exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t size),
	 (exec, graph, error_node, log, size))
{
	return instantiate_with_log(exec, graph, error_node, log, size);
}

SIM_CALL(cuGraphInstantiate_v2,
	 (CUgraphExec * exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t size),
	 (exec, graph, error_node, log, size))
{
	return instantiate_with_log(exec, graph, error_node, log, size);
}

SIM_CALL(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
	 (exec, graph, flags))
{
	return instantiate(exec, graph, flags);
}

static CUresult instantiate_with_params(CUgraphExec *exec, CUgraph graph,
					CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	CUresult result;

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	params->hErrNode_out = NULL;
	result = instantiate(exec, graph, params->flags);
	params->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
						    : CUDA_GRAPH_INSTANTIATE_ERROR;
	return result;
}

SIM_CALL(cuGraphInstantiateWithParams,
	 (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
	 (exec, graph, params))
{
	return instantiate_with_params(exec, graph, params);
}

SIM_CALL(cuGraphInstantiateWithParams_ptsz,
	 (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
	 (exec, graph, params))
{
	return instantiate_with_params(exec, graph, params);
}

static void delete_exec(struct exec *exec)
{
	exec->graph->owned = false;
	sim_graph_delete(exec->graph);
	free(exec);
}

SIM_CALL(cuGraphExecDestroy, (CUgraphExec handle), (handle))
{
	struct exec *exec = exec_of(handle);

	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	sim_handle_end(exec);
	exec->destroyed = true;
	if (!exec->launches)
		delete_exec(exec);
	return CUDA_SUCCESS;
}

SIM_CALL(cuGraphExecGetFlags, (CUgraphExec handle, cuuint64_t *flags), (handle, flags))
{
	struct exec *exec = exec_of(handle);

	if (!exec || !flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = exec->flags;
	return CUDA_SUCCESS;
}

/* ---- update --------------------------------------------------------------------------------- */

static CUgraphExecUpdateResult compare(const struct exec *exec, const struct sim_graph *graph,
				       CUgraphNode *error_node)
{
	const struct sim_graph *old = exec->graph;
	size_t i, j;

	*error_node = NULL;
	if (old->count != graph->count)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (i = 0; i < old->count; i++) {
		const struct sim_node *a = old->nodes[i], *b = graph->nodes[i];

		*error_node = (CUgraphNode)b;
		if (a->work.type != b->work.type)
			return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
		if (a->dependency_count != b->dependency_count)
			return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		for (j = 0; j < a->dependency_count; j++)
			if (a->dependencies[j]->place != b->dependencies[j]->place)
				return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	}
	*error_node = NULL;
	if (graph->id != exec->source && sim_graph_has_memory_nodes(graph))
		return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUresult update(CUgraphExec handle, CUgraph graph_handle, CUgraphNode *error_node,
		       CUgraphExecUpdateResult *why)
{
	struct sim_graph *graph = sim_handle(graph_handle, SIM_GRAPH_HANDLE), *copy;
	struct exec *exec = exec_of(handle);

	if (!exec || !graph || exec->launches)
		return CUDA_ERROR_INVALID_VALUE;
	*why = compare(exec, graph, error_node);
	if (*why != CU_GRAPH_EXEC_UPDATE_SUCCESS)
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	copy = sim_graph_copy(graph);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exec->graph->owned = false;
	sim_graph_delete(exec->graph);
	copy->owned = true;
	exec->graph = copy;
	return CUDA_SUCCESS;
}

SIM_CALL(cuGraphExecUpdate,
	 (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *why),
	 (exec, graph, error_node, why))
{
	CUgraphExecUpdateResult reason = CU_GRAPH_EXEC_UPDATE_ERROR;
	CUgraphNode node = NULL;
	CUresult result = update(exec, graph, &node, &reason);

	if (error_node)
		*error_node = node;
	if (why)
		*why = reason;
	return result;
}

SIM_CALL(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info),
	 (exec, graph, info))
{
	if (!info)
		return CUDA_ERROR_INVALID_VALUE;
	info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
	info->errorNode = info->errorFromNode = NULL;
	return update(exec, graph, &info->errorNode, &info->result);
}

/* ---- launch --------------------------------------------------------------------------------- */

/* Is memory of an earlier launch still there? Frees it if asked to. */
static bool allocated(const struct sim_graph *graph, bool free_it)
{
	bool any = false;
	size_t i;

	for (i = 0; i < graph->count; i++) {
		const struct sim_work *work = &graph->nodes[i]->work;

		if (work->type == CU_GRAPH_NODE_TYPE_GRAPH)
			any |= allocated(work->child, free_it);
		if (work->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
		    !sim_graph_memory_mapped(work->alloc.addr))
			continue;
		any = true;
		if (free_it)
			sim_graph_memory_unmap(work->alloc.addr);
	}
	return any;
}

static CUresult run(struct exec *exec)
{
	bool auto_free = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
	CUresult result;

	if (allocated(exec->graph, auto_free) && !auto_free)
		return CUDA_ERROR_INVALID_VALUE;
	exec->launches++;
	result = sim_graph_run(exec->graph);
	if (--exec->launches == 0 && exec->destroyed)
		delete_exec(exec); /* destroyed during the launch */
	return result;
}

/* Launched into a capture, it becomes a child graph. */
static CUresult capture_launch(struct sim_stream *stream, struct exec *exec)
{
	struct sim_work work = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
	CUresult result;

	if (sim_graph_has_memory_nodes(exec->graph))
		return CUDA_ERROR_NOT_SUPPORTED;
	work.child = sim_graph_copy(exec->graph);
	if (!work.child)
		return CUDA_ERROR_OUT_OF_MEMORY;
	work.child->owned = true;
	result = sim_capture_work(stream, &work, NULL);
	if (result != CUDA_SUCCESS)
		sim_graph_delete(work.child);
	return result;
}

static CUresult launch(CUgraphExec handle, CUstream stream_handle, bool per_thread)
{
	struct sim_stream *stream = sim_stream_of(stream_handle, per_thread);
	struct exec *exec = exec_of(handle);

	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	return stream->capture ? capture_launch(stream, exec) : run(exec);
}

SIM_CTX_CALL(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, stream))
{
	return launch(exec, stream, false);
}

SIM_CTX_CALL(cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream), (exec, stream))
{
	return launch(exec, stream, true);
}

static CUresult upload(CUgraphExec exec, CUstream stream, bool per_thread)
{
	if (!exec_of(exec))
		return CUDA_ERROR_INVALID_VALUE;
	return sim_stream_of(stream, per_thread) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_CTX_CALL(cuGraphUpload, (CUgraphExec exec, CUstream stream), (exec, stream))
{
	return upload(exec, stream, false);
}

SIM_CTX_CALL(cuGraphUpload_ptsz, (CUgraphExec exec, CUstream stream), (exec, stream))
{
	return upload(exec, stream, true);
}
