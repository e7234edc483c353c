/* SPDX-License-Identifier: MIT */
/*
 * Memory that the host can touch: page-locked, managed, and memory of the program that it
 * registered.
 */
#include <stdlib.h>
#include <string.h>

#include "contexts.h"
#include "core.h"
#include "host.h"
#include "memory.h"

static CUresult alloc_touchable(enum sim_kind kind, uint64_t size, uint32_t flags,
				struct sim_alloc **alloc)
{
	uint64_t span = (size + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
	uint64_t base = sim_addresses_take(span, 0);
	struct sim_context *context = sim_owner();

	if (!base)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!sim_addresses_open(base, span))
		goto no_memory;
	*alloc = sim_alloc_whole(kind, size, context->device, NULL, base);
	if (!*alloc)
		goto no_record;
	(*alloc)->flags = flags;
	sim_alloc_to_context(*alloc, context);
	return CUDA_SUCCESS;
no_record:
	sim_addresses_shut(base, span);
no_memory:
	sim_addresses_drop(base, span);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- managed -------------------------------------------------------------------------------- */

SIM_UNSAFE_CALL(cuMemAllocManaged, (CUdeviceptr * dptr, size_t bytesize, unsigned int flags),
		(dptr, bytesize, flags))
{
	struct sim_alloc *alloc;
	CUresult result;

	if (!dptr || !bytesize || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	result = alloc_touchable(SIM_MANAGED, bytesize, flags, &alloc);
	if (result != CUDA_SUCCESS)
		return result;
	alloc->sync_memops = true;
	*dptr = alloc->addr;
	return CUDA_SUCCESS;
}

/* ---- page-locked ---------------------------------------------------------------------------- */

static CUresult alloc_host(void **pp, size_t size, unsigned flags)
{
	struct sim_alloc *alloc;
	CUresult result;

	if (!pp || flags & ~7u)
		return CUDA_ERROR_INVALID_VALUE;
	*pp = NULL;
	if (!size)
		return CUDA_SUCCESS;
	/* With unified addresses the device can reach all of it. */
	result = alloc_touchable(SIM_HOST, size, flags | CU_MEMHOSTALLOC_DEVICEMAP, &alloc);
	if (result == CUDA_SUCCESS)
		*pp = (void *)alloc->addr;
	return result;
}

SIM_UNSAFE_CALL(cuMemAllocHost_v2, (void **pp, size_t bytesize), (pp, bytesize))
{
	return alloc_host(pp, bytesize, 0);
}

SIM_UNSAFE_CALL(cuMemAllocHost, (void **pp, unsigned int bytesize), (pp, bytesize))
{
	return alloc_host(pp, bytesize, 0);
}

SIM_UNSAFE_CALL(cuMemHostAlloc, (void **pp, size_t bytesize, unsigned int flags),
		(pp, bytesize, flags))
{
	return alloc_host(pp, bytesize, flags);
}

SIM_UNSAFE_CALL(cuMemFreeHost, (void *p), (p))
{
	struct sim_alloc *alloc = sim_alloc_at((uint64_t)p);

	if (!p)
		return CUDA_SUCCESS;
	if (!alloc || alloc->addr != (uint64_t)p || alloc->kind != SIM_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	sim_free_alloc(alloc);
	return CUDA_SUCCESS;
}

/* ---- registered ----------------------------------------------------------------------------- */

static struct sim_alloc **registered; /* sorted by address */
static size_t registered_count, registered_capacity;

/* The first one that ends above the address. */
static size_t find_place(uint64_t addr)
{
	size_t low = 0, high = registered_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (registered[middle]->addr + registered[middle]->size <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct sim_alloc *sim_registered_at(uint64_t addr)
{
	size_t place;

	if (!registered_count)
		return NULL;
	place = find_place(addr);
	return place < registered_count && registered[place]->addr <= addr ? registered[place]
									   : NULL;
}

static CUresult register_memory(void *p, size_t size, unsigned flags)
{
	uint64_t addr = (uint64_t)p;
	struct sim_alloc *alloc;
	size_t place;

	if (!p || !size || flags & ~15u || addr + size < addr || sim_in_arena(addr))
		return CUDA_ERROR_INVALID_VALUE;
	place = find_place(addr);
	if (place < registered_count && registered[place]->addr < addr + size)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (registered_count == registered_capacity) {
		size_t capacity = registered_capacity ? registered_capacity * 2 : 64;
		void *bigger = realloc(registered, capacity * sizeof(*registered));

		if (!bigger)
			return CUDA_ERROR_OUT_OF_MEMORY;
		registered = bigger;
		registered_capacity = capacity;
	}
	alloc = sim_alloc_new(SIM_REGISTERED, addr, size, sim_current()->device);
	if (!alloc)
		return CUDA_ERROR_OUT_OF_MEMORY;
	alloc->flags = flags;
	memmove(registered + place + 1, registered + place,
		(registered_count - place) * sizeof(*registered));
	registered[place] = alloc;
	registered_count++;
	sim_alloc_to_context(alloc, sim_owner());
	return CUDA_SUCCESS;
}

SIM_UNSAFE_CALL(cuMemHostRegister_v2, (void *p, size_t bytesize, unsigned int flags),
		(p, bytesize, flags))
{
	return register_memory(p, bytesize, flags);
}

SIM_UNSAFE_CALL(cuMemHostRegister, (void *p, size_t bytesize, unsigned int flags),
		(p, bytesize, flags))
{
	return register_memory(p, bytesize, flags);
}

void sim_unregister(struct sim_alloc *alloc)
{
	size_t place = find_place(alloc->addr);

	registered_count--;
	memmove(registered + place, registered + place + 1,
		(registered_count - place) * sizeof(*registered));
	sim_alloc_delete(alloc);
}

SIM_UNSAFE_CALL(cuMemHostUnregister, (void *p), (p))
{
	struct sim_alloc *alloc = sim_registered_at((uint64_t)p);

	if (!p || (alloc && alloc->addr != (uint64_t)p))
		return CUDA_ERROR_INVALID_VALUE;
	if (!alloc)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	sim_unregister(alloc);
	return CUDA_SUCCESS;
}

/* ---- questions ------------------------------------------------------------------------------ */

static struct sim_alloc *host_alloc_at(const void *p)
{
	struct sim_alloc *alloc = p ? sim_alloc_at((uint64_t)p) : NULL;

	return alloc && (alloc->kind == SIM_HOST || alloc->kind == SIM_REGISTERED) ? alloc : NULL;
}

SIM_CTX_CALL(cuMemHostGetDevicePointer_v2, (CUdeviceptr * dptr, void *p, unsigned int flags),
	     (dptr, p, flags))
{
	if (!dptr || flags || !host_alloc_at(p))
		return CUDA_ERROR_INVALID_VALUE;
	*dptr = (CUdeviceptr)p;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuMemHostGetDevicePointer, (CUdeviceptr_v1 * dptr, void *p, unsigned int flags),
	     (dptr, p, flags))
{
	if (!dptr || flags || !host_alloc_at(p) || (uint64_t)p > UINT32_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*dptr = (CUdeviceptr_v1)(uint64_t)p;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuMemHostGetFlags, (unsigned int *flags, void *p), (flags, p))
{
	struct sim_alloc *alloc = host_alloc_at(p);

	if (!flags || !alloc)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = alloc->flags;
	return CUDA_SUCCESS;
}
