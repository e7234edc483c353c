/* SPDX-License-Identifier: MIT */
/*
 * The cost of registering: the driver's dma-buf export by hand, and the same through pindown, if it
 * is preloaded, for memory of cuMemAlloc, of a pool, and of cuMemMap. Prints lines
 * "NAME<tab>NANOSECONDS", medians.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "hook/cuda/abi.h"
#include "cache/pindown.h"

#define MIB    (1024u * 1024u)
#define ROUNDS 201
#define HITS   10000

static struct {
	__typeof__(&pindown_get) get;
	__typeof__(&pindown_put) put;
	__typeof__(&pindown_flush) flush;
} pindown;

static void must(int result, const char *what)
{
	if (result != 0)
		stop(what, result);
}

static void export_and_close(CUdeviceptr at, size_t size)
{
	int fd = -1;

	must(cuMemGetHandleForAddressRange(&fd, at, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
	     "export");
	close(fd);
}

static void miss_and_flush(CUdeviceptr at, size_t size)
{
	pindown_region *region;

	must(pindown.get(at, size, 0, &region), "pindown_get");
	pindown.put(region);
	pindown.flush();
}

static void hits(CUdeviceptr at, size_t size)
{
	pindown_region *region;
	int i;

	for (i = 0; i < HITS; i++) {
		must(pindown.get(at, size, 0, &region), "pindown_get");
		pindown.put(region);
	}
}

static double time_of(void (*step)(CUdeviceptr, size_t), CUdeviceptr at, size_t size)
{
	double times[ROUNDS], begin;
	int i;

	step(at, size);
	for (i = 0; i < ROUNDS; i++) {
		begin = now_ns();
		step(at, size);
		times[i] = now_ns() - begin;
	}
	return median(times, ROUNDS);
}

/* ---- kinds of memory ------------------------------------------------------------------------ */

static CUdeviceptr make_linear(size_t size)
{
	CUdeviceptr at;

	must(cuMemAlloc_v2(&at, size), "cuMemAlloc");
	return at;
}

static void end_linear(CUdeviceptr at, size_t size)
{
	(void)size;
	must(cuMemFree_v2(at), "cuMemFree");
}

/* The driver exports memory of a pool from the beginning of its piece only. */
static CUdeviceptr make_pool(size_t size)
{
	CUdeviceptr at, piece = 0;

	must(cuMemAllocAsync(&at, size, NULL), "cuMemAllocAsync");
	must(cuStreamSynchronize(NULL), "cuStreamSynchronize");
	if (cuPointerGetAttribute(&piece, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at) ==
		    CUDA_SUCCESS &&
	    piece != at)
		stop("the allocation is not the first of its piece", 0);
	return at;
}

static CUmemGenericAllocationHandle handle;

static CUdeviceptr make_mapped(size_t size)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr at;

	must(cuMemAddressReserve(&at, size, 0, 0, 0), "cuMemAddressReserve");
	must(cuMemCreate(&handle, size, &prop, 0), "cuMemCreate");
	must(cuMemMap(at, size, 0, handle, 0), "cuMemMap");
	must(cuMemSetAccess(at, size, &access, 1), "cuMemSetAccess");
	return at;
}

static void end_mapped(CUdeviceptr at, size_t size)
{
	must(cuMemUnmap(at, size), "cuMemUnmap");
	must(cuMemRelease(handle), "cuMemRelease");
	must(cuMemAddressFree(at, size), "cuMemAddressFree");
}

static const struct kind {
	const char *name;
	CUdeviceptr (*make)(size_t size);
	void (*end)(CUdeviceptr at, size_t size);
} linear = {"", make_linear, end_linear}, pool = {"pool, ", make_pool, end_linear},
  mapped = {"mapped, ", make_mapped, end_mapped};

static void measure(const struct kind *kind, size_t mib)
{
	CUdeviceptr at = kind->make(mib * MIB);
	char name[80];

	snprintf(name, sizeof(name), "export + close, %s%zu MiB", kind->name, mib);
	print_measure(name, time_of(export_and_close, at, mib * MIB));
	if (pindown.get != NULL) {
		snprintf(name, sizeof(name), "miss + unpin, %s%zu MiB", kind->name, mib);
		print_measure(name, time_of(miss_and_flush, at, mib * MIB));
		snprintf(name, sizeof(name), "hit + put, %s%zu MiB", kind->name, mib);
		print_measure(name, time_of(hits, at, mib * MIB) / HITS);
	}
	kind->end(at, mib * MIB);
}

int main(void)
{
	CUcontext context;

	must(cuInit(0), "cuInit");
	must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	pindown.put = dlsym(RTLD_DEFAULT, "pindown_put");
	pindown.flush = dlsym(RTLD_DEFAULT, "pindown_flush");
	pindown.get = dlsym(RTLD_DEFAULT, "pindown_get");
	measure(&linear, 4);
	measure(&linear, 32);
	measure(&pool, 4);
	measure(&mapped, 4);
	return 0;
}
