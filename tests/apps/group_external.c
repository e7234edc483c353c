/* SPDX-License-Identifier: MIT */
/* External memory: exported by VMM as a descriptor, imported, mapped, destroyed. */
#include "app.h"

static CUmemGenericAllocationHandle export(CUdevice device, size_t size, int *fd)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	CUmemGenericAllocationHandle handle = 0;

	*fd = -1;
	WATCHED(0, cuMemCreate, &handle, size, &prop, 0);
	PLAIN(cuMemExportToShareableHandle, fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	      0);
	app_say("descriptor: %s", *fd >= 0 ? "yes" : "no");
	return handle;
}

static void imported_by_vmm(CUdevice device, size_t size)
{
	CUmemGenericAllocationHandle other = 0, handle;
	int fd;

	handle = export(device, size, &fd);
	WATCHED(0, cuMemImportFromShareableHandle, &other, (void *)(intptr_t)fd,
		CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (other != 0)
		WATCHED(0, cuMemRelease, other);
	WATCHED(0, cuMemRelease, handle);
	if (fd >= 0)
		close(fd);
}

static void imported_as_external(CUdevice device, size_t size)
{
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC whole = {.size = size};
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {
		.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
		.size = size,
	};
	CUmemGenericAllocationHandle handle;
	CUexternalMemory memory = NULL;
	CUdeviceptr at = 0;
	int fd;

	handle = export(device, size, &fd);
	desc.handle.fd = fd;
	if (WATCHED(0, cuImportExternalMemory, &memory, &desc) == 0) {
		if (WATCHED(at, cuExternalMemoryGetMappedBuffer, &at, memory, &whole) == 0) {
			app_say("%s", app_write_and_read(at, 4096, 19));
			WATCHED(at, cuMemFree_v2, at);
		}
		WATCHED(0, cuDestroyExternalMemory, memory);
	} else if (fd >= 0) {
		close(fd);
	}
	WATCHED(0, cuMemRelease, handle);
}

int app_external(int argc, char **argv)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC nothing = {
		.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
		.handle = {.fd = -1},
		.size = 4096,
	};
	CUdevice device = app_begin();
	CUexternalMemory memory = NULL;

	(void)argc, (void)argv;
	imported_by_vmm(device, 2u << 20);
	imported_as_external(device, 2u << 20);
	WATCHED(0, cuImportExternalMemory, &memory, &nothing);
	WATCHED(0, cuImportExternalMemory, NULL, &nothing);
	app_end(device);
	return 0;
}
