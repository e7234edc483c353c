/* SPDX-License-Identifier: MIT */
/* The calls from before CUDA 3.2, with 32-bit addresses, and other first versions. */
#include "app.h"

#define SIZE (1u << 20)

static void memory(void)
{
	CUdeviceptr_v1 at = 0;
	unsigned pitch = 0;
	void *host = NULL;

	WATCHED(at, cuMemAlloc, &at, SIZE);
	WATCHED(at, cuMemFree, at);
	WATCHED(at, cuMemAlloc, &at, SIZE);
	WATCHED(at, cuMemFree, at);
	WATCHED(0, cuMemFree, at);
	WATCHED(at, cuMemAllocPitch, &at, &pitch, 1000, 64, 4);
	WATCHED(at, cuMemFree, at);
	WATCHED(0, cuMemAlloc, NULL, SIZE);
	WATCHED(0, cuMemFree, 0);
	WATCHED((uintptr_t)host, cuMemAllocHost, &host, SIZE);
	WATCHED((uintptr_t)host, cuMemFreeHost, host);
	host = aligned_alloc(65536, SIZE);
	WATCHED((uintptr_t)host, cuMemHostRegister, host, SIZE, 0);
	WATCHED((uintptr_t)host, cuMemHostUnregister, host);
	free(host);
}

static void contexts_and_arrays(CUdevice device)
{
	CUDA_ARRAY_DESCRIPTOR_v1 flat = {
		.Width = 64, .Height = 32, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUcontext context = NULL;
	CUarray array = NULL;

	WATCHED(0, cuCtxCreate, &context, 0, device);
	WATCHED(0, cuArrayCreate, &array, &flat);
	WATCHED(0, cuArrayDestroy, array);
	WATCHED(0, cuCtxDestroy, context);
}

int app_old(int argc, char **argv)
{
	CUcontext primary = NULL;
	CUdevice device = app_begin();

	(void)argc, (void)argv;
	PLAIN(cuCtxGetCurrent, &primary);
	memory();
	contexts_and_arrays(device);
	PLAIN(cuCtxSetCurrent, primary);
	app_end(device);
	return 0;
}
