/* SPDX-License-Identifier: MIT */
/* A pool of one process, imported by another: the parent allocates, its child reads and frees. */
#define _GNU_SOURCE
#include "app.h"

#include <sys/mman.h>

#define SIZE	  (2u << 20)
#define POOL_FD	  100 /* the child's descriptor of the pool */
#define MEMORY_FD 101 /* and that of the exported memory in it */

static int child(void)
{
	CUdevice device = app_begin();
	CUmemPoolPtrExportData data;
	CUmemoryPool pool = NULL;
	unsigned char byte = 0;
	CUdeviceptr at = 0;

	if (pread(MEMORY_FD, &data, sizeof(data), 0) != sizeof(data))
		return 1;
	PLAIN(cuMemPoolImportFromShareableHandle, &pool, (void *)(intptr_t)POOL_FD,
	      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	WATCHED(at, cuMemPoolImportPointer, &at, pool, &data);
	PLAIN(cuMemcpyDtoH_v2, &byte, at, 1);
	app_say("the parent wrote %d", byte);
	WATCHED(at, cuMemFreeAsync, at, NULL);
	PLAIN(cuStreamSynchronize, NULL);
	WATCHED(0, cuMemPoolDestroy, pool);
	app_end(device);
	return 0;
}

static bool hand_over(int pool_fd, const CUmemPoolPtrExportData *data)
{
	int memory_fd = memfd_create("exported", 0);

	return pool_fd >= 0 && dup2(pool_fd, POOL_FD) == POOL_FD &&
	       dup2(memory_fd, MEMORY_FD) == MEMORY_FD &&
	       pwrite(MEMORY_FD, data, sizeof(*data), 0) == sizeof(*data);
}

int app_poolsharing(int argc, char **argv)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	};
	CUmemPoolPtrExportData data;
	CUmemoryPool pool = NULL;
	CUdeviceptr at = 0;
	CUdevice device;
	int pool_fd = -1;

	if (argc > 1 && strcmp(argv[1], "child") == 0)
		return child();
	device = app_begin();
	PLAIN(cuMemPoolCreate, &pool, &props);
	WATCHED(at, cuMemAllocFromPoolAsync, &at, SIZE, pool, NULL);
	PLAIN(cuStreamSynchronize, NULL);
	PLAIN(cuMemsetD8_v2, at, 43, SIZE);
	PLAIN(cuCtxSynchronize);
	PLAIN(cuMemPoolExportToShareableHandle, &pool_fd, pool,
	      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	PLAIN(cuMemPoolExportPointer, &data, at);
	if (hand_over(pool_fd, &data))
		app_wait(app_spawn("poolsharing", "child"));
	WATCHED(at, cuMemFreeAsync, at, NULL);
	PLAIN(cuStreamSynchronize, NULL);
	WATCHED(0, cuMemPoolDestroy, pool);
	app_end(device);
	return 0;
}
