/* SPDX-License-Identifier: MIT */
/*
 * The cost of registering: the driver's dma-buf export by hand, and the same through pindown, if it
 * is preloaded. Prints lines "NAME<tab>NANOSECONDS", medians.
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

static void measure(size_t mib)
{
	CUdeviceptr at;
	char name[80];

	must(cuMemAlloc_v2(&at, mib * MIB), "cuMemAlloc");
	snprintf(name, sizeof(name), "export + close, %zu MiB", mib);
	print_measure(name, time_of(export_and_close, at, mib * MIB));
	if (pindown.get != NULL) {
		snprintf(name, sizeof(name), "miss + unpin, %zu MiB", mib);
		print_measure(name, time_of(miss_and_flush, at, mib * MIB));
		snprintf(name, sizeof(name), "hit + put, %zu MiB", mib);
		print_measure(name, time_of(hits, at, mib * MIB) / HITS);
	}
	must(cuMemFree_v2(at), "cuMemFree");
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
	measure(4);
	measure(32);
	return 0;
}
