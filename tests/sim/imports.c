/* SPDX-License-Identifier: MIT */
/* The common parts of the ways to share memory between processes; and shareable handles. */
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bar.h"
#include "contexts.h"
#include "core.h"
#include "handles.h"
#include "imports.h"
#include "memory.h"
#include "physical.h"

bool sim_share(struct sim_alloc *alloc)
{
	struct sim_block *block = alloc->block;
	struct sim_record record = {
		.id = alloc->id,
		.kind = SIM_RECORD_MEMORY,
		.offset = block->extent->offset + block->extent_offset,
		.size = block->size,
		.inner = alloc->addr - block->base,
		.length = alloc->size,
		.device = alloc->device,
	};

	if (!alloc->record)
		alloc->record = sim_record_write(block->extent->store, &record);
	block->extent->exported = true; /* from now on another process may hold it */
	return alloc->record != 0;
}

CUresult sim_import(int fd, const struct sim_record *record, enum sim_kind kind, int device,
		    struct sim_alloc **alloc)
{
	CUresult why;
	struct sim_extent *extent = sim_extent_import(fd, record->offset, record->size, &why);
	uint64_t base;

	if (!extent)
		return why;
	base = sim_addresses_take(record->size, 0);
	*alloc = base ? sim_alloc_whole(kind, record->size, device, extent, base) : NULL;
	if (!*alloc) {
		if (base)
			sim_addresses_drop(base, record->size);
		sim_extent_drop(extent);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	(*alloc)->addr = base + record->inner;
	(*alloc)->size = record->length;
	return CUDA_SUCCESS;
}

/* ---- handles of cuMemCreate ----------------------------------------------------------------- */

/* The descriptor keeps the memory; its position is that of the record. */
static CUresult share_physical(struct sim_physical *physical, int *fd)
{
	struct sim_extent *extent = physical->extent;
	struct sim_record record = {
		.id = sim_next_id(),
		.kind = SIM_RECORD_PHYSICAL,
		.offset = extent->offset,
		.size = extent->size,
		.flags = physical->prop.requestedHandleTypes,
		.device = physical->device,
	};

	if (!physical->record)
		physical->record = sim_record_write(extent->store, &record);
	if (!physical->record)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*fd = sim_store_export(extent, extent->offset, extent->size, false);
	if (*fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (lseek(*fd, (off_t)physical->record, SEEK_SET) < 0) {
		close(*fd);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	return CUDA_SUCCESS;
}

SIM_CALL(cuMemExportToShareableHandle,
	 (void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
	  unsigned long long flags),
	 (out, handle, type, flags))
{
	struct sim_physical *physical = sim_physical_of(handle);

	if (!out || !physical || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !(physical->prop.requestedHandleTypes & type))
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_bar_is_there())
		return CUDA_ERROR_NOT_SUPPORTED;
	return share_physical(physical, out);
}

/* The memory of a descriptor that this process has exported. */
static struct sim_physical *own_physical(int fd, uint64_t record)
{
	unsigned long position = 0;
	struct sim_physical *physical;
	struct stat stat;
	uint64_t inode;

	if (fstat(fd, &stat))
		return NULL;
	while ((physical = sim_handle_next(SIM_PHYSICAL, &position))) {
		sim_store_fd(physical->extent->store, &inode);
		if (physical->record == record && inode == stat.st_ino)
			return physical;
	}
	return NULL;
}

static CUresult import_physical(int fd, const struct sim_record *record,
				struct sim_physical **physical)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = record->flags,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = record->device},
	};
	CUresult why;
	struct sim_extent *extent = sim_extent_import(fd, record->offset, record->size, &why);

	if (!extent)
		return why;
	*physical = sim_physical_new(extent, &prop);
	if (!*physical) {
		sim_extent_drop(extent);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

/* Another handle of memory that this process has already. */
static CUresult again(struct sim_physical *physical, struct sim_physical **other)
{
	*other = sim_physical_new(physical->extent, &physical->prop);
	if (!*other)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sim_extent_hold(physical->extent);
	return CUDA_SUCCESS;
}

SIM_CALL(cuMemImportFromShareableHandle,
	 (CUmemGenericAllocationHandle * handle, void *given, CUmemAllocationHandleType type),
	 (handle, given, type))
{
	int fd = (int)(intptr_t)given;
	off_t at = lseek(fd, 0, SEEK_CUR);
	struct sim_physical *physical;
	struct sim_record record;
	CUresult result;

	if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || at < 0 ||
	    !sim_record_read(fd, at, &record) || record.kind != SIM_RECORD_PHYSICAL)
		return CUDA_ERROR_INVALID_VALUE;
	physical = own_physical(fd, at);
	result = physical ? again(physical, &physical) : import_physical(fd, &record, &physical);
	if (result != CUDA_SUCCESS)
		return result;
	*handle = (CUmemGenericAllocationHandle)physical;
	return CUDA_SUCCESS;
}
