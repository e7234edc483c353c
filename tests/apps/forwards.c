/* SPDX-License-Identifier: MIT */
/*
 * A plug-in with functions of the driver's names, each of which opens libcuda at its first call.
 * Loaded by host, which calls app_main().
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "hook/cuda/abi.h"

static void *get(const char *name)
{
	static void *handle;

	if (!handle)
		handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	return handle ? dlsym(handle, name) : NULL;
}

#define FORWARD(name, parameters, ...)                                  \
	CUresult name parameters                                        \
	{                                                               \
		typeof(name) *real = (typeof(name) *)get(#name);        \
                                                                        \
		printf("  by the plug-in's own " #name "\n");           \
		return real ? real(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND; \
	}
FORWARD(cuMemAlloc_v2, (CUdeviceptr * p, size_t size), p, size)
FORWARD(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), context, device)
FORWARD(cuInit, (unsigned flags), flags)
FORWARD(cuCtxSetCurrent, (CUcontext context), context)

int app_main(void);
int app_main(void)
{
	CUcontext context = NULL;
	CUdeviceptr p = 0;

	printf("before cuInit: %d\n", cuDevicePrimaryCtxRetain(&context, 0));
	printf("cuInit: %d\n", cuInit(0));
	printf("retained: %d\n", cuDevicePrimaryCtxRetain(&context, 0));
	printf("current: %d\n", cuCtxSetCurrent(context));
	printf("allocated: %d\n", cuMemAlloc_v2(&p, 4096));
	return 0;
}
