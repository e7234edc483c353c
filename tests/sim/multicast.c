/* SPDX-License-Identifier: MIT */
/*
 * Multicast objects, for their memory: devices join, memory is bound and unbound, the object can be
 * mapped. Writes reach only the memory that was bound first.
 */
#include <stdlib.h>

#include "contexts.h"
#include "core.h"
#include "handles.h"
#include "memory.h"
#include "physical.h"

struct binding {
	uint64_t offset, size;
	int device;
	struct sim_extent *extent;
	struct binding *next;
};

struct multicast {
	uint64_t size;
	unsigned wanted;  /* devices */
	uint32_t devices; /* a bit for each device that has joined */
	struct binding *bindings;
};

static struct multicast *multicast_of(CUmemGenericAllocationHandle handle)
{
	return sim_handle((void *)handle, SIM_MULTICAST);
}

static bool ready(const struct multicast *multicast)
{
	return (unsigned)__builtin_popcount(multicast->devices) == multicast->wanted;
}

SIM_CALL(cuMulticastGetGranularity,
	 (size_t * granularity, const CUmulticastObjectProp *prop,
	  CUmulticastGranularity_flags option),
	 (granularity, prop, option))
{
	if (!granularity || !prop || (unsigned)option > CU_MULTICAST_GRANULARITY_RECOMMENDED)
		return CUDA_ERROR_INVALID_VALUE;
	*granularity = SIM_PAGE;
	return CUDA_SUCCESS;
}

SIM_CALL(cuMulticastCreate,
	 (CUmemGenericAllocationHandle * handle, const CUmulticastObjectProp *prop), (handle, prop))
{
	struct multicast *multicast;

	if (!handle || !prop || !prop->numDevices || prop->numDevices > sim_options.devices ||
	    !prop->size || prop->size % SIM_PAGE || prop->flags)
		return CUDA_ERROR_INVALID_VALUE;
	multicast = sim_handle_new(SIM_MULTICAST, sizeof(*multicast));
	if (!multicast)
		return CUDA_ERROR_OUT_OF_MEMORY;
	multicast->size = prop->size;
	multicast->wanted = prop->numDevices;
	*handle = (CUmemGenericAllocationHandle)multicast;
	return CUDA_SUCCESS;
}

SIM_CALL(cuMulticastAddDevice, (CUmemGenericAllocationHandle handle, CUdevice device),
	 (handle, device))
{
	struct multicast *multicast = multicast_of(handle);

	if (!multicast || ready(multicast))
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	multicast->devices |= 1u << device;
	return CUDA_SUCCESS;
}

static CUresult bind(struct multicast *multicast, uint64_t offset, struct sim_extent *extent,
		     int device, uint64_t size)
{
	struct binding *binding;

	if (offset % SIM_PAGE || !size || size % SIM_PAGE || size > multicast->size ||
	    offset > multicast->size - size || !(multicast->devices >> device & 1))
		return CUDA_ERROR_INVALID_VALUE;
	if (!ready(multicast))
		return CUDA_ERROR_ILLEGAL_STATE;
	binding = malloc(sizeof(*binding));
	if (!binding)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sim_extent_hold(extent);
	*binding = (struct binding){.offset = offset,
				    .size = size,
				    .device = device,
				    .extent = extent,
				    .next = multicast->bindings};
	multicast->bindings = binding;
	return CUDA_SUCCESS;
}

#define ITS_OWN (-1) /* the device that the memory is on */

static CUresult bind_mem(CUmemGenericAllocationHandle handle, int device, size_t offset,
			 CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
			 unsigned long long flags)
{
	struct multicast *multicast = multicast_of(handle);
	struct sim_physical *physical = sim_physical_of(memory);

	if (!multicast || !physical || flags || size > physical->size ||
	    memory_offset > physical->size - size ||
	    (device != ITS_OWN && device != physical->device))
		return CUDA_ERROR_INVALID_VALUE;
	return bind(multicast, offset, physical->extent, physical->device, size);
}

static CUresult bind_addr(CUmemGenericAllocationHandle handle, int device, size_t offset,
			  CUdeviceptr ptr, size_t size, unsigned long long flags)
{
	struct multicast *multicast = multicast_of(handle);
	struct sim_alloc *alloc = sim_alloc_at(ptr);

	if (!multicast || !alloc || alloc->kind != SIM_MAPPED || flags ||
	    size > alloc->addr + alloc->size - ptr ||
	    (device != ITS_OWN && device != alloc->device))
		return CUDA_ERROR_INVALID_VALUE;
	return bind(multicast, offset, alloc->block->extent, alloc->device, size);
}

SIM_CALL(cuMulticastBindMem,
	 (CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
	  size_t memory_offset, size_t size, unsigned long long flags),
	 (handle, offset, memory, memory_offset, size, flags))
{
	return bind_mem(handle, ITS_OWN, offset, memory, memory_offset, size, flags);
}

SIM_CALL(cuMulticastBindMem_v2,
	 (CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
	  CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
	  unsigned long long flags),
	 (handle, device, offset, memory, memory_offset, size, flags))
{
	if (device < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	return bind_mem(handle, device, offset, memory, memory_offset, size, flags);
}

SIM_CALL(cuMulticastBindAddr,
	 (CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr ptr, size_t size,
	  unsigned long long flags),
	 (handle, offset, ptr, size, flags))
{
	return bind_addr(handle, ITS_OWN, offset, ptr, size, flags);
}

SIM_CALL(cuMulticastBindAddr_v2,
	 (CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, CUdeviceptr ptr,
	  size_t size, unsigned long long flags),
	 (handle, device, offset, ptr, size, flags))
{
	if (device < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	return bind_addr(handle, device, offset, ptr, size, flags);
}

static void unbind(struct binding **at)
{
	struct binding *binding = *at;

	*at = binding->next;
	sim_extent_drop(binding->extent);
	free(binding);
}

SIM_CALL(cuMulticastUnbind,
	 (CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t size),
	 (handle, device, offset, size))
{
	struct multicast *multicast = multicast_of(handle);
	struct binding **at;

	if (!multicast || !size || offset % SIM_PAGE || size % SIM_PAGE)
		return CUDA_ERROR_INVALID_VALUE;
	for (at = &multicast->bindings; *at;)
		if ((*at)->device == device && (*at)->offset >= offset &&
		    (*at)->offset + (*at)->size <= offset + size)
			unbind(at);
		else
			at = &(*at)->next;
	return CUDA_SUCCESS;
}

CUresult sim_multicast_release(CUmemGenericAllocationHandle handle)
{
	struct multicast *multicast = multicast_of(handle);

	if (!multicast)
		return CUDA_ERROR_INVALID_VALUE;
	while (multicast->bindings)
		unbind(&multicast->bindings);
	sim_handle_delete(multicast);
	return CUDA_SUCCESS;
}

struct sim_extent *sim_multicast_extent(CUmemGenericAllocationHandle handle, uint64_t size)
{
	struct multicast *multicast = multicast_of(handle);
	struct binding *binding;

	if (!multicast)
		return NULL;
	for (binding = multicast->bindings; binding; binding = binding->next)
		if (!binding->offset && binding->size >= size)
			return binding->extent;
	return NULL;
}
