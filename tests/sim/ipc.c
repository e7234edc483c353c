/* SPDX-License-Identifier: MIT */
/*
 * Device memory between processes by handle: cuIpcGetMemHandle, cuIpcOpenMemHandle. The handle
 * names the exporter's memory file (/proc/PID/fd/N) and the record in it that describes the memory;
 * the record shows whether the memory is still the same.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bar.h"
#include "contexts.h"
#include "core.h"
#include "overlap.h"
#include "imports.h"
#include "memory.h"

#define HANDLE_MAGIC 0x73696d6970633031ull

struct handle {
	uint64_t magic, inode, record, id;
	int32_t pid, fd;
};
_Static_assert(sizeof(struct handle) <= CU_IPC_HANDLE_SIZE, "a handle has 64 bytes");

/* The memory that this process has opened, and how often. */
struct opened {
	uint64_t inode, id;
	struct sim_alloc *alloc;
	struct opened *next;
};

static struct opened *opened;

SIM_CTX_CALL(cuIpcGetMemHandle, (CUipcMemHandle * out, CUdeviceptr ptr), (out, ptr))
{
	struct sim_alloc *alloc = sim_alloc_at(ptr);
	struct handle handle = {.magic = HANDLE_MAGIC, .pid = getpid()};

	if (!out || !alloc || alloc->kind != SIM_LINEAR)
		return CUDA_ERROR_INVALID_VALUE;
	if (sim_bar_is_there())
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!sim_share(alloc))
		return CUDA_ERROR_OUT_OF_MEMORY;
	handle.fd = sim_store_fd(alloc->block->extent->store, &handle.inode);
	handle.record = alloc->record;
	handle.id = alloc->id;
	memset(out, 0, sizeof(*out));
	memcpy(out->reserved, &handle, sizeof(handle));
	return CUDA_SUCCESS;
}

/* A descriptor of the exporter's memory file, or -1. */
static int open_store(const struct handle *handle)
{
	struct stat stat;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && (fstat(fd, &stat) || stat.st_ino != handle->inode)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static CUresult open_first(const struct handle *handle, struct opened *entry)
{
	struct sim_record record;
	int fd = open_store(handle);
	CUresult result;

	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = CUDA_ERROR_NOT_PERMITTED; /* its memory has been freed */
	if (sim_record_read(fd, handle->record, &record) && record.id == handle->id)
		result = sim_import(fd, &record, SIM_IPC, sim_current()->device, &entry->alloc);
	close(fd);
	return result;
}

static CUresult open_handle(CUdeviceptr *ptr, const CUipcMemHandle *given, unsigned flags)
{
	struct opened *entry;
	struct handle handle;
	CUresult result;

	memcpy(&handle, given->reserved, sizeof(handle));
	if (!ptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || handle.magic != HANDLE_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	if (handle.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT; /* a process can't open its own handles */
	for (entry = opened; entry; entry = entry->next)
		if (entry->inode == handle.inode && entry->id == handle.id &&
		    entry->alloc->context == sim_current()) {
			entry->alloc->opened++;
			*ptr = entry->alloc->addr;
			return CUDA_SUCCESS;
		}
	entry = malloc(sizeof(*entry));
	if (!entry)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = open_first(&handle, entry);
	if (result != CUDA_SUCCESS) {
		free(entry);
		return result;
	}
	entry->inode = handle.inode;
	entry->id = handle.id;
	entry->next = opened;
	opened = entry;
	entry->alloc->opened = 1;
	sim_alloc_to_context(entry->alloc, sim_current());
	*ptr = entry->alloc->addr;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuIpcOpenMemHandle, (CUdeviceptr * ptr, CUipcMemHandle handle, unsigned int flags),
	     (ptr, handle, flags))
{
	return open_handle(ptr, &handle, flags);
}

SIM_CTX_CALL(cuIpcOpenMemHandle_v2, (CUdeviceptr * ptr, CUipcMemHandle handle, unsigned int flags),
	     (ptr, handle, flags))
{
	return open_handle(ptr, &handle, flags);
}

void sim_ipc_free(struct sim_alloc *alloc)
{
	struct opened **at = &opened, *entry;

	while ((*at)->alloc != alloc)
		at = &(*at)->next;
	entry = *at;
	*at = entry->next;
	free(entry);
	sim_free_whole(alloc);
}

SIM_TOUCHING(cuIpcCloseMemHandle, SIM_NEEDS_CONTEXT, (CUdeviceptr ptr), (ptr), SIM_ENDS(ptr, 0))
{
	struct sim_alloc *alloc = sim_alloc_at(ptr);

	if (!alloc || alloc->kind != SIM_IPC || alloc->addr != ptr)
		return CUDA_ERROR_INVALID_VALUE;
	if (--alloc->opened == 0)
		sim_ipc_free(alloc);
	return CUDA_SUCCESS;
}
