/* SPDX-License-Identifier: MIT */
/*
 * cuMemGetHandleForAddressRange: a descriptor of device memory, as a dma-buf. It keeps its memory,
 * whatever happens to the address. Unlike a real one it can be mapped and read: its file position
 * is the offset of the range in the file (sim_dmabuf_offset() in sim.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "bar.h"
#include "contexts.h"
#include "core.h"
#include "overlap.h"
#include "memory.h"
#include "physical.h"

#define MAX_EXTENTS 1024 /* the maximum number of mappings in one export */

/* Memory of cuMemCreate, where the device wants to be told that it will be exported. */
static bool lacks_rdma_flag(const struct sim_alloc *alloc)
{
	const struct sim_physical *physical = alloc->owner;

	return sim_options.rdma_flag == SIM_RDMA_FLAG_NEEDED && alloc->kind == SIM_MAPPED &&
	       physical && !physical->prop.allocFlags.gpuDirectRDMACapable;
}

/*
 * Can this memory be exported? Variables of modules can't, nor memory that another process owns or
 * that was imported as external memory, nor memory that the host can touch.
 */
static bool exportable(const struct sim_block *block)
{
	if (!block || !block->extent)
		return false;
	if (block->heap)
		return !block->heap->hidden;
	return !block->whole ||
	       (block->whole->kind != SIM_IPC && block->whole->kind != SIM_POOL_IMPORT &&
		block->whole->kind != SIM_EXTERNAL && !lacks_rdma_flag(block->whole));
}

static bool in_pool(const struct sim_block *block)
{
	return block->heap && block->heap->chunk;
}

/*
 * Pool memory, as in the real driver: a range that fits into a chunk must begin where a chunk
 * begins. A range that goes beyond the last chunk ends the process, there and here.
 */
static bool pool_range_fits(const struct sim_block *block, uint64_t addr, uint64_t size)
{
	if (size <= SIM_CHUNK)
		return (addr - block->base) % SIM_CHUNK == 0;
	if (size <= block->size - (addr - block->base))
		return true;
	sim_complain(
		"simulated libcuda: an export of pool memory beyond its chunk crashes the real "
		"driver: %#llx, %llu bytes",
		(unsigned long long)addr, (unsigned long long)size);
	abort();
}

/*
 * The blocks of a range; it may cross only from one mapping of the program into the next. Blocks
 * count, not allocations: the neighbours in the same 2 MiB, live or freed, may be part of the range
 * if anything in it is live.
 */
static CUresult extents_of(uint64_t addr, uint64_t size, struct sim_extent **extents,
			   unsigned *count)
{
	uint64_t at = addr, end = addr + size;
	bool live = false;

	for (*count = 0; at < end; ++*count) {
		struct sim_block *block = sim_block_at(at);
		uint64_t piece;

		if (!exportable(block) || *count == MAX_EXTENTS)
			return CUDA_ERROR_INVALID_VALUE;
		if (in_pool(block) && !pool_range_fits(block, addr, size))
			return CUDA_ERROR_INVALID_VALUE;
		if (*count && (!block->whole || block->whole->kind != SIM_MAPPED))
			return CUDA_ERROR_INVALID_VALUE;
		piece = block->base + block->size - at < end - at ? block->base + block->size - at
								  : end - at;
		if (at + piece < end && block->size != block->extent->size)
			return CUDA_ERROR_NOT_SUPPORTED; /* the rest of it lies in between */
		live |= sim_block_has_live(block, at, piece);
		extents[*count] = block->extent;
		at += piece;
	}
	return live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Exports memory of a PCI device. */
static CUresult export_of_bar(const struct sim_block *block, struct sim_extent *const *extents,
			      unsigned count, uint64_t offset, uint64_t size, int *fd)
{
	*fd = sim_bar_export(extents, count, block->extent_offset + offset, size);
	if (*fd >= 0)
		return CUDA_SUCCESS;
	switch (errno) {
	case EMFILE:
	case ENFILE:
		return CUDA_ERROR_OPERATING_SYSTEM;
	case ENOMEM:
		return CUDA_ERROR_OUT_OF_MEMORY;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult export_range(uint64_t addr, uint64_t size, int *fd)
{
	struct sim_extent *extents[MAX_EXTENTS];
	struct sim_block *block = sim_block_at(addr);
	unsigned count, i;
	CUresult result;

	result = extents_of(addr, size, extents, &count);
	if (result != CUDA_SUCCESS)
		return result;
	if (sim_bar_is_there())
		return export_of_bar(block, extents, count, addr - block->base, size, fd);
	/* Brings the pieces together. Parts of a handle's memory that are out of order can't be. */
	if (count > 1 && !sim_extents_join(extents, count, block->device))
		return CUDA_ERROR_NOT_SUPPORTED;
	*fd = sim_store_export(extents[0],
			       extents[0]->offset + block->extent_offset + (addr - block->base),
			       size, true);
	if (*fd == -1)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (*fd < 0)
		return errno == EMFILE || errno == ENFILE ? CUDA_ERROR_OPERATING_SYSTEM
							  : CUDA_ERROR_UNKNOWN;
	for (i = 1; i < count; i++)
		extents[i]->exported = extents[i]->touched = true;
	return CUDA_SUCCESS;
}

SIM_API int sim_dmabuf_is_pcie(int fd)
{
	return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
}

SIM_API void sim_set_mappings(int plain, int pcie, int coherent)
{
	sim_options.export_default = plain;
	sim_options.export_pcie = pcie;
	sim_options.coherent = coherent;
}

static CUresult has_mapping(unsigned long long flags)
{
	if (!sim_options.dma_buf)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!flags)
		return sim_options.export_default ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
	switch (sim_options.export_pcie) {
	case 0:
		return CUDA_ERROR_NOT_SUPPORTED;
	case 1:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SIM_TOUCHING(cuMemGetHandleForAddressRange, SIM_NEEDS_CONTEXT,
	     (void *handle, CUdeviceptr ptr, size_t size, CUmemRangeHandleType type,
	      unsigned long long flags),
	     (handle, ptr, size, type, flags), SIM_ASKS(ptr, size))
{
	uint64_t page = sysconf(_SC_PAGESIZE);
	CUresult result;
	int fd;

	if (!handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (!size || ptr % page || size % page || ptr + size < ptr)
		return CUDA_ERROR_INVALID_VALUE;
	result = has_mapping(flags);
	if (result == CUDA_SUCCESS)
		result = export_range(ptr, size, &fd);
	if (result != CUDA_SUCCESS)
		return result;
	if (flags)
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	*(int *)handle = fd;
	return CUDA_SUCCESS;
}
