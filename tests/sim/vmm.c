/* SPDX-License-Identifier: MIT */
/*
 * Virtual memory management: the program reserves addresses, creates memory without an address, and
 * maps the one to the other. Each mapping has its own id, and only cuMemUnmap ends it.
 */
#include "contexts.h"
#include "core.h"
#include "overlap.h"
#include "handles.h"
#include "memory.h"
#include "physical.h"
#include "sim.h"

/* ---- memory --------------------------------------------------------------------------------- */

struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle)
{
	struct sim_physical *physical = sim_handle((void *)handle, SIM_PHYSICAL);

	return physical && physical->handles ? physical : NULL;
}

struct sim_physical *sim_physical_new(struct sim_extent *extent, const CUmemAllocationProp *prop)
{
	struct sim_physical *physical = sim_handle_new(SIM_PHYSICAL, sizeof(*physical));

	if (!physical)
		return NULL;
	physical->extent = extent;
	physical->size = extent->size;
	physical->prop = *prop;
	physical->device = prop->location.id;
	physical->handles = 1;
	return physical;
}

void sim_physical_settle(struct sim_physical *physical)
{
	if (physical->handles || physical->mappings)
		return;
	if (physical->record)
		sim_record_end(physical->extent->store, physical->record);
	sim_extent_drop(physical->extent);
	sim_handle_delete(physical);
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (prop->allocFlags.gpuDirectRDMACapable && sim_options.rdma_flag >= SIM_RDMA_FLAG_REFUSED)
		return CUDA_ERROR_NOT_SUPPORTED;
	return sim_device_known(prop->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static uint64_t granularity_of(const CUmemAllocationProp *prop)
{
	return prop->allocFlags.gpuDirectRDMACapable ? sim_options.rdma_page : SIM_PAGE;
}

SIM_CALL(cuMemCreate,
	 (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *prop,
	  unsigned long long flags),
	 (handle, size, prop, flags))
{
	CUresult result = check_prop(prop);
	struct sim_physical *physical;
	struct sim_extent *extent;

	if (result != CUDA_SUCCESS)
		return result;
	if (!handle || !size || size % granularity_of(prop) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	extent = sim_extent_take(prop->location.id, size);
	if (!extent)
		return CUDA_ERROR_OUT_OF_MEMORY;
	physical = sim_physical_new(extent, prop);
	if (!physical) {
		sim_extent_drop(extent);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*handle = (CUmemGenericAllocationHandle)physical;
	return CUDA_SUCCESS;
}

SIM_CALL(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))
{
	struct sim_physical *physical = sim_physical_of(handle);

	if (!physical)
		return sim_multicast_release(handle);
	physical->handles--;
	sim_physical_settle(physical);
	return CUDA_SUCCESS;
}

SIM_RACY_CALL(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *addr),
	      (handle, addr))
{
	struct sim_alloc *alloc = sim_alloc_at((uint64_t)addr);
	struct sim_physical *physical = alloc ? alloc->owner : NULL;

	if (!handle || !alloc || alloc->kind != SIM_MAPPED || !physical)
		return CUDA_ERROR_INVALID_VALUE;
	physical->handles++;
	*handle = (CUmemGenericAllocationHandle)physical;
	return CUDA_SUCCESS;
}

SIM_CALL(cuMemGetAllocationPropertiesFromHandle,
	 (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle), (prop, handle))
{
	struct sim_physical *physical = sim_physical_of(handle);

	if (!prop || !physical)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = physical->prop;
	return CUDA_SUCCESS;
}

SIM_CALL(cuMemGetAllocationGranularity,
	 (size_t * granularity, const CUmemAllocationProp *prop,
	  CUmemAllocationGranularity_flags option),
	 (granularity, prop, option))
{
	/* It also answers without any memory: UCX's test of cuMemMap asks so, on an H200. */
	bool is_blank = prop && !prop->type && !prop->location.type;
	CUresult result = is_blank ? CUDA_SUCCESS : check_prop(prop);

	if (!granularity || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		return CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*granularity = granularity_of(prop);
	return result;
}

/* ---- addresses ------------------------------------------------------------------------------ */

#define ADDRESS_LIMIT (1ull << 48)

SIM_CALL(cuMemAddressReserve,
	 (CUdeviceptr * ptr, size_t size, size_t align, CUdeviceptr wanted,
	  unsigned long long flags),
	 (ptr, size, align, wanted, flags))
{
	uint64_t base;

	if (!ptr || !size || size % SIM_PAGE || (align & (align - 1)) || wanted % SIM_PAGE || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (wanted >= ADDRESS_LIMIT)
		return CUDA_ERROR_OUT_OF_MEMORY;
	base = sim_addresses_reserve(size, align, wanted);
	if (!base)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ptr = base;
	return CUDA_SUCCESS;
}

/* Does one reservation contain the whole range? */
static bool reserved(uint64_t addr, uint64_t size)
{
	uint64_t base, all;

	return sim_reservation_at(addr, &base, &all) && size <= all && addr - base <= all - size;
}

SIM_API int sim_is_reserved(unsigned long long addr, uint64_t size)
{
	bool is;

	sim_lock();
	is = reserved(addr, size);
	sim_unlock();
	return is;
}

static bool nothing_mapped(uint64_t addr, uint64_t size)
{
	uint64_t at;

	for (at = addr; at < addr + size; at += SIM_PAGE)
		if (sim_block_at(at))
			return false;
	return true;
}

SIM_CALL(cuMemAddressFree, (CUdeviceptr ptr, size_t size), (ptr, size))
{
	uint64_t base, all;

	if (!sim_reservation_at(ptr, &base, &all) || base != ptr || all != size ||
	    !nothing_mapped(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	sim_addresses_unreserve(ptr, size);
	return CUDA_SUCCESS;
}

/* ---- mappings ------------------------------------------------------------------------------- */

static CUresult map(uint64_t addr, uint64_t size, struct sim_extent *extent, int device,
		    struct sim_physical *physical)
{
	struct sim_alloc *alloc;

	sim_extent_hold(extent);
	alloc = sim_alloc_whole(SIM_MAPPED, size, device, extent, addr);
	if (!alloc) {
		sim_extent_drop(extent);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	alloc->owner = physical;
	if (physical)
		physical->mappings++;
	return CUDA_SUCCESS;
}

SIM_CALL(cuMemMap,
	 (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
	  unsigned long long flags),
	 (ptr, size, offset, handle, flags))
{
	struct sim_physical *physical = sim_physical_of(handle);
	struct sim_extent *extent;

	if (!size || flags || ptr % SIM_PAGE || size % SIM_PAGE || !reserved(ptr, size) ||
	    !nothing_mapped(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (offset || (physical && size > physical->size))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (physical)
		return map(ptr, size, physical->extent, physical->device, physical);
	extent = sim_multicast_extent(handle, size);
	return extent ? map(ptr, size, extent, sim_extent_device(extent), NULL)
		      : CUDA_ERROR_INVALID_VALUE;
}

/* Do mappings fill the range exactly? */
static bool filled(uint64_t addr, uint64_t size)
{
	uint64_t at = addr;

	if (!size || addr % SIM_PAGE || size % SIM_PAGE || !reserved(addr, size))
		return false;
	while (at < addr + size) {
		struct sim_block *block = sim_block_at(at);

		if (!block || block->base != at)
			return false;
		at += block->size;
	}
	return at == addr + size;
}

static void unmap(struct sim_block *block)
{
	struct sim_physical *physical = block->whole->owner;

	sim_alloc_delete(block->whole);
	sim_block_remove(block);
	if (physical) {
		physical->mappings--;
		sim_physical_settle(physical);
	}
}

SIM_TOUCHING(cuMemUnmap, SIM_NEEDS_INIT, (CUdeviceptr ptr, size_t size), (ptr, size),
	     SIM_ENDS(ptr, size))
{
	uint64_t at = ptr;

	if (size && ptr % SIM_PAGE == 0 && size % SIM_PAGE == 0 && reserved(ptr, size) &&
	    nothing_mapped(ptr, size))
		return CUDA_SUCCESS;
	if (!filled(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	while (at < ptr + size) {
		struct sim_block *block = sim_block_at(at);

		at += block->size;
		unmap(block);
	}
	return CUDA_SUCCESS;
}

SIM_API int sim_unmap_unseen(unsigned long long address, unsigned long long size)
{
	return entry_cuMemUnmap(address, size);
}

SIM_CALL(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count),
	 (ptr, size, desc, count))
{
	uint64_t at;
	size_t i;

	if (!desc || !count || !filled(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++)
		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    !sim_device_known(desc[i].location.id))
			return CUDA_ERROR_INVALID_VALUE;
	for (at = ptr; at < ptr + size; at += sim_block_at(at)->size)
		for (i = 0; i < count; i++)
			if (desc[i].location.id == sim_block_at(at)->device || count == 1)
				sim_block_at(at)->whole->flags = desc[i].flags;
	return CUDA_SUCCESS;
}

SIM_CALL(cuMemGetAccess,
	 (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr),
	 (flags, location, ptr))
{
	struct sim_alloc *alloc = sim_alloc_at(ptr);

	if (!flags || !location || !alloc || alloc->kind != SIM_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = alloc->flags;
	return CUDA_SUCCESS;
}
