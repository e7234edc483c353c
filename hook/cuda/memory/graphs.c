/* SPDX-License-Identifier: MIT */
/*
 * Follows stream capture and graphs. While a stream is being captured a free only adds a node to a
 * graph; the memory ends when the graph is launched. So the addresses that a graph frees are read
 * from its nodes when it is instantiated, and ended at each launch. Such memory is always volatile:
 * some launches can't be seen (those from the device, for example).
 *
 * A program without graphs pays for two loads of a flag.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/base/memory/address_space.h"
#include "hook/cuda/devicemap.h"
#include "hook/hook.h"
#include "hook/cuda/memory/records.h"

/* An address whose memory ends when an executable graph is launched. */
struct freed_by_launch {
	CUgraphExec exec;
	uint64_t addr;
};
static PDN_TABLE(struct freed_by_launch) freed_by_launch;

#define MAX_DEPTH 16 /* of child graphs within child graphs */

uint32_t pdn_captures;
uint32_t pdn_graph_memory;

/* ---- capture ------------------------------------------------------------------------------ */

bool pdn_is_capturing(CUstream stream, enum pdn_flavour flavour)
{
	typeof(cuStreamIsCapturing) *ask = flavour == PDN_PER_THREAD
						   ? PDN_DRIVER(cuStreamIsCapturing_ptsz)
						   : PDN_DRIVER(cuStreamIsCapturing);
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	int error = errno;
	bool yes = ask && ask(stream, &status) == CUDA_SUCCESS &&
		   status != CU_STREAM_CAPTURE_STATUS_NONE;

	errno = error;
	return yes;
}

/*
 * Only whether the count is 0 matters, and it must not become 0 too early. A context that ends
 * while a stream in it is captured leaves the count too high for ever: then each async free costs a
 * question to the driver, and no address is retired.
 *
 * Relaxed, as pdn_graph_memory is: a thread can free on a stream that another thread captures only
 * after the two threads have synchronized.
 */
void pdn_capture_begun(void)
{
	__atomic_fetch_add(&pdn_captures, 1, __ATOMIC_RELAXED);
}

void pdn_capture_ended(void)
{
	uint32_t count = __atomic_load_n(&pdn_captures, __ATOMIC_RELAXED);

	while (count && !__atomic_compare_exchange_n(&pdn_captures, &count, count - 1, true,
						     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* Relaxed: as where it changes. */
bool pdn_mem_free_is_sure(uint64_t addr)
{
	return !__atomic_load_n(&pdn_captures, __ATOMIC_RELAXED) && !pdn_owner_is_external(addr);
}

/* ---- nodes -------------------------------------------------------------------------------- */

void pdn_graph_alloc(uint64_t addr, uint64_t length)
{
	__atomic_store_n(&pdn_graph_memory, 1, __ATOMIC_RELAXED);
	if (addr && length) {
		pdn_device_seen(addr, length);
		pdn_volatile(addr, length);
	}
}

/* Asks the driver nothing during a capture, so the length of the allocation is not known. */
void pdn_graph_free(uint64_t addr)
{
	__atomic_store_n(&pdn_graph_memory, 1, __ATOMIC_RELAXED);
	if (addr)
		pdn_volatile(addr, 1);
}

/* A walk through the nodes of a graph, which collects what its launch frees. */
struct walk {
	CUgraphExec exec;
	bool frees_own; /* a second launch frees what the graph's own nodes allocated */
};

static void walk_graph(const struct walk *walk, CUgraph graph, int depth);

static void remember(const struct walk *walk, uint64_t addr)
{
	if (addr)
		pdn_record_add(&freed_by_launch,
			       (&(struct freed_by_launch){.exec = walk->exec, .addr = addr}));
}

static void walk_alloc(const struct walk *walk, CUgraphNode node)
{
	typeof(cuGraphMemAllocNodeGetParams) *ask = PDN_DRIVER(cuGraphMemAllocNodeGetParams);
	CUDA_MEM_ALLOC_NODE_PARAMS params = {.dptr = 0};

	if (walk->frees_own && ask && ask(node, &params) == CUDA_SUCCESS)
		remember(walk, params.dptr);
}

static void walk_free(const struct walk *walk, CUgraphNode node)
{
	typeof(cuGraphMemFreeNodeGetParams) *ask = PDN_DRIVER(cuGraphMemFreeNodeGetParams);
	CUdeviceptr addr = 0;

	if (ask && ask(node, &addr) == CUDA_SUCCESS)
		remember(walk, addr);
}

static void walk_child(const struct walk *walk, CUgraphNode node, int depth)
{
	typeof(cuGraphChildGraphNodeGetGraph) *ask = PDN_DRIVER(cuGraphChildGraphNodeGetGraph);
	CUgraph child = NULL;

	if (ask && ask(node, &child) == CUDA_SUCCESS && child)
		walk_graph(walk, child, depth + 1);
}

static void walk_node(const struct walk *walk, CUgraphNode node, int depth)
{
	typeof(cuGraphNodeGetType) *ask = PDN_DRIVER(cuGraphNodeGetType);
	CUgraphNodeType type;

	if (!ask || ask(node, &type) != CUDA_SUCCESS)
		return;
	if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		walk_alloc(walk, node);
	else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		walk_free(walk, node);
	else if (type == CU_GRAPH_NODE_TYPE_GRAPH)
		walk_child(walk, node, depth);
}

static void walk_graph(const struct walk *walk, CUgraph graph, int depth)
{
	typeof(cuGraphGetNodes) *ask = PDN_DRIVER(cuGraphGetNodes);
	CUgraphNode *nodes;
	size_t count = 0, bytes;

	if (depth > MAX_DEPTH || !ask || ask(graph, NULL, &count) != CUDA_SUCCESS || !count)
		return;
	bytes = count * sizeof(*nodes);
	nodes = pdn_map(bytes, PROT_READ | PROT_WRITE);
	if (!nodes)
		return;
	if (ask(graph, nodes, &count) == CUDA_SUCCESS)
		for (size_t i = 0; i < count; i++)
			walk_node(walk, nodes[i], depth);
	pdn_unreserve(nodes, bytes);
}

/* ---- executable graphs -------------------------------------------------------------------- */

void pdn_graph_instantiated(CUgraphExec exec, CUgraph graph, uint64_t flags)
{
	struct walk walk = {
		.exec = exec,
		.frees_own = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH,
	};
	int error = errno;

	pdn_graph_forget(exec); /* the handle may have been that of an earlier graph */
	if (exec && graph)
		walk_graph(&walk, graph, 0);
	errno = error;
}

void pdn_graph_updated(CUgraphExec exec, CUgraph graph)
{
	typeof(cuGraphExecGetFlags) *ask = PDN_DRIVER(cuGraphExecGetFlags);
	cuuint64_t flags = 0;
	int error = errno;

	if (!ask || ask(exec, &flags) != CUDA_SUCCESS)
		flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH; /* rather end too much */
	errno = error;
	pdn_graph_instantiated(exec, graph, flags);
}

void pdn_graph_launch(struct call *call, CUgraphExec exec)
{
	struct freed_by_launch freed[16];
	unsigned done = 0, count;

	do {
		count = pdn_record_get(&freed_by_launch, (uintptr_t)exec, done, freed, 16);
		for (unsigned i = 0; i < count; i++)
			pdn_caught_in_order(call, freed[i].addr);
		done += count;
	} while (count == 16);
}

void pdn_graph_forget(CUgraphExec exec)
{
	pdn_record_remove(&freed_by_launch, (uintptr_t)exec);
}
