/* SPDX-License-Identifier: MIT */
/* A library that is not the driver and has a function of the driver's name. */
#include "hook/cuda/abi.h"

__attribute__((visibility("default"))) CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
	(void)at;
	(void)stream;
	return CUDA_ERROR_UNKNOWN;
}
