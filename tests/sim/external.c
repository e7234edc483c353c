/* SPDX-License-Identifier: MIT */
/* Memory of other interfaces: any descriptor that can be mapped plays this part. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contexts.h"
#include "core.h"
#include "handles.h"
#include "memory.h"

struct external {
	struct sim_extent *extent;
	uint64_t size;
};

static struct external *external_of(CUexternalMemory handle)
{
	return sim_handle(handle, SIM_EXTERNAL_MEMORY);
}

static bool big_enough(int fd, uint64_t offset, uint64_t size)
{
	struct stat stat;

	return fstat(fd, &stat) == 0 && stat.st_size >= 0 && offset + size >= offset &&
	       (uint64_t)stat.st_size >= offset + size;
}

SIM_CALL(cuImportExternalMemory,
	 (CUexternalMemory * handle, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc), (handle, desc))
{
	struct external *external;
	CUresult why;
	off_t offset;

	if (!handle || !desc || !desc->size ||
	    (desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD &&
	     desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD))
		return CUDA_ERROR_INVALID_VALUE;
	/* A simulated dma-buf begins at its file position; any other file at its start. */
	offset = desc->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD
			 ? lseek(desc->handle.fd, 0, SEEK_CUR)
			 : 0;
	if (offset < 0 || !big_enough(desc->handle.fd, offset, desc->size))
		return CUDA_ERROR_INVALID_VALUE;
	external = sim_handle_new(SIM_EXTERNAL_MEMORY, sizeof(*external));
	if (!external)
		return CUDA_ERROR_OUT_OF_MEMORY;
	external->extent = sim_extent_import(desc->handle.fd, offset, desc->size, &why);
	if (!external->extent) {
		sim_handle_delete(external);
		return why;
	}
	external->size = desc->size;
	if (desc->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
		close(desc->handle.fd); /* the driver owns an imported descriptor */
	*handle = (CUexternalMemory)external;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuExternalMemoryGetMappedBuffer,
	     (CUdeviceptr * ptr, CUexternalMemory handle,
	      const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc),
	     (ptr, handle, desc))
{
	struct external *external = external_of(handle);
	struct sim_alloc *alloc = NULL;
	uint64_t span, base;

	if (!external)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!ptr || !desc || desc->flags || !desc->size || desc->size > external->size ||
	    desc->offset > external->size - desc->size)
		return CUDA_ERROR_INVALID_VALUE;
	span = (desc->size + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
	base = sim_addresses_take(span, 0);
	if (base)
		alloc = sim_alloc_whole(SIM_EXTERNAL, desc->size, sim_current()->device,
					external->extent, base);
	if (!alloc) {
		if (base)
			sim_addresses_drop(base, span);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	sim_extent_hold(external->extent);
	alloc->block->extent_offset = desc->offset;
	sim_alloc_to_context(alloc, sim_current());
	*ptr = alloc->addr;
	return CUDA_SUCCESS;
}

/* Mapped buffers stay until they are freed, and keep the memory. */
SIM_CALL(cuDestroyExternalMemory, (CUexternalMemory handle), (handle))
{
	struct external *external = external_of(handle);

	if (!external)
		return CUDA_ERROR_INVALID_HANDLE;
	sim_extent_drop(external->extent);
	sim_handle_delete(external);
	return CUDA_SUCCESS;
}
