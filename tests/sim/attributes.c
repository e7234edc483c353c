/* SPDX-License-Identifier: MIT */
/* The driver's attributes of a pointer. */
#include <string.h>

#include "contexts.h"
#include "core.h"
#include "overlap.h"
#include "graphs.h"
#include "memory.h"
#include "physical.h"

static bool on_host(const struct sim_alloc *alloc)
{
	return alloc->kind == SIM_HOST || alloc->kind == SIM_REGISTERED;
}

static bool on_device(const struct sim_alloc *alloc)
{
	return !on_host(alloc) && alloc->kind != SIM_MANAGED;
}

static bool rdma_capable(const struct sim_alloc *alloc)
{
	const struct sim_physical *physical = alloc->owner;

	switch (alloc->kind) {
	case SIM_LINEAR:
	case SIM_GRAPHICS:
		return true;
	case SIM_MAPPED:
		return physical && physical->prop.allocFlags.gpuDirectRDMACapable;
	default:
		return false;
	}
}

/* The allocation in a block, or the whole block if it is mapped in one piece. */
static void mapping_of(const struct sim_alloc *alloc, uint64_t addr, uint64_t *base, uint64_t *size)
{
	const struct sim_block *block = alloc->block;

	*base = block ? block->base : alloc->addr;
	*size = block ? block->size : alloc->size;
	if (alloc->kind == SIM_POOL || alloc->kind == SIM_GRAPH) {
		*base += (addr - *base) / SIM_CHUNK * SIM_CHUNK;
		*size = SIM_CHUNK;
	}
	if (alloc->kind == SIM_EXTERNAL)
		*size = alloc->size;
}

/* The range of mapped memory is its reservation. */
static void range_of(const struct sim_alloc *alloc, uint64_t *base, uint64_t *size)
{
	*base = alloc->addr;
	*size = alloc->size;
	if (alloc->kind == SIM_MAPPED)
		sim_reservation_at(alloc->addr, base, size);
}

/* The attribute does not exist for this memory. */
static bool does_not_apply(const struct sim_alloc *alloc, CUpointer_attribute attribute)
{
	return attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && on_device(alloc);
}

/* Attributes that a later CUDA version brought than the driver's are unknown to it. */
static CUpointer_attribute newest(void)
{
	if (sim_options.driver_version < 11060)
		return CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
	return sim_options.driver_version < 12080 ? CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID
						  : CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

/* The size of an attribute in bytes. 0: this attribute can't be asked for. */
static size_t size_of(CUpointer_attribute attribute)
{
	if (attribute > newest())
		return 0;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		return 8;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return 16;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		return 4;
	}
	return 0;
}

static uint64_t value_of(const struct sim_alloc *alloc, CUpointer_attribute attribute,
			 uint64_t addr)
{
	uint64_t base, size;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		return (uint64_t)alloc->context;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		return on_host(alloc) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		return addr;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return on_device(alloc) ? 0 : addr;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		return alloc->sync_memops;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		return alloc->id;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		return alloc->kind == SIM_MANAGED;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return alloc->device;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		return alloc->kind == SIM_LINEAR;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		range_of(alloc, &base, &size);
		return base;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		range_of(alloc, &base, &size);
		return size;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		mapping_of(alloc, addr, &base, &size);
		return base;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		mapping_of(alloc, addr, &base, &size);
		return size;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		return 1;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		return alloc->kind == SIM_MAPPED ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		return rdma_capable(alloc);
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return alloc->kind == SIM_MAPPED ? alloc->flags
						 : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		return (uint64_t)alloc->pool;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return alloc->id;
	default:
		return 0;
	}
}

SIM_TOUCHING(cuPointerGetAttribute, SIM_NEEDS_INIT,
	     (void *data, CUpointer_attribute attribute, CUdeviceptr ptr), (data, attribute, ptr),
	     SIM_ASKS(ptr, 1))
{
	size_t size = size_of(attribute);
	struct sim_alloc *alloc;
	uint64_t value;

	if (!data || !size)
		return CUDA_ERROR_INVALID_VALUE;
	alloc = sim_alloc_at(ptr);
	if (!alloc || does_not_apply(alloc, attribute))
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
		return CUDA_ERROR_NOT_SUPPORTED;
	value = value_of(alloc, attribute, ptr);
	memcpy(data, &value, size);
	return CUDA_SUCCESS;
}

/*
 * For an unknown pointer every attribute is 0, and the call succeeds; except the device ordinal,
 * and the range of reserved addresses.
 */
SIM_TOUCHING(cuPointerGetAttributes, SIM_NEEDS_INIT,
	     (unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr),
	     (count, attributes, data, ptr), SIM_ASKS(ptr, 1))
{
	struct sim_alloc *alloc;
	unsigned i;

	if (!count || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++)
		if (!data[i] || !size_of(attributes[i]))
			return CUDA_ERROR_INVALID_VALUE;
	alloc = sim_alloc_at(ptr);
	for (i = 0; i < count; i++) {
		uint64_t value[2] = {0, 0};

		if (alloc)
			value[0] = value_of(alloc, attributes[i], ptr);
		else if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
			sim_reservation_at(ptr, &value[0], &value[1]);
		else if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
			sim_reservation_at(ptr, &value[1], &value[0]);
		else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			value[0] = (uint32_t)CU_DEVICE_INVALID;
		memcpy(data[i], value, size_of(attributes[i]));
	}
	return CUDA_SUCCESS;
}

SIM_TOUCHING(cuPointerSetAttribute, SIM_NEEDS_INIT,
	     (const void *value, CUpointer_attribute attribute, CUdeviceptr ptr),
	     (value, attribute, ptr), SIM_ASKS(ptr, 1))
{
	struct sim_alloc *alloc = sim_alloc_at(ptr);
	CUresult forbidden = sim_capture_forbids();

	if (forbidden != CUDA_SUCCESS)
		return forbidden;
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !alloc)
		return CUDA_ERROR_INVALID_VALUE;
	if (alloc->kind == SIM_MAPPED)
		return CUDA_ERROR_NOT_SUPPORTED;
	alloc->sync_memops = *(const unsigned *)value != 0;
	return CUDA_SUCCESS;
}

SIM_TOUCHING(cuMemGetAddressRange_v2, SIM_NEEDS_INIT,
	     (CUdeviceptr * base, size_t *size, CUdeviceptr ptr), (base, size, ptr),
	     SIM_ASKS(ptr, 1))
{
	struct sim_alloc *alloc = sim_alloc_at(ptr);

	if (!base && !size)
		return CUDA_SUCCESS; /* nothing was asked */
	if (!sim_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	/* Two H200s: memory of another device than the current context's is not found. */
	if (!alloc || alloc->device != sim_current()->device)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = alloc->addr;
	if (size)
		*size = alloc->size;
	return CUDA_SUCCESS;
}

SIM_CALL(cuMemGetAddressRange, (CUdeviceptr_v1 * base, unsigned int *size, CUdeviceptr_v1 ptr),
	 (base, size, ptr))
{
	struct sim_alloc *alloc = sim_alloc_at(ptr);

	if (!base && !size)
		return CUDA_SUCCESS; /* nothing was asked */
	if (!sim_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	/* Two H200s: memory of another device than the current context's is not found. */
	if (!alloc || alloc->device != sim_current()->device)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = alloc->addr;
	if (size)
		*size = alloc->size;
	return CUDA_SUCCESS;
}
