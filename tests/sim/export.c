/* SPDX-License-Identifier: MIT */
/*
 * cuMemGetHandleForAddressRange: a descriptor of device memory, as a dma-buf. It keeps the memory
 * it was made of, whatever becomes of the address. Unlike a real one it can be mapped and read: its
 * file position says where in the file the range begins (sim_dmabuf_offset() in sim.h).
 */
#include <errno.h>
#include <unistd.h>

#include "contexts.h"
#include "core.h"
#include "memory.h"

#define MOST_EXTENTS 64 /* mappings that one export may span */

/*
 * Where memory may be exported at all. A block is what counts, not an allocation: the neighbours in
 * its 2 MiB, live or freed, may be part of the range.
 */
static bool exportable(const struct sim_block *block)
{
	return block && block->extent && (!block->whole || block->whole->kind != SIM_GRAPH);
}

/* The blocks of a range that crosses from one mapping into the next. */
static CUresult extents_of(uint64_t addr, uint64_t size, struct sim_extent **extents,
			   unsigned *count)
{
	uint64_t at = addr, end = addr + size;

	for (*count = 0; at < end; ++*count) {
		struct sim_block *block = sim_block_at(at);

		if (!exportable(block) || *count == MOST_EXTENTS)
			return CUDA_ERROR_INVALID_VALUE;
		if (*count && (!block->whole || block->whole->kind != SIM_MAPPED))
			return CUDA_ERROR_INVALID_VALUE;
		extents[*count] = block->extent;
		at = block->base + block->size;
	}
	return CUDA_SUCCESS;
}

static CUresult export_range(uint64_t addr, uint64_t size, int *fd)
{
	struct sim_extent *extents[MOST_EXTENTS];
	struct sim_block *block = sim_block_at(addr);
	unsigned count, i;
	CUresult result;

	result = extents_of(addr, size, extents, &count);
	if (result != CUDA_SUCCESS)
		return result;
	/* Bring the pieces together. Parts of a handle's memory, out of order, can't be. */
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

SIM_CTX_CALL(cuMemGetHandleForAddressRange,
	     (void *handle, CUdeviceptr ptr, size_t size, CUmemRangeHandleType type,
	      unsigned long long flags),
	     (handle, ptr, size, type, flags))
{
	uint64_t page = sysconf(_SC_PAGESIZE);
	CUresult result;
	int fd;

	if (!handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (!size || ptr % page || size % page || ptr + size < ptr)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE)
		return CUDA_ERROR_NOT_SUPPORTED;
	result = export_range(ptr, size, &fd);
	if (result == CUDA_SUCCESS)
		*(int *)handle = fd;
	return result;
}
