/* SPDX-License-Identifier: MIT */
/*
 * A library that is not the driver and has a function of the driver's name. It can look up others.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "hook/cuda/abi.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
	(void)at;
	(void)stream;
	return CUDA_ERROR_UNKNOWN;
}

EXPORT void *table_other_next(const char *name)
{
	void *volatile found = dlsym(RTLD_NEXT, name); /* no jump: dlsym looks who called it */

	return found;
}
