/* SPDX-License-Identifier: MIT */
/*
 * Memory pools and stream-ordered allocation. Freed memory stays in its pool until the stream is
 * waited for, or the pool is trimmed or ends. Its address stays the pool's until the pool ends: the
 * next allocation of that size gets the same address, under another id.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contexts.h"
#include "core.h"
#include "overlap.h"
#include "graphs.h"
#include "handles.h"
#include "memory.h"
#include "pools.h"
#include "streams.h"

static struct sim_pool *pools;

static struct sim_pool *defaults[16], *current[16];

struct sim_pool *sim_pool_of(CUmemoryPool handle)
{
	return sim_handle(handle, SIM_POOL_HANDLE);
}

struct sim_pool *sim_pool_new(int device)
{
	struct sim_pool *pool = sim_handle_new(SIM_POOL_HANDLE, sizeof(*pool));

	if (!pool)
		return NULL;
	pool->heap.device = device;
	pool->heap.keep = true;
	pool->heap.chunk = SIM_CHUNK;
	pool->next = pools;
	pools = pool;
	pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
	return pool;
}

static struct sim_pool *default_pool(int device)
{
	if (!defaults[device]) {
		defaults[device] = sim_pool_new(device);
		if (defaults[device])
			defaults[device]->is_default = true;
	}
	return defaults[device];
}

static struct sim_pool *current_pool(int device)
{
	return current[device] ? current[device] : default_pool(device);
}

/* ---- allocation ----------------------------------------------------------------------------- */

static CUresult capture_alloc(struct sim_stream *stream, uint64_t size, CUdeviceptr *dptr)
{
	struct sim_work work = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
	struct sim_node *node;
	CUresult result;

	work.alloc.size = size;
	work.alloc.device = stream->context->device;
	work.alloc.params.bytesize = size;
	work.alloc.params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	work.alloc.params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	work.alloc.params.poolProps.location.id = work.alloc.device;
	result = sim_capture_work(stream, &work, &node);
	if (result == CUDA_SUCCESS)
		*dptr = node->work.alloc.addr;
	return result;
}

static CUresult alloc_async(CUdeviceptr *dptr, uint64_t size, struct sim_pool *pool,
			    CUstream handle, bool per_thread)
{
	struct sim_stream *stream = sim_stream_of(handle, per_thread);
	struct sim_alloc *alloc;

	CUresult forbidden;

	if (!dptr)
		return CUDA_ERROR_INVALID_VALUE;
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	*dptr = 0;
	if (!size)
		return CUDA_SUCCESS;
	if (stream->capture)
		return capture_alloc(stream, size, dptr);
	forbidden = sim_capture_forbids();
	if (forbidden != CUDA_SUCCESS)
		return forbidden;
	if (!pool)
		pool = current_pool(stream->context->device);
	if (!pool || (pool->max_size && pool->heap.reserved + size > pool->max_size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	alloc = sim_heap_alloc(&pool->heap, size, SIM_POOL);
	if (!alloc)
		return CUDA_ERROR_OUT_OF_MEMORY;
	alloc->pool = pool;
	pool->live++;
	*dptr = alloc->addr;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuMemAllocAsync, (CUdeviceptr * dptr, size_t size, CUstream stream),
	     (dptr, size, stream))
{
	return alloc_async(dptr, size, NULL, stream, false);
}

SIM_CTX_CALL(cuMemAllocAsync_ptsz, (CUdeviceptr * dptr, size_t size, CUstream stream),
	     (dptr, size, stream))
{
	return alloc_async(dptr, size, NULL, stream, true);
}

static CUresult alloc_from(CUdeviceptr *dptr, uint64_t size, CUmemoryPool handle, CUstream stream,
			   bool per_thread)
{
	struct sim_pool *pool = sim_pool_of(handle);

	if (!pool || pool->destroyed || pool->imported)
		return CUDA_ERROR_INVALID_VALUE;
	return alloc_async(dptr, size, pool, stream, per_thread);
}

SIM_CTX_CALL(cuMemAllocFromPoolAsync,
	     (CUdeviceptr * dptr, size_t size, CUmemoryPool pool, CUstream stream),
	     (dptr, size, pool, stream))
{
	return alloc_from(dptr, size, pool, stream, false);
}

SIM_CTX_CALL(cuMemAllocFromPoolAsync_ptsz,
	     (CUdeviceptr * dptr, size_t size, CUmemoryPool pool, CUstream stream),
	     (dptr, size, pool, stream))
{
	return alloc_from(dptr, size, pool, stream, true);
}

/* ---- free ----------------------------------------------------------------------------------- */

static void bury(struct sim_pool *pool)
{
	struct sim_pool **at = &pools;

	while (*at != pool)
		at = &(*at)->next;
	*at = pool->next;
	sim_heap_end(&pool->heap);
	if (pool->imported)
		close(pool->imported - 1);
	sim_handle_delete(pool);
}

void sim_pool_free(struct sim_alloc *alloc)
{
	struct sim_pool *pool = alloc->pool;

	if (alloc->kind == SIM_POOL_IMPORT)
		sim_free_whole(alloc);
	else
		sim_heap_free(&pool->heap, alloc);
	if (--pool->live == 0 && pool->destroyed)
		bury(pool);
}

/*
 * Memory of cuMemAlloc may be freed in stream order, too. It stays until the stream is waited for:
 * its id and its exports work until then.
 */
static struct sim_alloc **pending;
static size_t pending_count, pending_capacity;

static CUresult free_later(struct sim_alloc *alloc)
{
	size_t capacity = pending_capacity ? pending_capacity * 2 : 16;
	struct sim_alloc **more;

	if (alloc->pending)
		return CUDA_ERROR_INVALID_VALUE;
	if (pending_count == pending_capacity) {
		more = realloc(pending, capacity * sizeof(*more));
		if (!more)
			return CUDA_ERROR_OUT_OF_MEMORY;
		pending = more;
		pending_capacity = capacity;
	}
	alloc->pending = true;
	pending[pending_count++] = alloc;
	return CUDA_SUCCESS;
}

void sim_forget_pending(struct sim_alloc *alloc)
{
	size_t i = 0;

	while (pending[i] != alloc)
		i++;
	pending[i] = pending[--pending_count];
	alloc->pending = false;
}

static void free_pending(int device)
{
	size_t i = 0;

	while (i < pending_count)
		if (pending[i]->device == device)
			sim_free_alloc(pending[i]); /* removes it from the list */
		else
			i++;
}

static CUresult free_async(uint64_t addr, CUstream handle, bool per_thread)
{
	struct sim_stream *stream = sim_stream_of(handle, per_thread);
	struct sim_alloc *alloc = sim_alloc_at(addr);
	CUresult forbidden;

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!addr)
		return CUDA_SUCCESS;
	if (stream->capture) { /* memory of a graph; the graph checks that */
		struct sim_work work = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = addr};

		return sim_capture_work(stream, &work, NULL);
	}
	forbidden = sim_capture_forbids();
	if (forbidden != CUDA_SUCCESS)
		return forbidden;
	if (!alloc || alloc->addr != addr)
		return CUDA_ERROR_INVALID_VALUE;
	switch (alloc->kind) {
	case SIM_POOL:
	case SIM_POOL_IMPORT:
	case SIM_GRAPH:
		sim_free_alloc(alloc);
		return CUDA_SUCCESS;
	case SIM_LINEAR:
		return free_later(alloc);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SIM_TOUCHING(cuMemFreeAsync, SIM_NEEDS_CONTEXT, (CUdeviceptr dptr, CUstream stream), (dptr, stream),
	     SIM_ENDS(dptr, 0))
{
	return free_async(dptr, stream, false);
}

SIM_TOUCHING(cuMemFreeAsync_ptsz, SIM_NEEDS_CONTEXT, (CUdeviceptr dptr, CUstream stream),
	     (dptr, stream), SIM_ENDS(dptr, 0))
{
	return free_async(dptr, stream, true);
}

void sim_pools_synchronized(int device)
{
	struct sim_pool *pool;

	free_pending(device);
	for (pool = pools; pool; pool = pool->next)
		if (pool->heap.device == device && pool->heap.idle)
			sim_heap_trim(&pool->heap, pool->threshold);
}

/* ---- pools ---------------------------------------------------------------------------------- */

SIM_CALL(cuMemPoolCreate, (CUmemoryPool * handle, const CUmemPoolProps *props), (handle, props))
{
	struct sim_pool *pool;

	if (!handle || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(props->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	pool = sim_pool_new(props->location.id);
	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->handle_types = props->handleTypes;
	pool->max_size = props->maxSize;
	*handle = (CUmemoryPool)pool;
	return CUDA_SUCCESS;
}

SIM_CALL(cuMemPoolDestroy, (CUmemoryPool handle), (handle))
{
	struct sim_pool *pool = sim_pool_of(handle);

	if (!pool || pool->is_default || pool->destroyed)
		return CUDA_ERROR_INVALID_VALUE;
	if (current[pool->heap.device] == pool)
		current[pool->heap.device] = NULL;
	pool->destroyed = true;
	if (!pool->live)
		bury(pool);
	return CUDA_SUCCESS;
}

SIM_ENTRY(cuMemPoolTrimTo, SIM_NEEDS_NO_DEAD_CONTEXT | SIM_UNSAFE,
	  (CUmemoryPool handle, size_t keep), (handle, keep))
{
	struct sim_pool *pool = sim_pool_of(handle);

	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	sim_heap_trim(&pool->heap, keep);
	return CUDA_SUCCESS;
}

static uint64_t *figure(struct sim_pool *pool, CUmemPool_attribute attribute)
{
	switch (attribute) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		return &pool->threshold;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return &pool->heap.reserved;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return &pool->heap.reserved_high;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return &pool->heap.used;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return &pool->heap.used_high;
	default:
		return NULL;
	}
}

static bool is_switch(CUmemPool_attribute attribute)
{
	return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
	       attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

SIM_CALL(cuMemPoolGetAttribute, (CUmemoryPool handle, CUmemPool_attribute attribute, void *value),
	 (handle, attribute, value))
{
	struct sim_pool *pool = sim_pool_of(handle);

	if (!pool || !value)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_switch(attribute))
		*(int *)value = pool->reuse[attribute - 1];
	else if (figure(pool, attribute))
		*(cuuint64_t *)value = *figure(pool, attribute);
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* The high-water marks can be reset to 0; the current figures can't be set. */
SIM_CALL(cuMemPoolSetAttribute, (CUmemoryPool handle, CUmemPool_attribute attribute, void *value),
	 (handle, attribute, value))
{
	struct sim_pool *pool = sim_pool_of(handle);

	if (!pool || !value)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_switch(attribute)) {
		pool->reuse[attribute - 1] = *(int *)value;
		return CUDA_SUCCESS;
	}
	switch (attribute) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		pool->threshold = *(cuuint64_t *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		if (*(cuuint64_t *)value)
			return CUDA_ERROR_INVALID_VALUE;
		*figure(pool, attribute) = *figure(pool, attribute - 1);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SIM_CALL(cuMemPoolSetAccess, (CUmemoryPool handle, const CUmemAccessDesc *map, size_t count),
	 (handle, map, count))
{
	if (!sim_pool_of(handle) || !map || !count)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS; /* every device can reach the memory of every other one */
}

SIM_CALL(cuMemPoolGetAccess,
	 (CUmemAccess_flags * flags, CUmemoryPool handle, CUmemLocation *location),
	 (flags, handle, location))
{
	if (!sim_pool_of(handle) || !flags || !location)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetDefaultMemPool, (CUmemoryPool * handle, CUdevice device), (handle, device))
{
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*handle = (CUmemoryPool)default_pool(device);
	return *handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_CALL(cuDeviceGetMemPool, (CUmemoryPool * handle, CUdevice device), (handle, device))
{
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*handle = (CUmemoryPool)current_pool(device);
	return *handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_CALL(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool handle), (device, handle))
{
	struct sim_pool *pool = sim_pool_of(handle);

	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!pool || pool->destroyed || pool->heap.device != device)
		return CUDA_ERROR_INVALID_VALUE;
	current[device] = pool;
	return CUDA_SUCCESS;
}
