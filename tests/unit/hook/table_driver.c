/* SPDX-License-Identifier: MIT */
/*
 * A libcuda.so.1 that can be of any age. It has functions that are newer than the table of watched
 * calls, and can be made older than the program that asks. Each function returns a number of its
 * own, which shows that it was called.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "hook/cuda/abi.h"
#include "tests/unit/hook/table_driver.h"

#define EXPORT	       __attribute__((visibility("default")))
#define ANSWER(number) ((CUresult)(number))

EXPORT int table_driver_age = 13000;

/* The driver's own look-ups go through dlsym, and so through the preloads, as the program's do. */
EXPORT void *table_driver_finds(const char *name)
{
	return dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), name);
}

EXPORT CUresult cuInit(unsigned flags)
{
	(void)flags;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree(CUdeviceptr_v1 at)
{
	(void)at;
	return ANSWER(1001);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr at)
{
	(void)at;
	return ANSWER(1002);
}

/* A function of a future driver: its name is watched, its parameters are unknown today. */
static CUresult cuMemFree_v3(int a, int b, int c)
{
	return ANSWER(a + b + c);
}

/* Others, found by dlsym: new versions of a watched, of a traced and of an unwatched call. */
EXPORT CUresult cuMemFreeAsync_v9(void)
{
	return ANSWER(1009);
}

EXPORT CUresult cuArrayDestroy_v9(void)
{
	return ANSWER(1010);
}

EXPORT CUresult cuStreamDestroy_v9(void)
{
	return ANSWER(1011);
}

/* It has begun, so it is a driver that works. */
EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
	*context = NULL;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeAll(void)
{
	return ANSWER(1012);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
	(void)at;
	(void)stream;
	return ANSWER(1003);
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr at, CUstream stream)
{
	(void)at;
	(void)stream;
	return ANSWER(1004);
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count,
			       unsigned flags, CUdevice device)
{
	(void)context;
	(void)affinity;
	(void)count;
	(void)flags;
	(void)device;
	return ANSWER(1005);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned flags,
			       CUdevice device)
{
	(void)context;
	(void)params;
	(void)flags;
	(void)device;
	return ANSWER(1006);
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node,
				      char *log, size_t size)
{
	(void)exec;
	(void)graph;
	(void)node;
	(void)log;
	(void)size;
	return ANSWER(1007);
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
					    unsigned long long flags)
{
	(void)exec;
	(void)graph;
	(void)flags;
	return ANSWER(1008);
}

static const struct {
	const char *name;
	int version;
	unsigned flags; /* 0: any */
	void *function;
} functions[] = {
	{"cuInit", 2000, 0, cuInit},
	{"cuMemFree", 2000, 0, cuMemFree},
	{"cuMemFree", 3020, 0, cuMemFree_v2},
	{"cuMemFree", 14000, 0, cuMemFree_v3},
	{"cuMemFreeAsync", 11020, 1, cuMemFreeAsync},
	{"cuMemFreeAsync", 11020, 2, cuMemFreeAsync_ptsz},
	{"cuCtxCreate", 11040, 0, cuCtxCreate_v3},
	{"cuCtxCreate", 12050, 0, cuCtxCreate_v4},
	{"cuGraphInstantiate", 11000, 0, cuGraphInstantiate_v2},
	{"cuGraphInstantiate", 12000, 0, cuGraphInstantiateWithFlags},
	{"cuGetProcAddress", 11030, 0, cuGetProcAddress},
	{"cuGetProcAddress", 12000, 0, cuGetProcAddress_v2},
};

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version,
				    cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	unsigned flavour = flags & 2 ? 2 : 1;
	int best = 0;

	if (!name || !function)
		return CUDA_ERROR_INVALID_VALUE;
	*function = NULL;
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		int wanted = functions[i].version;

		if (strcmp(functions[i].name, name) || wanted > version ||
		    wanted > table_driver_age || wanted < best ||
		    (functions[i].flags && functions[i].flags != flavour))
			continue;
		best = wanted;
		*function = functions[i].function;
	}
	if (status)
		*status = best ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return best || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
	return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
