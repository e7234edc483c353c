/* SPDX-License-Identifier: MIT */
/* The part of the CUDA driver that the measuring programs use: device 0 and its primary context. */
#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include "bench.h"
#include "hook/cuda/abi.h"

#include <stdbool.h>

static CUcontext bench_context;

static inline void must(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS)
		stop(what, (int)result);
}

static inline void use_context(void)
{
	must(cuCtxSetCurrent(bench_context), "cuCtxSetCurrent");
}

static inline void open_driver(void)
{
	CUdevice device;

	must(cuInit(0), "cuInit");
	must(cuDeviceGet(&device, 0), "cuDeviceGet");
	must(cuDevicePrimaryCtxRetain(&bench_context, device), "cuDevicePrimaryCtxRetain");
	use_context();
}

#endif
