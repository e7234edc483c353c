// SPDX-License-Identifier: MIT
/*
 * The program of docs/investigation.md: in each step parts of a grid exchange their edges with
 * their neighbours. It has two mistakes, and runs to its end nevertheless. With the argument
 * "fixed" it has none. The document names its lines.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "halo_transport.h"

enum { NEIGHBOURS = 4, STEPS = 20, MIB = 1 << 20 };

struct edge {
	CUdeviceptr buffer;
	size_t size;
	struct transfer *transfer; /* under way; NULL: none */
};

static bool fixed; /* without the mistakes */

static void must(CUresult result)
{
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "halo: the driver answers %d\n", (int)result);
		_exit(1);
	}
}

static void allocate_edge(struct edge *edge, size_t size)
{
	must(cuMemAlloc_v2(&edge->buffer, size));
	edge->size = size;
}

/* Mistake: the old buffer may still be on its way to the neighbour. */
static void grow_edge(struct edge *edge)
{
	CUdeviceptr old = edge->buffer;

	if (fixed) {
		transport_wait(edge->transfer);
		edge->transfer = NULL;
	}
	allocate_edge(edge, edge->size * 2);
	must(cuMemFree_v2(old));
}

static void exchange(struct edge *edges)
{
	for (unsigned i = 0; i < NEIGHBOURS; i++)
		edges[i].transfer = transport_send(edges[i].buffer, edges[i].size);
}

static void finish(struct edge *edges)
{
	for (unsigned i = 0; i < NEIGHBOURS; i++)
		transport_wait(edges[i].transfer);
}

/* Computes the inner part of the grid meanwhile. */
static void compute(void)
{
	usleep(2000); /* the time that it takes */
}

static void run_steps(struct edge *edges)
{
	for (unsigned step = 0; step < STEPS; step++) {
		exchange(edges);
		compute();
		if (step % 8 == 5)
			grow_edge(&edges[step % NEIGHBOURS + step / 8]);
		compute();
		finish(edges);
	}
}

/* Mistake: the program does not wait for this transfer. */
static void say_goodbye(struct edge *edge)
{
	edge->transfer = transport_send(edge->buffer, edge->size);
	if (fixed)
		transport_wait(edge->transfer);
}

int main(int argc, char **argv)
{
	struct edge edges[NEIGHBOURS];
	CUcontext context;

	fixed = argc > 1 && strcmp(argv[1], "fixed") == 0;
	must(cuInit(0));
	must(cuDevicePrimaryCtxRetain(&context, 0));
	must(cuCtxSetCurrent(context));
	for (unsigned i = 0; i < NEIGHBOURS; i++)
		allocate_edge(&edges[i], (size_t)(2 + 2 * i) * MIB);
	run_steps(edges);
	say_goodbye(&edges[0]);
	for (unsigned i = 0; i < NEIGHBOURS; i++)
		must(cuMemFree_v2(edges[i].buffer));
	puts("halo: 20 steps done");
	return 0;
}
