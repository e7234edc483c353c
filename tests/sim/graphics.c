/* SPDX-License-Identifier: MIT */
/*
 * Graphics resources. There is no graphics here: cuGraphicsGLRegisterBuffer accepts any buffer
 * number and makes a buffer of that number times 1 MiB + 64 KiB.
 */
#include <stdlib.h>

#include "contexts.h"
#include "core.h"
#include "handles.h"
#include "graphics.h"
#include "streams.h"

struct sim_resource *sim_resource_new(uint64_t size)
{
	struct sim_resource *resource = sim_handle_new(SIM_GRAPHICS_RESOURCE, sizeof(*resource));

	if (!resource)
		return NULL;
	resource->device = sim_current()->device;
	resource->size = size;
	resource->extent =
		sim_extent_take(resource->device, (size + SIM_PAGE - 1) & ~(SIM_PAGE - 1));
	if (resource->extent)
		return resource;
	sim_handle_delete(resource);
	return NULL;
}

void sim_resource_delete(struct sim_resource *resource)
{
	if (resource->next_plane)
		sim_resource_delete(resource->next_plane);
	if (resource->mapped)
		sim_resource_unmap(resource);
	sim_extent_drop(resource->extent);
	sim_handle_delete(resource);
}

void sim_resource_unmap(struct sim_resource *resource)
{
	sim_free_whole(resource->mapped);
	resource->mapped = NULL;
}

CUresult sim_resource_map(struct sim_resource *resource)
{
	uint64_t span = resource->extent->size;
	uint64_t base = sim_addresses_take(span, 0);

	if (base)
		resource->mapped = sim_alloc_whole(SIM_GRAPHICS, resource->size, resource->device,
						   resource->extent, base);
	if (!resource->mapped) {
		if (base)
			sim_addresses_drop(base, span);
		return CUDA_ERROR_MAP_FAILED;
	}
	sim_extent_hold(resource->extent);
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuGraphicsGLRegisterBuffer,
	     (CUgraphicsResource * handle, unsigned int buffer, unsigned int flags),
	     (handle, buffer, flags))
{
	struct sim_resource *resource;

	if (!handle || !buffer || buffer > SIM_GL_BUFFERS || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	resource = sim_resource_new(sim_gl_buffer_bytes(buffer));
	if (!resource)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle = (CUgraphicsResource)resource;
	return CUDA_SUCCESS;
}

/* Maps all of them or none. */
static CUresult check_all(unsigned count, CUgraphicsResource *handles, CUstream stream,
			  bool per_thread, bool mapped)
{
	unsigned i;

	if (!sim_stream_of(stream, per_thread))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!count || !handles)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < count; i++) {
		struct sim_resource *resource = sim_resource_of(handles[i]);

		if (!resource || resource->frame)
			return CUDA_ERROR_INVALID_HANDLE;
		if (mapped && !resource->mapped)
			return CUDA_ERROR_NOT_MAPPED;
		if (!mapped && resource->mapped)
			return CUDA_ERROR_ALREADY_MAPPED;
	}
	return CUDA_SUCCESS;
}

static CUresult map_all(unsigned count, CUgraphicsResource *handles, CUstream stream,
			bool per_thread)
{
	CUresult result = check_all(count, handles, stream, per_thread, false);
	unsigned i;

	for (i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = sim_resource_map(sim_resource_of(handles[i]));
	return result;
}

static CUresult unmap_all(unsigned count, CUgraphicsResource *handles, CUstream stream,
			  bool per_thread)
{
	CUresult result = check_all(count, handles, stream, per_thread, true);
	unsigned i;

	for (i = 0; i < count && result == CUDA_SUCCESS; i++)
		sim_resource_unmap(sim_resource_of(handles[i]));
	return result;
}

SIM_CTX_CALL(cuGraphicsMapResources,
	     (unsigned int count, CUgraphicsResource *resources, CUstream stream),
	     (count, resources, stream))
{
	return map_all(count, resources, stream, false);
}

SIM_CTX_CALL(cuGraphicsMapResources_ptsz,
	     (unsigned int count, CUgraphicsResource *resources, CUstream stream),
	     (count, resources, stream))
{
	return map_all(count, resources, stream, true);
}

SIM_CTX_CALL(cuGraphicsUnmapResources,
	     (unsigned int count, CUgraphicsResource *resources, CUstream stream),
	     (count, resources, stream))
{
	return unmap_all(count, resources, stream, false);
}

SIM_CTX_CALL(cuGraphicsUnmapResources_ptsz,
	     (unsigned int count, CUgraphicsResource *resources, CUstream stream),
	     (count, resources, stream))
{
	return unmap_all(count, resources, stream, true);
}

static CUresult mapped_pointer(CUgraphicsResource handle, uint64_t *ptr, uint64_t *size)
{
	struct sim_resource *resource = sim_resource_of(handle);

	if (!resource)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!resource->mapped)
		return CUDA_ERROR_NOT_MAPPED;
	*ptr = resource->mapped->addr;
	*size = resource->size;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuGraphicsResourceGetMappedPointer_v2,
	     (CUdeviceptr * ptr, size_t *size, CUgraphicsResource resource), (ptr, size, resource))
{
	uint64_t addr, bytes;
	CUresult result = mapped_pointer(resource, &addr, &bytes);

	if (result == CUDA_SUCCESS && ptr)
		*ptr = addr;
	if (result == CUDA_SUCCESS && size)
		*size = bytes;
	return result;
}

/* 32 bits can't hold an address above 4 GiB. */
SIM_CTX_CALL(cuGraphicsResourceGetMappedPointer,
	     (CUdeviceptr_v1 * ptr, unsigned int *size, CUgraphicsResource resource),
	     (ptr, size, resource))
{
	uint64_t addr, bytes;
	CUresult result = mapped_pointer(resource, &addr, &bytes);

	if (result == CUDA_SUCCESS && addr > UINT32_MAX)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (result == CUDA_SUCCESS && ptr)
		*ptr = (CUdeviceptr_v1)addr;
	if (result == CUDA_SUCCESS && size)
		*size = (unsigned)bytes;
	return result;
}

SIM_CALL(cuGraphicsUnregisterResource, (CUgraphicsResource handle), (handle))
{
	struct sim_resource *resource = sim_resource_of(handle);

	if (!resource)
		return CUDA_ERROR_INVALID_HANDLE;
	sim_resource_delete(resource);
	return CUDA_SUCCESS;
}
