// SPDX-License-Identifier: MIT
/*
 * graphs COUNT: COUNT allocations that belong to a graph, whose ends can't all be seen: the cost of
 * a hit on other memory, and of an allocation and a free of other memory, before, meanwhile, and
 * after the graph has gone. Run with the preload, PINDOWN_BACKEND=none and a driver that has
 * graphs. Prints lines NAME, COUNT and ns, with tabs between.
 */
#include "calls.h"

#include "cache/pindown.h"

#define BYTES 65536u
#define HITS  20000u
#define PAIRS 500u
#define TURNS 7u

static uint32_t many;
static CUdeviceptr registered;

static double hits(void)
{
	double values[TURNS];
	pindown_region *region;

	for (unsigned turn = 0; turn < TURNS; turn++) {
		double begin = now_ns();

		for (unsigned i = 0; i < HITS; i++) {
			int result = pindown_get(registered, BYTES, 0, &region);

			if (result != PINDOWN_OK)
				stop(pindown_strerror(result), result);
			pindown_put(region);
		}
		values[turn] = (now_ns() - begin) / HITS;
	}
	return median(values, TURNS);
}

static double pairs(void)
{
	double values[TURNS];
	CUdeviceptr addr;

	for (unsigned turn = 0; turn < TURNS; turn++) {
		double begin = now_ns();

		for (unsigned i = 0; i < PAIRS; i++) {
			must(cuMemAlloc_v2(&addr, BYTES), "cuMemAlloc");
			must(cuMemFree_v2(addr), "cuMemFree");
		}
		values[turn] = (now_ns() - begin) / PAIRS;
	}
	return median(values, TURNS);
}

static void measure(const char *when)
{
	printf("hit, %s\t%u\t%.2f\n", when, many, hits());
	printf("allocation and free, %s\t%u\t%.2f\n", when, many, pairs());
}

/* One allocation after another, each freed by the graph. */
static CUgraph make_graph(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytesize = BYTES};
	CUgraphNode alloc, last = NULL;
	CUgraph graph;

	must(cuGraphCreate(&graph, 0), "cuGraphCreate");
	for (uint32_t i = 0; i < many; i++) {
		must(cuGraphAddMemAllocNode(&alloc, graph, last ? &last : NULL, last ? 1 : 0,
					    &params),
		     "cuGraphAddMemAllocNode");
		must(cuGraphAddMemFreeNode(&last, graph, &alloc, 1, params.dptr),
		     "cuGraphAddMemFreeNode");
	}
	return graph;
}

int main(int argc, char **argv)
{
	CUdeviceptr neighbour;
	CUgraphExec exec;
	CUgraph graph;

	if (argc != 2) {
		fprintf(stderr, "usage: %s COUNT\n", argv[0]);
		return 2;
	}
	many = (uint32_t)strtoul(argv[1], NULL, 10);
	open_driver();
	must(cuMemAlloc_v2(&neighbour, BYTES), "cuMemAlloc");
	must(cuMemAlloc_v2(&registered, BYTES), "cuMemAlloc");
	measure("before the graph");
	graph = make_graph();
	must(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
	must(cuGraphLaunch(exec, NULL), "cuGraphLaunch");
	must(cuStreamSynchronize(NULL), "cuStreamSynchronize");
	measure("with the graph's ranges");
	must(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
	must(cuGraphDestroy(graph), "cuGraphDestroy");
	must(cuDeviceGraphMemTrim(0), "cuDeviceGraphMemTrim");
	measure("after the graph");
	must(cuMemFree_v2(registered), "cuMemFree");
	must(cuMemFree_v2(neighbour), "cuMemFree");
	return 0;
}
