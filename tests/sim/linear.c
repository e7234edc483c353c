/* SPDX-License-Identifier: MIT */
/* cuMemAlloc and its family, cuMemFree, and the figures of the whole memory. */
#include "contexts.h"
#include "core.h"
#include "overlap.h"
#include "graphs.h"
#include "host.h"
#include "imports.h"
#include "memory.h"
#include "pools.h"
#include "sim.h"

#define PITCH_ALIGNMENT 512u

static struct sim_alloc *alloc_linear(uint64_t size)
{
	struct sim_context *context = sim_owner();
	struct sim_alloc *alloc = sim_heap_alloc(&context->heap, size, SIM_LINEAR);

	if (!alloc)
		return NULL;
	if (context->flags & CU_CTX_SYNC_MEMOPS)
		alloc->sync_memops = true;
	sim_alloc_to_context(alloc, context);
	return alloc;
}

SIM_UNSAFE_CALL(cuMemAlloc_v2, (CUdeviceptr * dptr, size_t bytesize), (dptr, bytesize))
{
	struct sim_alloc *alloc;

	if (!dptr || !bytesize)
		return CUDA_ERROR_INVALID_VALUE;
	alloc = alloc_linear(bytesize);
	if (!alloc)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*dptr = alloc->addr;
	return CUDA_SUCCESS;
}

static bool pitch_of(size_t width, size_t height, unsigned element, size_t *pitch)
{
	if (!width || !height || (element != 4 && element != 8 && element != 16) ||
	    width > 1ull << 40 || height > 1ull << 30)
		return false;
	*pitch = (width + PITCH_ALIGNMENT - 1) & ~(size_t)(PITCH_ALIGNMENT - 1);
	return true;
}

SIM_UNSAFE_CALL(cuMemAllocPitch_v2,
		(CUdeviceptr * dptr, size_t *pitch, size_t width, size_t height,
		 unsigned int element),
		(dptr, pitch, width, height, element))
{
	struct sim_alloc *alloc;
	size_t wide;

	if (!dptr || !pitch || !pitch_of(width, height, element, &wide))
		return CUDA_ERROR_INVALID_VALUE;
	alloc = alloc_linear(wide * height);
	if (!alloc)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*dptr = alloc->addr;
	*pitch = wide;
	return CUDA_SUCCESS;
}

/* ---- the calls from before CUDA 3.2: addresses below 4 GiB ------------------------------- */

static CUresult alloc_low(CUdeviceptr_v1 *dptr, uint64_t size)
{
	struct sim_context *context = sim_owner();
	uint64_t span = (size + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
	struct sim_extent *extent = sim_extent_take(context->device, span);
	uint64_t base = extent ? sim_low_addresses_take(span) : 0;
	struct sim_alloc *alloc = NULL;

	if (base)
		alloc = sim_alloc_whole(SIM_LINEAR, size, context->device, extent, base);
	if (!alloc) {
		if (extent)
			sim_extent_drop(extent);
		if (base)
			sim_addresses_drop(base, span);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	sim_alloc_to_context(alloc, context);
	*dptr = alloc->addr;
	return CUDA_SUCCESS;
}

SIM_UNSAFE_CALL(cuMemAlloc, (CUdeviceptr_v1 * dptr, unsigned int bytesize), (dptr, bytesize))
{
	if (!dptr || !bytesize)
		return CUDA_ERROR_INVALID_VALUE;
	return alloc_low(dptr, bytesize);
}

SIM_UNSAFE_CALL(cuMemAllocPitch,
		(CUdeviceptr_v1 * dptr, unsigned int *pitch, unsigned int width,
		 unsigned int height, unsigned int element),
		(dptr, pitch, width, height, element))
{
	CUresult result;
	size_t wide;

	if (!dptr || !pitch || !pitch_of(width, height, element, &wide))
		return CUDA_ERROR_INVALID_VALUE;
	result = alloc_low(dptr, wide * height);
	if (result == CUDA_SUCCESS)
		*pitch = wide;
	return result;
}

/* ---- free ----------------------------------------------------------------------------------- */

void sim_free_alloc(struct sim_alloc *alloc)
{
	switch (alloc->kind) {
	case SIM_LINEAR:
		if (alloc->pending)
			sim_forget_pending(alloc);
		if (alloc->block->heap)
			sim_heap_free(alloc->block->heap, alloc);
		else
			sim_free_whole(alloc);
		break;
	case SIM_POOL:
	case SIM_POOL_IMPORT:
		sim_pool_free(alloc);
		break;
	case SIM_IPC:
		sim_ipc_free(alloc);
		break;
	case SIM_REGISTERED:
		sim_unregister(alloc);
		break;
	case SIM_GRAPH:
		sim_graph_memory_free(alloc);
		break;
	case SIM_MANAGED:
	case SIM_HOST:
	case SIM_EXTERNAL:
	case SIM_GRAPHICS:
		sim_free_whole(alloc);
		break;
	case SIM_GLOBAL: /* ends with its module */
	case SIM_MAPPED: /* ends with cuMemUnmap; neither belongs to a context */
		break;
	}
}

static CUresult free_device_memory(uint64_t addr)
{
	struct sim_alloc *alloc;

	if (!addr)
		return CUDA_SUCCESS;
	alloc = sim_alloc_at(addr);
	if (!alloc || alloc->addr != addr)
		return CUDA_ERROR_INVALID_VALUE;
	switch (alloc->kind) {
	case SIM_POOL:
	case SIM_POOL_IMPORT:
		if (!sim_current()) {
			sim_free_alloc(alloc);
			return CUDA_SUCCESS;
		}
		/*
		 * Calls an export of its own; if the driver were not bound to itself, an interposer
		 * would see this call.
		 */
		return cuMemFreeAsync(addr, CU_STREAM_LEGACY);
	case SIM_LINEAR:
	case SIM_MANAGED:
	case SIM_EXTERNAL:
	case SIM_GRAPH:
		sim_free_alloc(alloc);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SIM_TOUCHING(cuMemFree_v2, SIM_NEEDS_NO_DEAD_CONTEXT | SIM_UNSAFE, (CUdeviceptr dptr), (dptr),
	     SIM_ENDS(dptr, 0))
{
	return free_device_memory(dptr);
}

/* Calls the function behind the exported name directly. */
SIM_API int sim_free_unseen(unsigned long long address)
{
	return entry_cuMemFree_v2(address);
}

SIM_TOUCHING(cuMemFree, SIM_NEEDS_NO_DEAD_CONTEXT | SIM_UNSAFE, (CUdeviceptr_v1 dptr), (dptr),
	     SIM_ENDS(dptr, 0))
{
	return free_device_memory(dptr);
}

/* ---- what there is -------------------------------------------------------------------------- */

SIM_CTX_CALL(cuMemGetInfo_v2, (size_t * free_bytes, size_t *total), (free_bytes, total))
{
	uint64_t left, all;

	sim_store_info(sim_current()->device, &left, &all);
	if (free_bytes)
		*free_bytes = left;
	if (total)
		*total = all;
	return CUDA_SUCCESS;
}

static unsigned clip(uint64_t bytes)
{
	return bytes > UINT32_MAX ? UINT32_MAX : bytes;
}

SIM_CTX_CALL(cuMemGetInfo, (unsigned int *free_bytes, unsigned int *total), (free_bytes, total))
{
	uint64_t left, all;

	sim_store_info(sim_current()->device, &left, &all);
	if (free_bytes)
		*free_bytes = clip(left);
	if (total)
		*total = clip(all);
	return CUDA_SUCCESS;
}
