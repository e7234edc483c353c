/* SPDX-License-Identifier: MIT */
/*
 * The functions of the CUDA runtime that perftest looks up before it loads its plugin of GPU code.
 * The plugin here (checker.c) uses the driver only, so that a call of any of these is an error.
 */
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))
#define MUST_NOT_BE_CALLED(name) \
	EXPORT void name(void);  \
	EXPORT void name(void)   \
	{                        \
		abort();         \
	}

MUST_NOT_BE_CALLED(cudaSetDevice)
MUST_NOT_BE_CALLED(cudaMalloc)
MUST_NOT_BE_CALLED(cudaMallocManaged)
MUST_NOT_BE_CALLED(cudaFree)
MUST_NOT_BE_CALLED(cudaMemset)
MUST_NOT_BE_CALLED(cudaMemcpy)
MUST_NOT_BE_CALLED(cudaDeviceSynchronize)
MUST_NOT_BE_CALLED(cudaGetLastError)
MUST_NOT_BE_CALLED(cudaGetErrorString)
