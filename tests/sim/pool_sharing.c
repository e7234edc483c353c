/* SPDX-License-Identifier: MIT */
/* Pools between processes: a pool is shared by descriptor, each pointer by a blob of 64 bytes. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bar.h"
#include "contexts.h"
#include "core.h"
#include "handles.h"
#include "imports.h"
#include "pools.h"

struct pointer {
	uint64_t magic, record, id;
};
_Static_assert(sizeof(struct pointer) <= sizeof(CUmemPoolPtrExportData), "it has 64 bytes");

/* A descriptor of the memory file; its position is that of the pool's record. */
static CUresult share_pool(struct sim_pool *pool, int *fd)
{
	struct sim_record record = {
		.id = sim_next_id(), .kind = SIM_RECORD_POOL, .device = pool->heap.device};
	struct sim_store *store = sim_store_of(pool->heap.device);
	uint64_t at = sim_record_write(store, &record), inode;
	char path[64];

	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", sim_store_fd(store, &inode));
	*fd = open(path, O_RDWR | O_CLOEXEC);
	if (*fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (lseek(*fd, (off_t)at, SEEK_SET) < 0) {
		close(*fd);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	return CUDA_SUCCESS;
}

SIM_CALL(cuMemPoolExportToShareableHandle,
	 (void *out, CUmemoryPool handle, CUmemAllocationHandleType type, unsigned long long flags),
	 (out, handle, type, flags))
{
	struct sim_pool *pool = sim_pool_of(handle);

	if (!out || !pool || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    pool->handle_types != type || pool->imported)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_bar_is_there())
		return CUDA_ERROR_NOT_SUPPORTED;
	return share_pool(pool, out);
}

SIM_CALL(cuMemPoolImportFromShareableHandle,
	 (CUmemoryPool * out, void *given, CUmemAllocationHandleType type,
	  unsigned long long flags),
	 (out, given, type, flags))
{
	int fd = (int)(intptr_t)given;
	off_t at = lseek(fd, 0, SEEK_CUR);
	struct sim_record record;
	struct sim_pool *pool;

	if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || at < 0 ||
	    !sim_record_read(fd, at, &record) || record.kind != SIM_RECORD_POOL ||
	    !sim_device_known(record.device))
		return CUDA_ERROR_INVALID_VALUE;
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* the program keeps its own */
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	pool = sim_pool_new(record.device);
	if (!pool) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pool->imported = 1 + fd;
	*out = (CUmemoryPool)pool;
	return CUDA_SUCCESS;
}

SIM_CALL(cuMemPoolExportPointer, (CUmemPoolPtrExportData * data, CUdeviceptr ptr), (data, ptr))
{
	struct sim_alloc *alloc = sim_alloc_at(ptr);
	struct pointer pointer = {.magic = SIM_RECORD_MAGIC};

	if (!data || !alloc || alloc->kind != SIM_POOL ||
	    alloc->pool->handle_types != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_share(alloc))
		return CUDA_ERROR_OUT_OF_MEMORY;
	pointer.record = alloc->record;
	pointer.id = alloc->id;
	memset(data, 0, sizeof(*data));
	memcpy(data, &pointer, sizeof(pointer));
	return CUDA_SUCCESS;
}

SIM_CALL(cuMemPoolImportPointer,
	 (CUdeviceptr * out, CUmemoryPool handle, CUmemPoolPtrExportData *data),
	 (out, handle, data))
{
	struct sim_pool *pool = sim_pool_of(handle);
	struct sim_record record;
	struct pointer pointer;
	struct sim_alloc *alloc;
	CUresult result;

	if (!out || !pool || !pool->imported || !data)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&pointer, data, sizeof(pointer));
	if (pointer.magic != SIM_RECORD_MAGIC ||
	    !sim_record_read(pool->imported - 1, pointer.record, &record) ||
	    record.id != pointer.id)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_import(pool->imported - 1, &record, SIM_POOL_IMPORT, record.device, &alloc);
	if (result != CUDA_SUCCESS)
		return result;
	alloc->pool = pool;
	pool->live++;
	*out = alloc->addr;
	return CUDA_SUCCESS;
}
