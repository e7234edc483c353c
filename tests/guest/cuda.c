// SPDX-License-Identifier: MIT
/*
 * The guest's libcuda.so.1: of the driver only what a program and a registration cache need to make,
 * describe and free memory, on the simulated GPU of the guest. The simulated driver of tests/sim knows
 * a whole driver but no kernel; here the kernel is what is tested.
 *
 * guest_free_unseen() is a free that no interposer sees.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>

#include "cuda_abi.h"
#include "guest_cuda.h"
#include "sim_gpu.h"

#define EXPORT __attribute__((visibility("default")))
#define MOST   4096

static struct allocation {
	uint64_t va, size, handle, id;
} allocations[MOST]; /* size 0: free place */
static uint64_t last_id;
static int device = -1;
static pthread_mutex_t api = PTHREAD_MUTEX_INITIALIZER;

static struct allocation *holding(CUdeviceptr ptr)
{
	for (unsigned i = 0; i < MOST; i++)
		if (allocations[i].size && ptr - allocations[i].va < allocations[i].size)
			return &allocations[i];
	return NULL;
}

EXPORT CUresult cuInit(unsigned flags)
{
	(void)flags;
	if (device < 0)
		device = open(SIM_GPU_DEVICE, O_RDWR | O_CLOEXEC);
	return device < 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice ordinal)
{
	(void)attribute; /* no dma-bufs from this driver, and nothing else is asked */
	(void)ordinal;
	*value = 0;
	return CUDA_SUCCESS;
}

static CUresult alloc(CUdeviceptr *ptr, size_t size)
{
	struct sim_gpu_alloc call = {.flags = SIM_GPU_MAPPED};

	call.size = (size + SIM_GPU_PAGE - 1) & ~(uint64_t)(SIM_GPU_PAGE - 1);
	for (unsigned i = 0; i < MOST; i++) {
		if (allocations[i].size)
			continue;
		if (ioctl(device, SIM_GPU_ALLOC, &call) != 0)
			return CUDA_ERROR_OUT_OF_MEMORY;
		allocations[i] = (struct allocation){call.va, size, call.handle, ++last_id};
		*ptr = call.va;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t size)
{
	CUresult result;

	pthread_mutex_lock(&api);
	result = alloc(ptr, size);
	pthread_mutex_unlock(&api);
	return result;
}

EXPORT CUresult guest_free_unseen(CUdeviceptr ptr)
{
	struct allocation *freed;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&api);
	freed = holding(ptr);
	if (freed && freed->va == ptr && ioctl(device, SIM_GPU_FREE, &freed->handle) == 0) {
		freed->size = 0;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&api);
	return result;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	return guest_free_unseen(ptr);
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
	const struct allocation *found;

	pthread_mutex_lock(&api);
	found = holding(ptr);
	if (found) {
		*base = found->va;
		*size = found->size;
	}
	pthread_mutex_unlock(&api);
	return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static CUresult attribute(void *value, CUpointer_attribute name, CUdeviceptr ptr)
{
	const struct allocation *found = holding(ptr);

	switch (name) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)value = found ? CU_MEMORYTYPE_DEVICE : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_CONTEXT: /* one is enough */
		*(void **)value = found ? (void *)allocations : NULL;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)value = found ? found->id : 0;
		return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)value = found ? 0 : -2;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)value = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(void **)value = NULL;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

EXPORT CUresult cuPointerGetAttribute(void *value, CUpointer_attribute name, CUdeviceptr ptr)
{
	CUresult result;

	pthread_mutex_lock(&api);
	result = attribute(value, name, ptr);
	pthread_mutex_unlock(&api);
	return result;
}

EXPORT CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *names, void **values,
				       CUdeviceptr ptr)
{
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&api);
	for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = attribute(values[i], names[i], ptr);
	pthread_mutex_unlock(&api);
	return result;
}

EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute name, CUdeviceptr ptr)
{
	(void)value;
	return name == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && holding(ptr) ? CUDA_SUCCESS
									: CUDA_ERROR_INVALID_VALUE;
}
