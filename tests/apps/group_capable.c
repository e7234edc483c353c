/* SPDX-License-Identifier: MIT */
/*
 * The properties of memory that is created, and what becomes of them: whether it can be exported.
 */
#include "app.h"

/* Creates, maps and exports memory; prints what became of its properties. */
static void exported(CUdevice device, size_t size, unsigned char compression, unsigned char rdma)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
		.allocFlags = {.compressionType = compression, .gpuDirectRDMACapable = rdma},
	};
	const CUmemAccessDesc access = {
		.location = prop.location,
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUmemAllocationProp given = prop;
	CUmemGenericAllocationHandle handle = 0;
	CUdeviceptr at = 0;
	int capable = -1, fd = -1;

	app_say("size %zu, compression %d, RDMA %d", size, compression, rdma);
	if (WATCHED(0, cuMemCreate, &handle, size, &given, 0) != CUDA_SUCCESS)
		return;
	app_say("properties %s", memcmp(&given, &prop, sizeof(prop)) ? "changed" : "as they were");
	WATCHED(at, cuMemAddressReserve, &at, size, 0, 0, 0);
	WATCHED(at, cuMemMap, at, size, 0, handle, 0);
	WATCHED(at, cuMemSetAccess, at, size, &access, 1);
	PLAIN(cuPointerGetAttribute, &capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, at);
	app_say("capable: %d", capable);
	PLAIN(cuMemGetHandleForAddressRange, &fd, at, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	if (fd >= 0)
		close(fd);
	WATCHED(at, cuMemUnmap, at, size);
	WATCHED(0, cuMemRelease, handle);
	WATCHED(at, cuMemAddressFree, at, size);
}

/* Some programs, such as PyTorch, never ask for the granularity: 2 MiB. */
static void all_exports(CUdevice device, size_t grain)
{
	exported(device, grain, 0, 0);
	exported(device, 2 << 20, 0, 0);
	exported(device, 2 << 20, 1, 0);
	exported(device, grain, 0, 1);
	exported(device, 1ull << 50, 0, 0); /* more memory than any device has */
}

static void wrong(CUdevice device, size_t grain)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	CUmemAllocationProp nowhere = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUmemGenericAllocationHandle handle = 0;
	size_t size = 0;

	WATCHED(0, cuMemCreate, NULL, grain, &prop, 0);
	WATCHED(0, cuMemCreate, &handle, grain, &nowhere, 0);
	WATCHED(0, cuMemGetAllocationGranularity, NULL, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	WATCHED(0, cuMemGetAllocationGranularity, &size, &prop, 77);
}

int app_capable(int argc, char **argv)
{
	CUdevice device = app_begin();
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	size_t grain = 0;

	(void)argc, (void)argv;
	WATCHED(0, cuMemGetAllocationGranularity, &grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	app_say("granularity %zu", grain);
	all_exports(device, grain);
	wrong(device, grain);
	app_end(device);
	return 0;
}
