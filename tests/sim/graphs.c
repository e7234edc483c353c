/* SPDX-License-Identifier: MIT */
/* Graphs: nodes, their order, and the memory that allocation nodes own. */
#include <stdlib.h>
#include <string.h>

#include "contexts.h"
#include "core.h"
#include "graphs.h"
#include "handles.h"
#include "memory.h"
#include "streams.h"

/*
 * The address of an allocation node. It stays reserved as long as a node has it or memory is mapped
 * there. A run of a graph with the node maps memory there; a free node, cuMemFree or cuMemFreeAsync
 * unmaps it.
 */
struct memory {
	uint64_t addr, size, span;
	int device;
	unsigned nodes;
	struct sim_alloc *mapped;
	struct memory *next;
};

static struct memory *memories;
static uint64_t last_graph;
static uint64_t mapped_bytes[16], mapped_high[16];

static struct memory *memory_at(uint64_t addr)
{
	struct memory *memory = memories;

	while (memory && memory->addr != addr)
		memory = memory->next;
	return memory;
}

static CUresult new_memory(struct sim_work *work)
{
	struct memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory->size = work->alloc.size;
	memory->span = (memory->size + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK;
	memory->device = work->alloc.device;
	memory->addr = sim_addresses_take(memory->span, 0);
	if (!memory->addr) {
		free(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memory->next = memories;
	memories = memory;
	work->alloc.addr = work->alloc.params.dptr = memory->addr;
	return CUDA_SUCCESS;
}

static void forget_unused(struct memory *unused)
{
	struct memory **at = &memories;

	if (unused->nodes || unused->mapped)
		return;
	while (*at != unused)
		at = &(*at)->next;
	*at = unused->next;
	sim_addresses_drop(unused->addr, unused->span);
	free(unused);
}

void sim_graph_memory_free(struct sim_alloc *alloc)
{
	struct memory *memory = alloc->owner;
	struct sim_block *block = alloc->block;

	mapped_bytes[memory->device] -= memory->span;
	sim_alloc_delete(alloc);
	sim_block_remove(block);
	memory->mapped = NULL;
	forget_unused(memory);
}

static CUresult map_memory(uint64_t addr)
{
	struct memory *memory = memory_at(addr);
	struct sim_extent *extent;

	if (memory->mapped)
		return CUDA_ERROR_INVALID_VALUE;
	extent = sim_extent_take(memory->device, memory->span);
	if (!extent)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory->mapped =
		sim_alloc_whole(SIM_GRAPH, memory->size, memory->device, extent, memory->addr);
	if (!memory->mapped) {
		sim_extent_drop(extent);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memory->mapped->owner = memory;
	mapped_bytes[memory->device] += memory->span;
	if (mapped_bytes[memory->device] > mapped_high[memory->device])
		mapped_high[memory->device] = mapped_bytes[memory->device];
	return CUDA_SUCCESS;
}

bool sim_graph_memory_mapped(uint64_t addr)
{
	struct memory *memory = memory_at(addr);

	return memory && memory->mapped;
}

void sim_graph_memory_unmap(uint64_t addr)
{
	struct memory *memory = memory_at(addr);

	if (memory && memory->mapped)
		sim_graph_memory_free(memory->mapped);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

struct sim_graph *sim_graph_new(void)
{
	struct sim_graph *graph = sim_handle_new(SIM_GRAPH_HANDLE, sizeof(*graph));

	if (graph)
		graph->id = ++last_graph;
	return graph;
}

static void delete_node(struct sim_node *node)
{
	struct memory *memory;

	switch (node->work.type) {
	case CU_GRAPH_NODE_TYPE_GRAPH:
		sim_graph_delete(node->work.child);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		memory = memory_at(node->work.alloc.addr);
		memory->nodes--;
		forget_unused(memory);
		break;
	default:
		break;
	}
	free(node->dependencies);
	sim_handle_delete(node);
}

void sim_graph_delete(struct sim_graph *graph)
{
	size_t i;

	for (i = 0; i < graph->count; i++)
		delete_node(graph->nodes[i]);
	free(graph->nodes);
	sim_handle_delete(graph);
}

static bool has_free_node(const struct sim_graph *graph, uint64_t addr)
{
	size_t i;

	for (i = 0; i < graph->count; i++)
		if (graph->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
		    graph->nodes[i]->work.free == addr)
			return true;
	return false;
}

bool sim_graph_has_memory_nodes(const struct sim_graph *graph)
{
	size_t i;

	for (i = 0; i < graph->count; i++) {
		const struct sim_work *work = &graph->nodes[i]->work;

		if (work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
		    work->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
		    (work->type == CU_GRAPH_NODE_TYPE_GRAPH &&
		     sim_graph_has_memory_nodes(work->child)))
			return true;
	}
	return false;
}

static bool reserve_one(struct sim_graph *graph)
{
	size_t capacity = graph->capacity ? graph->capacity * 2 : 8;
	void *bigger;

	if (graph->count < graph->capacity)
		return true;
	bigger = realloc(graph->nodes, capacity * sizeof(*graph->nodes));
	if (!bigger)
		return false;
	graph->nodes = bigger;
	graph->capacity = capacity;
	return true;
}

/* Copies a node, with a share in the memory that it names. */
static struct sim_node *append(struct sim_graph *graph, const struct sim_work *work, size_t count)
{
	struct sim_node *node;

	if (!reserve_one(graph))
		return NULL;
	node = sim_handle_new(SIM_GRAPH_NODE, sizeof(*node));
	if (!node)
		return NULL;
	node->dependencies = calloc(count ? count : 1, sizeof(*node->dependencies));
	if (!node->dependencies) {
		sim_handle_delete(node);
		return NULL;
	}
	node->graph = graph;
	node->work = *work;
	node->place = graph->count;
	if (work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		memory_at(work->alloc.addr)->nodes++;
	graph->nodes[graph->count++] = node;
	return node;
}

CUresult sim_graph_add(struct sim_graph *graph, const struct sim_work *wanted,
		       struct sim_node *const *dependencies, size_t count, struct sim_node **out)
{
	struct sim_work work = *wanted;
	CUresult result = CUDA_SUCCESS;
	struct sim_node *node;

	switch (work.type) {
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		result = new_memory(&work);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		if (!memory_at(work.free) || has_free_node(graph, work.free))
			result = CUDA_ERROR_INVALID_VALUE;
		break;
	default:
		break;
	}
	if (result != CUDA_SUCCESS)
		return result;
	node = append(graph, &work, count);
	if (!node) {
		if (work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
			forget_unused(memory_at(work.alloc.addr));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (count)
		memcpy(node->dependencies, dependencies, count * sizeof(*dependencies));
	node->dependency_count = count;
	if (out)
		*out = node;
	return CUDA_SUCCESS;
}

struct sim_graph *sim_graph_copy(struct sim_graph *graph)
{
	struct sim_graph *copy = sim_graph_new();
	size_t i, j;

	if (!copy)
		return NULL;
	for (i = 0; i < graph->count; i++) {
		struct sim_node *from = graph->nodes[i], *to;
		struct sim_work work = from->work;

		if (work.type == CU_GRAPH_NODE_TYPE_GRAPH) {
			work.child = sim_graph_copy(work.child);
			if (!work.child)
				goto failed;
			work.child->owned = true;
		}
		to = append(copy, &work, from->dependency_count);
		if (!to)
			goto failed;
		for (j = 0; j < from->dependency_count; j++)
			to->dependencies[j] = copy->nodes[from->dependencies[j]->place];
		to->dependency_count = from->dependency_count;
	}
	return copy;
failed:
	sim_graph_delete(copy);
	return NULL;
}

/* Removes one node, also from the dependencies of others. */
void sim_graph_remove(struct sim_node *node)
{
	struct sim_graph *graph = node->graph;
	size_t i, j;

	memmove(graph->nodes + node->place, graph->nodes + node->place + 1,
		(graph->count - node->place - 1) * sizeof(*graph->nodes));
	graph->count--;
	for (i = 0; i < graph->count; i++) {
		struct sim_node *other = graph->nodes[i];

		other->place = i;
		for (j = 0; j < other->dependency_count;)
			if (other->dependencies[j] == node)
				other->dependencies[j] =
					other->dependencies[--other->dependency_count];
			else
				j++;
	}
	delete_node(node);
}

bool sim_comes_before(const struct sim_node *early, const struct sim_node *late)
{
	size_t i;

	if (early == late)
		return true;
	if (early->place > late->place)
		return false;
	for (i = 0; i < late->dependency_count; i++)
		if (sim_comes_before(early, late->dependencies[i]))
			return true;
	return false;
}

static bool all_placed(const struct sim_node *node, size_t before)
{
	size_t i;

	for (i = 0; i < node->dependency_count; i++)
		if (node->dependencies[i]->place >= before)
			return false;
	return true;
}

/* Puts every node after those that it depends on. */
static void sort(struct sim_graph *graph)
{
	size_t i, j;

	for (i = 0; i < graph->count; i++)
		graph->nodes[i]->place = graph->count + i;
	for (i = 0; i < graph->count; i++) {
		struct sim_node *next;

		for (j = i; !all_placed(graph->nodes[j], i);)
			j++;
		next = graph->nodes[j];
		memmove(graph->nodes + i + 1, graph->nodes + i, (j - i) * sizeof(*graph->nodes));
		graph->nodes[i] = next;
		next->place = i;
	}
}

CUresult sim_graph_connect(struct sim_node *early, struct sim_node *late)
{
	struct sim_node **more;

	if (sim_comes_before(late, early))
		return CUDA_ERROR_INVALID_VALUE;
	more = realloc(late->dependencies, (late->dependency_count + 1) * sizeof(*more));
	if (!more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	late->dependencies = more;
	more[late->dependency_count++] = early;
	sort(early->graph);
	return CUDA_SUCCESS;
}

/*
 * Runs one node after the other, in an order that respects the dependencies: the nodes of a graph
 * are kept in such an order.
 */
CUresult sim_graph_run(struct sim_graph *graph)
{
	CUresult result = CUDA_SUCCESS;
	size_t i;

	for (i = 0; i < graph->count && result == CUDA_SUCCESS; i++) {
		const struct sim_work *work = &graph->nodes[i]->work;

		switch (work->type) {
		case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
			result = map_memory(work->alloc.addr);
			break;
		case CU_GRAPH_NODE_TYPE_MEM_FREE:
			if (!sim_graph_memory_mapped(work->free))
				result = CUDA_ERROR_INVALID_VALUE;
			else
				sim_graph_memory_unmap(work->free);
			break;
		case CU_GRAPH_NODE_TYPE_GRAPH:
			result = sim_graph_run(work->child);
			break;
		default:
			result = sim_work_do(work);
			break;
		}
	}
	return result;
}

/* ---- memory of graphs as a whole ------------------------------------------------------------ */

SIM_CALL(cuDeviceGraphMemTrim, (CUdevice device), (device))
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	return CUDA_SUCCESS; /* freed memory goes back at once: nothing is left to trim */
}

SIM_CALL(cuDeviceGetGraphMemAttribute,
	 (CUdevice device, CUgraphMem_attribute attribute, void *value), (device, attribute, value))
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value || attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	*(cuuint64_t *)value = attribute % 2 ? mapped_high[device] : mapped_bytes[device];
	return CUDA_SUCCESS;
}
