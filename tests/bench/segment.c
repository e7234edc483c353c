/* SPDX-License-Identifier: MIT */
/*
 * Windows in a segment that is mapped piece by piece, as PyTorch's expandable segments are: 40
 * tensors of 3 MiB in 60 mappings of 2 MiB. Prints the cost of a get that hits and its put, next to
 * the same in one allocation, and of a miss that grows: a get that is partly in a region, and pins
 * a wider one in its place.
 */
#include "calls.h"

#include "cache/pindown.h"

#define MIB	((uint64_t)1 << 20)
#define PIECE	(2 * MIB)
#define TENSOR	(3 * MIB)
#define TENSORS 40u
#define SEGMENT (TENSORS * TENSOR)
#define GETS	200000u
#define ROUNDS	9u
#define STEPS	20u /* of a round with misses */

static CUdeviceptr segment_of(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	const CUmemAccessDesc access = {.location = prop.location,
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr base;

	must(cuMemAddressReserve(&base, SEGMENT, 0, 0, 0), "cuMemAddressReserve");
	for (uint64_t at = 0; at < SEGMENT; at += PIECE) {
		must(cuMemCreate(&handle, PIECE, &prop, 0), "cuMemCreate");
		must(cuMemMap(base + at, PIECE, 0, handle, 0), "cuMemMap");
		must(cuMemRelease(handle), "cuMemRelease");
	}
	must(cuMemSetAccess(base, SEGMENT, &access, 1), "cuMemSetAccess");
	return base;
}

static struct pindown_stats stats(void)
{
	struct pindown_stats now;

	if (pindown_stats(&now, sizeof(now), -1) != PINDOWN_OK || !now.intercepting)
		stop("frees are not watched: is libpindown.so preloaded?", 0);
	return now;
}

static void get_and_put(CUdeviceptr at)
{
	pindown_region *region;
	int result = pindown_get(at, TENSOR, 0, &region);

	if (result != PINDOWN_OK)
		stop(pindown_strerror(result), result);
	pindown_put(region);
}

static double hit_in(CUdeviceptr base)
{
	double rounds[ROUNDS];
	struct pindown_stats before;

	for (unsigned i = 0; i < TENSORS; i++)
		get_and_put(base + i * TENSOR);
	before = stats();
	for (unsigned round = 0; round < ROUNDS; round++) {
		double begin = now_ns();

		for (unsigned i = 0; i < GETS; i++)
			get_and_put(base + i * 17 % TENSORS * TENSOR);
		rounds[round] = (now_ns() - begin) / GETS;
	}
	if (stats().misses != before.misses)
		stop("some gets were no hits: misses", (int)(stats().misses - before.misses));
	return median(rounds, ROUNDS);
}

/* All first gets of a step; the hits among them cost next to nothing. */
static double miss_in(CUdeviceptr base)
{
	double rounds[ROUNDS];

	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t before = stats().misses;
		double ns = 0;

		for (unsigned step = 0; step < STEPS; step++) {
			double begin;

			pindown_flush();
			get_and_put(base); /* touches no region: it does not grow */
			begin = now_ns();
			for (unsigned i = 1; i < TENSORS; i++)
				get_and_put(base + i * TENSOR);
			ns += now_ns() - begin;
		}
		rounds[round] = ns / (double)(stats().misses - before - STEPS);
	}
	return median(rounds, ROUNDS);
}

int main(void)
{
	CUdeviceptr one, segment;

	open_driver();
	must(cuMemAlloc_v2(&one, SEGMENT), "cuMemAlloc");
	segment = segment_of();
	print_measure("hit+put, 40 tensors in one allocation", hit_in(one));
	print_measure("hit+put, 40 tensors in one segment", hit_in(segment));
	must(cuMemFree_v2(one), "cuMemFree");
	print_measure("miss that grows, 40 tensors, us", miss_in(segment) / 1000);
	must(cuMemUnmap(segment, SEGMENT), "cuMemUnmap");
	if (stats().bytes)
		stop("bytes are pinned after the end", (int)stats().bytes);
	return 0;
}
