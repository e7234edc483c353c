/* SPDX-License-Identifier: MIT */
/* With a preload, the driver refuses with the same errors, and errno is untouched. */
#include "app.h"

#define SIZE (1u << 20)

static void before_init(void)
{
	CUdeviceptr at = 0;

	WATCHED(0, cuMemAlloc_v2, &at, SIZE);
	WATCHED(0, cuMemFree_v2, (CUdeviceptr)0x7f0000000000);
	WATCHED(0, cuMemFreeHost, &at);
	WATCHED(0, cuCtxDestroy_v2, (CUcontext)NULL);
	WATCHED(0, cuDevicePrimaryCtxRelease_v2, 0);
}

static void wrong_addresses(void)
{
	CUdeviceptr at = 0, second = 0;

	WATCHED(at, cuMemAlloc_v2, &at, SIZE);
	WATCHED(second, cuMemAlloc_v2, &second, SIZE);
	WATCHED(0, cuMemFree_v2, at + 512);
	WATCHED(0, cuMemFree_v2, at + SIZE - 1);
	WATCHED(0, cuMemFree_v2, (CUdeviceptr)16);
	WATCHED(0, cuMemFree_v2, (CUdeviceptr)-1);
	WATCHED(0, cuMemFree_v2, (CUdeviceptr)(uintptr_t)&at);
	WATCHED(0, cuMemFree_v2, (CUdeviceptr)0);
	app_say("still there: %s", app_write_and_read(at, SIZE, 25));
	WATCHED(at, cuMemFree_v2, at);
	WATCHED(0, cuMemFree_v2, at);
	WATCHED(0, cuMemFreeAsync, at, NULL);
	WATCHED(0, cuMemUnmap, second, SIZE);
	WATCHED(0, cuMemAddressFree, second, SIZE);
	WATCHED(0, cuMemFreeHost, (void *)(uintptr_t)0x1000);
	WATCHED(0, cuMemHostUnregister, &at);
	WATCHED(0, cuIpcCloseMemHandle, second);
	app_say("still there: %s", app_write_and_read(second, SIZE, 26));
	WATCHED(second, cuMemFree_v2, second);
}

static void too_much(void)
{
	CUdeviceptr at = 0;
	void *host = NULL;

	WATCHED(0, cuMemAlloc_v2, &at, (size_t)1 << 50);
	WATCHED(0, cuMemAlloc_v2, &at, 0);
	WATCHED(0, cuMemAlloc_v2, NULL, SIZE);
	WATCHED(0, cuMemAlloc_v2, NULL, 0);
	WATCHED(0, cuMemAllocAsync, &at, (size_t)1 << 50, NULL);
	WATCHED(0, cuMemAllocAsync, NULL, 0, NULL);
	WATCHED(0, cuMemAllocHost_v2, &host, 0);
}

int app_errors(int argc, char **argv)
{
	CUdevice device;

	(void)argc, (void)argv;
	before_init();
	device = app_begin();
	wrong_addresses();
	too_much();
	app_end(device);
	WATCHED(0, cuDevicePrimaryCtxRelease_v2, device);
	return 0;
}
