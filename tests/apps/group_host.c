/* SPDX-License-Identifier: MIT */
/* Host memory of the driver, and of the program that registers it. */
#include "app.h"

#define SIZE (1u << 20)

static void allocated(void)
{
	CUdeviceptr device_address = 0;
	void *at = NULL;

	WATCHED((uintptr_t)at, cuMemAllocHost_v2, &at, SIZE);
	memset(at, 1, SIZE);
	WATCHED((uintptr_t)at, cuMemFreeHost, at);
	WATCHED((uintptr_t)at, cuMemHostAlloc, &at, SIZE, CU_MEMHOSTALLOC_DEVICEMAP);
	memset(at, 2, SIZE);
	PLAIN(cuMemHostGetDevicePointer_v2, &device_address, at, 0);
	WATCHED((uintptr_t)at, cuMemFreeHost, at);
	WATCHED(0, cuMemFreeHost, NULL);
	WATCHED(0, cuMemHostAlloc, NULL, SIZE, 0);
	WATCHED(0, cuMemAllocHost_v2, NULL, SIZE);
}

static void registered(void)
{
	void *own = aligned_alloc(65536, SIZE);

	memset(own, 3, SIZE);
	WATCHED((uintptr_t)own, cuMemHostRegister_v2, own, SIZE, CU_MEMHOSTREGISTER_DEVICEMAP);
	WATCHED(0, cuMemHostRegister_v2, own, SIZE, 0);
	WATCHED((uintptr_t)own, cuMemHostUnregister, own);
	WATCHED(0, cuMemHostUnregister, own);
	WATCHED(0, cuMemHostRegister_v2, NULL, SIZE, 0);
	WATCHED(0, cuMemHostUnregister, NULL);
	app_say("the program's own memory: %s", *(char *)own == 3 ? "untouched" : "changed");
	free(own);
}

int app_host(int argc, char **argv)
{
	CUdevice device = app_begin();

	(void)argc, (void)argv;
	allocated();
	registered();
	app_end(device);
	return 0;
}
