/* SPDX-License-Identifier: MIT */
/* Stream-ordered memory and its pools, in the legacy and the per-thread-stream variants. */
#include "app.h"

#define SIZE (256u << 10)

static void on_stream(CUstream stream)
{
	CUdeviceptr first = 0, second = 0;

	WATCHED(first, cuMemAllocAsync, &first, SIZE, stream);
	PLAIN(cuStreamSynchronize, stream);
	app_say("%s", app_write_and_read(first, SIZE, 7));
	WATCHED(first, cuMemFreeAsync, first, stream);
	WATCHED(second, cuMemAllocAsync, &second, SIZE, stream);
	WATCHED(second, cuMemFreeAsync, second, stream);
	PLAIN(cuStreamSynchronize, stream);
	WATCHED(0, cuMemAllocAsync, NULL, SIZE, stream);
	WATCHED(0, cuMemFreeAsync, second, stream);
}

static void per_thread(void)
{
	CUdeviceptr at = 0;

	WATCHED(at, cuMemAllocAsync_ptsz, &at, SIZE, NULL);
	WATCHED(at, cuMemFreeAsync_ptsz, at, NULL);
	PLAIN(cuStreamSynchronize, (CUstream)2);
}

static void own_pool(CUdevice device, CUstream stream)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	CUmemoryPool pool = NULL;
	CUdeviceptr at = 0, ptsz = 0;

	PLAIN(cuMemPoolCreate, &pool, &props);
	WATCHED(at, cuMemAllocFromPoolAsync, &at, SIZE, pool, stream);
	WATCHED(ptsz, cuMemAllocFromPoolAsync_ptsz, &ptsz, SIZE, pool, stream);
	PLAIN(cuStreamSynchronize, stream);
	app_say("%s", app_write_and_read(at, SIZE, 8));
	app_say("%s", app_write_and_read(ptsz, SIZE, 9));
	WATCHED(at, cuMemFreeAsync, at, stream);
	WATCHED(ptsz, cuMemFreeAsync_ptsz, ptsz, stream);
	PLAIN(cuStreamSynchronize, stream);
	WATCHED(0, cuMemPoolTrimTo, pool, 0);
	WATCHED(0, cuMemPoolDestroy, pool);
	WATCHED(0, cuMemAllocFromPoolAsync, NULL, SIZE, NULL, stream);
}

/* The synchronous call may free async memory, too. */
static void freed_at_once(CUstream stream)
{
	CUdeviceptr at = 0;

	WATCHED(at, cuMemAllocAsync, &at, SIZE, stream);
	WATCHED(at, cuMemFree_v2, at);
}

int app_async(int argc, char **argv)
{
	CUdevice device = app_begin();
	CUmemoryPool pool = NULL;
	CUstream stream = NULL;
	uint64_t threshold = 0;

	(void)argc, (void)argv;
	on_stream(NULL);
	PLAIN(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	on_stream(stream);
	per_thread();
	own_pool(device, stream);
	freed_at_once(stream);
	PLAIN(cuDeviceGetDefaultMemPool, &pool, device);
	WATCHED(0, cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
	WATCHED(0, cuMemPoolTrimTo, pool, 0);
	WATCHED(0, cuStreamDestroy_v2, stream);
	app_end(device);
	return 0;
}
