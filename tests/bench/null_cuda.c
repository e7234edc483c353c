// SPDX-License-Identifier: MIT
/*
 * A libcuda.so.1 whose calls return at once, so that the cost of a wrapper is not lost in that of
 * the driver. It allocates nothing, and is only for measurements.
 */
#include "hook/cuda/abi.h"

#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

static int contexts[8], a_stream;
static CUdeviceptr next = 0x700000000000;

EXPORT CUresult cuInit(unsigned flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
	*version = 13000;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	*device = ordinal;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	*context = (CUcontext)&contexts[device & 7];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
	(void)context;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
	*context = (CUcontext)&contexts[0];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
	(void)flags;
	*stream = (CUstream)&a_stream;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
	(void)stream;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	(void)stream;
	*status = 0;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *addr, size_t size)
{
	*addr = next += size;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr addr)
{
	(void)addr;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *addr, size_t size, CUstream stream)
{
	(void)stream;
	*addr = next += size;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr addr, CUstream stream)
{
	(void)addr, (void)stream;
	return CUDA_SUCCESS;
}

/*
 * Every allocation is 64 KiB long and begins at a multiple of that, except a large one. Of eight
 * devices each has a TiB of addresses, beginning with DEVICES; all else belongs to the first one.
 */
#define BYTES	    65536u
#define LARGE	    UINT64_C(0x600000000000)
#define LARGE_BYTES ((uint64_t)8 << 30)
#define DEVICES	    UINT64_C(0x200000000000)
#define TIB_SHIFT   40

static uint64_t size_at(CUdeviceptr addr)
{
	return addr - LARGE < LARGE_BYTES ? LARGE_BYTES : BYTES;
}

static CUdeviceptr base_of(CUdeviceptr addr)
{
	return addr & ~(CUdeviceptr)(size_at(addr) - 1);
}

static int device_of(CUdeviceptr addr)
{
	uint64_t device = (addr - DEVICES) >> TIB_SHIFT;

	return device < 8 ? (int)device : 0;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr addr)
{
	*base = base_of(addr);
	*size = size_at(addr);
	return CUDA_SUCCESS;
}

static inline __attribute__((always_inline)) CUresult
answer(void *data, CUpointer_attribute attribute, CUdeviceptr addr)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = base_of(addr) / BYTES;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = device_of(addr);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = (CUcontext)&contexts[device_of(addr)];
		return CUDA_SUCCESS;
	default:
		*(void **)data = NULL;
		return CUDA_SUCCESS;
	}
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr addr)
{
	return answer(data, attribute, addr);
}

EXPORT CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
				       CUdeviceptr addr)
{
	unsigned i;

	for (i = 0; i < count; i++)
		answer(data[i], attributes[i], addr);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
				      CUdeviceptr addr)
{
	(void)value, (void)attribute, (void)addr;
	return CUDA_SUCCESS;
}
