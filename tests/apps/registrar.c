/* SPDX-License-Identifier: MIT */
/*
 * A preloaded library that registers all device memory that the program gets, through pindown if it
 * is there, and leaves the registrations in the cache: the program's frees must remove them. It
 * prints to standard error if a free was missed.
 */
#define _GNU_SOURCE
#include "app.h"

#include <dlfcn.h>

#include "cache/pindown.h"

#define EXPORT __attribute__((visibility("default")))

static void register_memory(CUdeviceptr at, size_t size)
{
	__typeof__(&pindown_get) get = dlsym(RTLD_DEFAULT, "pindown_get");
	__typeof__(&pindown_put) put = dlsym(RTLD_DEFAULT, "pindown_put");
	pindown_region *region;

	if (get != NULL && put != NULL && get(at, size, 0, &region) == PINDOWN_OK)
		put(region);
}

__attribute__((destructor)) static void complain(void)
{
	__typeof__(&pindown_stats) get_stats = dlsym(RTLD_DEFAULT, "pindown_stats");
	struct pindown_stats stats = {0};

	if (get_stats == NULL || get_stats(&stats, sizeof(stats), -1) != PINDOWN_OK)
		return;
	if (stats.missed_invalidations != 0)
		fprintf(stderr, "%d invalidations were missed\n", (int)stats.missed_invalidations);
	if (stats.intercepting == 0)
		fprintf(stderr, "frees are not watched\n");
}

/*
 * Calls the real function and registers its result. The function is looked up each time: several
 * threads call this at once.
 */
#define THEN_REGISTER(fn, at, size, ...)                                        \
	({                                                                      \
		__typeof__(&fn) real_ = (__typeof__(&fn))dlsym(RTLD_NEXT, #fn); \
		CUresult result_ = real_(__VA_ARGS__);                          \
		int errno_ = errno;                                             \
                                                                                \
		if (result_ == CUDA_SUCCESS)                                    \
			register_memory(at, size);                              \
		errno = errno_;                                                 \
		result_;                                                        \
	})

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t size)
{
	return THEN_REGISTER(cuMemAlloc_v2, *at, size, at, size);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t height,
				   unsigned element)
{
	return THEN_REGISTER(cuMemAllocPitch_v2, *at, *pitch * height, at, pitch, width, height,
			     element);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *at, size_t size, unsigned flags)
{
	return THEN_REGISTER(cuMemAllocManaged, *at, size, at, size, flags);
}

EXPORT CUresult cuMemHostAlloc(void **at, size_t size, unsigned flags)
{
	return THEN_REGISTER(cuMemHostAlloc, (CUdeviceptr)(uintptr_t)*at, size, at, size, flags);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *at, size_t size, CUstream stream)
{
	return THEN_REGISTER(cuMemAllocAsync, *at, size, at, size, stream);
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *at, size_t size, CUstream stream)
{
	return THEN_REGISTER(cuMemAllocAsync_ptsz, *at, size, at, size, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *at, size_t size, CUmemoryPool pool,
					CUstream stream)
{
	return THEN_REGISTER(cuMemAllocFromPoolAsync, *at, size, at, size, pool, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *at, size_t size, CUmemoryPool pool,
					     CUstream stream)
{
	return THEN_REGISTER(cuMemAllocFromPoolAsync_ptsz, *at, size, at, size, pool, stream);
}

/* The last step of mapping: after it the memory can be used. */
EXPORT CUresult cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc *desc,
			       size_t count)
{
	return THEN_REGISTER(cuMemSetAccess, at, size, at, size, desc, count);
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags)
{
	return THEN_REGISTER(cuIpcOpenMemHandle_v2, *at, 1, at, handle, flags);
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *size, CUmodule module,
				     const char *name)
{
	return THEN_REGISTER(cuModuleGetGlobal_v2, at != NULL ? *at : 0, 1, at, size, module, name);
}

EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *at, size_t *size, CUlibrary library,
				   const char *name)
{
	return THEN_REGISTER(cuLibraryGetGlobal, at != NULL ? *at : 0, 1, at, size, library, name);
}

EXPORT CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *at, CUexternalMemory memory,
						const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
	return THEN_REGISTER(cuExternalMemoryGetMappedBuffer, *at, desc->size, at, memory, desc);
}

/*
 * A launch allocates at an address that the node returned before; after the launch it may be in
 * use.
 */
static CUdeviceptr told;

EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				       size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	CUresult result = THEN_REGISTER(cuGraphAddMemAllocNode, params->dptr, params->bytesize,
					node, graph, after, count, params);

	if (result == CUDA_SUCCESS)
		told = params->dptr;
	return result;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	return THEN_REGISTER(cuGraphLaunch, told, 1, exec, stream);
}
