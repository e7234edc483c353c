/* SPDX-License-Identifier: MIT */
/*
 * Parts of a machine that UCX's own tests need and the simulated driver lacks. Built as
 * libnvidia-ml.so.1 (UCX_NVML), which knows no device, and as a preload that makes a context
 * current, as libcudart, which does not run on this driver, would do. The preload also has a
 * function of libcuda that the simulated driver has not.
 */
#define EXPORT __attribute__((visibility("default")))

#ifdef UCX_NVML

#define NVML_ERROR_UNINITIALIZED 1

#define ABSENT(name)                             \
	EXPORT int name(void);                   \
	EXPORT int name(void)                    \
	{                                        \
		return NVML_ERROR_UNINITIALIZED; \
	}
ABSENT(nvmlInit_v2)
ABSENT(nvmlShutdown)
ABSENT(nvmlDeviceGetBAR1MemoryInfo)
ABSENT(nvmlDeviceGetFieldValues)
ABSENT(nvmlDeviceGetGpuFabricInfoV)
ABSENT(nvmlDeviceGetHandleByIndex_v2)
ABSENT(nvmlDeviceGetNvLinkRemotePciInfo_v2)

EXPORT const char *nvmlErrorString(int error);

EXPORT const char *nvmlErrorString(int error)
{
	(void)error;
	return "there is no device";
}

#else

#include "hook/cuda/abi.h"

__attribute__((constructor)) static void make_context_current(void)
{
	CUcontext context;

	if (cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS)
		cuCtxSetCurrent(context);
}

/* UCX asks where managed memory should be, and takes an error for "nowhere in particular". */
EXPORT int cuMemRangeGetAttribute(void *data, size_t size, int attribute, CUdeviceptr p,
				  size_t length);

EXPORT int cuMemRangeGetAttribute(void *data, size_t size, int attribute, CUdeviceptr p,
				  size_t length)
{
	(void)data, (void)size, (void)attribute, (void)p, (void)length;
	return CUDA_ERROR_NOT_SUPPORTED;
}

#endif
