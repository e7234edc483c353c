/* SPDX-License-Identifier: MIT */
/*
 * A libcudart.so.13 with the functions that UCX's programs use, made of the driver's: NVIDIA's
 * needs tables of functions of its own driver. A device's primary context is made current by the
 * first call of a thread that needs one. There are no kernels.
 */
#include <stddef.h>

#include "hook/cuda/abi.h"

#define EXPORT __attribute__((visibility("default")))

enum { NOT_SUPPORTED = 801 };

/* The results of both interfaces have the same numbers where UCX looks at them. */
static __thread int last_error;
static __thread int device;

static int result(int error)
{
	if (error)
		last_error = error;
	return error;
}

static int set_device(int ordinal)
{
	CUcontext context;
	int error = cuInit(0);

	if (!error)
		error = cuDevicePrimaryCtxRetain(&context, ordinal);
	if (!error)
		error = cuCtxSetCurrent(context);
	if (!error)
		device = ordinal;
	return error;
}

static int need_context(void)
{
	CUcontext context = NULL;
	int error = cuInit(0);

	if (!error)
		error = cuCtxGetCurrent(&context);
	return error || context ? error : set_device(device);
}

/* Calls the driver with a context; its result is that of the function. */
#define WITH_CONTEXT(call)                   \
	do {                                 \
		int error_ = need_context(); \
                                             \
		if (!error_)                 \
			error_ = (call);     \
		return result(error_);       \
	} while (0)

/* ---- devices -------------------------------------------------------------------------------- */

EXPORT int cudaGetDeviceCount(int *count);
EXPORT int cudaGetDeviceCount(int *count)
{
	int error = cuInit(0);

	return result(error ? error : (int)cuDeviceGetCount(count));
}

EXPORT int cudaGetDevice(int *ordinal);
EXPORT int cudaGetDevice(int *ordinal)
{
	WITH_CONTEXT(cuCtxGetDevice(ordinal));
}

EXPORT int cudaSetDevice(int ordinal);
EXPORT int cudaSetDevice(int ordinal)
{
	return result(set_device(ordinal));
}

EXPORT int cudaDeviceSynchronize(void);
EXPORT int cudaDeviceSynchronize(void)
{
	WITH_CONTEXT(cuCtxSynchronize());
}

EXPORT int cudaStreamSynchronize(CUstream stream);
EXPORT int cudaStreamSynchronize(CUstream stream)
{
	WITH_CONTEXT(cuStreamSynchronize(stream));
}

EXPORT int cudaGetLastError(void);
EXPORT int cudaGetLastError(void)
{
	int error = last_error;

	last_error = 0;
	return error;
}

EXPORT const char *cudaGetErrorString(int error);
EXPORT const char *cudaGetErrorString(int error)
{
	const char *text = NULL;

	cuGetErrorString(error, &text);
	return text ? text : "unknown error";
}

/* ---- memory --------------------------------------------------------------------------------- */

EXPORT int cudaMalloc(CUdeviceptr *p, size_t size);
EXPORT int cudaMalloc(CUdeviceptr *p, size_t size)
{
	WITH_CONTEXT(cuMemAlloc_v2(p, size));
}

EXPORT int cudaMallocPitch(CUdeviceptr *p, size_t *pitch, size_t width, size_t height);
EXPORT int cudaMallocPitch(CUdeviceptr *p, size_t *pitch, size_t width, size_t height)
{
	WITH_CONTEXT(cuMemAllocPitch_v2(p, pitch, width, height, 4));
}

EXPORT int cudaMallocManaged(CUdeviceptr *p, size_t size, unsigned flags);
EXPORT int cudaMallocManaged(CUdeviceptr *p, size_t size, unsigned flags)
{
	WITH_CONTEXT(cuMemAllocManaged(p, size, flags));
}

EXPORT int cudaMallocAsync(CUdeviceptr *p, size_t size, CUstream stream);
EXPORT int cudaMallocAsync(CUdeviceptr *p, size_t size, CUstream stream)
{
	WITH_CONTEXT(cuMemAllocAsync(p, size, stream));
}

EXPORT int cudaFree(CUdeviceptr p);
EXPORT int cudaFree(CUdeviceptr p)
{
	WITH_CONTEXT(p ? cuMemFree_v2(p) : CUDA_SUCCESS);
}

EXPORT int cudaFreeAsync(CUdeviceptr p, CUstream stream);
EXPORT int cudaFreeAsync(CUdeviceptr p, CUstream stream)
{
	WITH_CONTEXT(cuMemFreeAsync(p, stream));
}

EXPORT int cudaHostAlloc(void **p, size_t size, unsigned flags);
EXPORT int cudaHostAlloc(void **p, size_t size, unsigned flags)
{
	WITH_CONTEXT(cuMemHostAlloc(p, size, flags));
}

EXPORT int cudaHostGetDevicePointer(CUdeviceptr *p, void *host, unsigned flags);
EXPORT int cudaHostGetDevicePointer(CUdeviceptr *p, void *host, unsigned flags)
{
	WITH_CONTEXT(cuMemHostGetDevicePointer_v2(p, host, flags));
}

EXPORT int cudaFreeHost(void *p);
EXPORT int cudaFreeHost(void *p)
{
	WITH_CONTEXT(p ? cuMemFreeHost(p) : CUDA_SUCCESS);
}

/* The driver knows by the addresses which memory it is. */
EXPORT int cudaMemcpy(CUdeviceptr to, CUdeviceptr from, size_t length, int kind);
EXPORT int cudaMemcpy(CUdeviceptr to, CUdeviceptr from, size_t length, int kind)
{
	(void)kind;
	WITH_CONTEXT(length ? cuMemcpy(to, from, length) : CUDA_SUCCESS);
}

EXPORT int cudaMemset(CUdeviceptr to, int value, size_t length);
EXPORT int cudaMemset(CUdeviceptr to, int value, size_t length)
{
	WITH_CONTEXT(length ? cuMemsetD8_v2(to, value, length) : CUDA_SUCCESS);
}

/* ---- kernels: UCX's are registered when it is loaded, and none is launched ------------------ */

EXPORT void **__cudaRegisterFatBinary(void *binary);
EXPORT void **__cudaRegisterFatBinary(void *binary)
{
	static void *handle;

	(void)binary;
	return &handle;
}

static int do_nothing(void)
{
	return 0;
}

static int refuse(void)
{
	return result(NOT_SUPPORTED);
}

#define ALIAS(name, of) EXPORT extern __typeof__(of) name __attribute__((alias(#of)))
ALIAS(__cudaRegisterFatBinaryEnd, do_nothing);
ALIAS(__cudaRegisterFunction, do_nothing);
ALIAS(__cudaRegisterVar, do_nothing);
ALIAS(__cudaUnregisterFatBinary, do_nothing);
ALIAS(__cudaGetKernel, refuse);
ALIAS(__cudaLaunchKernel, refuse);
ALIAS(__cudaPushCallConfiguration, refuse);
ALIAS(__cudaPopCallConfiguration, refuse);
ALIAS(cudaGetSymbolSize, refuse);
