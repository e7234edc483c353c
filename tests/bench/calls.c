// SPDX-License-Identifier: MIT
/*
 * calls: what the watched calls cost, in ns. It is linked with libcuda.so.1 and knows nothing of
 * pindown; tests/bench/run starts it with and without the preload, on one driver after another.
 */
#include "calls.h"

#define BATCH	 256u
#define BATCHES	 61u
#define BYTES	 65536u
#define TOGETHER 24u /* allocations at once: with one more they fit in one block of the driver's */

static CUdeviceptr addrs[TOGETHER];
static CUstream stream;

static void alloc_batch(void)
{
	unsigned i;

	for (i = 0; i < TOGETHER; i++)
		must(cuMemAlloc_v2(&addrs[i], BYTES), "cuMemAlloc");
}

static void free_batch(void)
{
	unsigned i;

	for (i = 0; i < TOGETHER; i++)
		must(cuMemFree_v2(addrs[i]), "cuMemFree");
}

static void pair_batch(void)
{
	unsigned i;

	for (i = 0; i < BATCH; i++) {
		must(cuMemAlloc_v2(&addrs[0], BYTES), "cuMemAlloc");
		must(cuMemFree_v2(addrs[0]), "cuMemFree");
	}
}

static void async_pair_batch(void)
{
	unsigned i;

	for (i = 0; i < BATCH; i++) {
		must(cuMemAllocAsync(&addrs[0], BYTES, stream), "cuMemAllocAsync");
		must(cuMemFreeAsync(addrs[0], stream), "cuMemFreeAsync");
	}
}

/* What a registration cache without interception asks on each hit. */
static void tag_check_batch(void)
{
	unsigned long long id;
	unsigned i;

	for (i = 0; i < BATCH; i++)
		must(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, addrs[0]),
		     "cuPointerGetAttribute");
}

static double time_of(void (*batch)(void), unsigned calls)
{
	double begin = now_ns();

	batch();
	return (now_ns() - begin) / calls;
}

static void measure_alloc_and_free(void)
{
	double allocs[10 * BATCHES], frees[10 * BATCHES];
	unsigned i;

	for (i = 0; i < 10 * BATCHES; i++) {
		allocs[i] = time_of(alloc_batch, TOGETHER);
		frees[i] = time_of(free_batch, TOGETHER);
	}
	print_measure("alloc, 64 KiB", median(allocs, 10 * BATCHES));
	print_measure("free, 64 KiB", median(frees, 10 * BATCHES));
}

static void measure(const char *name, void (*batch)(void), CUresult (*after)(CUstream))
{
	double times[BATCHES];
	unsigned i;

	batch();
	for (i = 0; i < BATCHES; i++) {
		times[i] = time_of(batch, BATCH);
		if (after)
			must(after(stream), "cuStreamSynchronize");
	}
	print_measure(name, median(times, BATCHES));
}

int main(void)
{
	CUdeviceptr neighbour;

	open_driver();
	/* The driver gives a block back with its last allocation, and that is not what is measured. */
	must(cuMemAlloc_v2(&neighbour, BYTES), "cuMemAlloc");
	must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	measure_alloc_and_free();
	measure("alloc+free, 64 KiB", pair_batch, NULL);
	measure("async alloc+free, 64 KiB", async_pair_batch, cuStreamSynchronize);
	must(cuMemAlloc_v2(&addrs[0], BYTES), "cuMemAlloc");
	measure("tag check", tag_check_batch, NULL);
	must(cuMemFree_v2(addrs[0]), "cuMemFree");
	must(cuMemFree_v2(neighbour), "cuMemFree");
	return 0;
}
