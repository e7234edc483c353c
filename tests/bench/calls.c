// SPDX-License-Identifier: MIT
/*
 * calls: the cost of the watched calls, in ns. It is linked with libcuda.so.1 and knows nothing of
 * pindown; tests/bench/run starts it on one driver after another, with the preload.
 *
 * Two processes on one driver differ by more than the cost of a wrapper. So each batch is made
 * twice by turns in one process: through the wrapper that the loader has bound the name to, and
 * straight to the function in libcuda's own symbol table. Without a preload the two are the same.
 */
#define _GNU_SOURCE
#include "calls.h"
#include "straight.h"

#define BATCH	      256u
#define BATCHES	      201u
#define ALLOC_BATCHES 610u
#define BYTES	      65536u
#define TOGETHER      24u /* allocations at a time: one more, and they fill a block of the driver */

static CUdeviceptr addrs[TOGETHER];
static CUstream stream;

static struct calls {
	typeof(cuMemAlloc_v2) *alloc;
	typeof(cuMemFree_v2) *free;
	typeof(cuMemAllocAsync) *alloc_async;
	typeof(cuMemFreeAsync) *free_async;
	typeof(cuPointerGetAttribute) *attribute;
} linked = {cuMemAlloc_v2, cuMemFree_v2, cuMemAllocAsync, cuMemFreeAsync, cuPointerGetAttribute},
  straight, *use = &linked;

static void find_straight(void)
{
	straight.alloc = in_library("libcuda.so.1", "cuMemAlloc_v2");
	straight.free = in_library("libcuda.so.1", "cuMemFree_v2");
	straight.alloc_async = in_library("libcuda.so.1", "cuMemAllocAsync");
	straight.free_async = in_library("libcuda.so.1", "cuMemFreeAsync");
	straight.attribute = in_library("libcuda.so.1", "cuPointerGetAttribute");
}

static void alloc_batch(void)
{
	unsigned i;

	for (i = 0; i < TOGETHER; i++)
		must(use->alloc(&addrs[i], BYTES), "cuMemAlloc");
}

static void free_batch(void)
{
	unsigned i;

	for (i = 0; i < TOGETHER; i++)
		must(use->free(addrs[i]), "cuMemFree");
}

static void pair_batch(void)
{
	unsigned i;

	for (i = 0; i < BATCH; i++) {
		must(use->alloc(&addrs[0], BYTES), "cuMemAlloc");
		must(use->free(addrs[0]), "cuMemFree");
	}
}

static void async_pair_batch(void)
{
	unsigned i;

	for (i = 0; i < BATCH; i++) {
		must(use->alloc_async(&addrs[0], BYTES, stream), "cuMemAllocAsync");
		must(use->free_async(addrs[0], stream), "cuMemFreeAsync");
	}
	must(cuStreamSynchronize(stream), "cuStreamSynchronize");
}

/* The query that a registration cache without interception makes on each hit. */
static void tag_check_batch(void)
{
	unsigned long long id;
	unsigned i;

	for (i = 0; i < BATCH; i++)
		must(use->attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, addrs[0]),
		     "cuPointerGetAttribute");
}

static double time_of(void (*batch)(void), unsigned calls)
{
	double begin = now_ns();

	batch();
	return (now_ns() - begin) / calls;
}

/* One row: the straight calls under a kind of their own, the linked ones under the runner's. */
static void print_both(const char *name, double *by_linked, double *by_straight, unsigned count)
{
	printf("direct\t");
	print_measure(name, median(by_straight, count));
	print_measure(name, median(by_linked, count));
}

static void measure_alloc_and_free(void)
{
	static double allocs[2][ALLOC_BATCHES], frees[2][ALLOC_BATCHES];
	unsigned i;

	for (i = 0; i < 2 * ALLOC_BATCHES; i++) {
		unsigned is_straight = (i ^ i >> 1) & 1; /* by turns, and each as often first */

		use = is_straight ? &straight : &linked;
		allocs[is_straight][i / 2] = time_of(alloc_batch, TOGETHER);
		frees[is_straight][i / 2] = time_of(free_batch, TOGETHER);
	}
	print_both("alloc, 64 KiB", allocs[0], allocs[1], ALLOC_BATCHES);
	print_both("free, 64 KiB", frees[0], frees[1], ALLOC_BATCHES);
}

static void measure(const char *name, void (*batch)(void))
{
	static double times[2][BATCHES];
	unsigned i;

	batch();
	for (i = 0; i < 2 * BATCHES; i++) {
		unsigned is_straight = (i ^ i >> 1) & 1;

		use = is_straight ? &straight : &linked;
		times[is_straight][i / 2] = time_of(batch, BATCH);
	}
	print_both(name, times[0], times[1], BATCHES);
}

int main(void)
{
	CUdeviceptr neighbour;

	open_driver();
	find_straight();
	/* The driver frees a block with its last allocation, which must not be measured. */
	must(cuMemAlloc_v2(&neighbour, BYTES), "cuMemAlloc");
	must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	measure_alloc_and_free();
	measure("alloc+free, 64 KiB", pair_batch);
	measure("async alloc+free, 64 KiB", async_pair_batch);
	must(cuMemAlloc_v2(&addrs[0], BYTES), "cuMemAlloc");
	measure("tag check", tag_check_batch);
	must(cuMemFree_v2(addrs[0]), "cuMemFree");
	must(cuMemFree_v2(neighbour), "cuMemFree");
	return 0;
}
