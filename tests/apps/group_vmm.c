/* SPDX-License-Identifier: MIT */
/* Virtual memory management: reserve, create and map, and the calls that end each of these. */
#include "app.h"

static CUmemGenericAllocationHandle create(CUdevice device, size_t size)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	CUmemGenericAllocationHandle handle = 0;

	WATCHED(0, cuMemCreate, &handle, size, &prop, 0);
	return handle;
}

static void let_access(CUdevice device, CUdeviceptr at, size_t size)
{
	CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	WATCHED(at, cuMemSetAccess, at, size, &access, 1);
}

/* Two handles side by side, as PyTorch's expandable segments map them. */
static void two_handles(CUdevice device, size_t grain)
{
	CUmemGenericAllocationHandle first = create(device, grain), second = create(device, grain);
	CUdeviceptr at = 0;

	WATCHED(at, cuMemAddressReserve, &at, 4 * grain, 0, 0, 0);
	WATCHED(at, cuMemMap, at, grain, 0, first, 0);
	WATCHED(at + grain, cuMemMap, at + grain, grain, 0, second, 0);
	let_access(device, at, 2 * grain);
	app_say("%s", app_write_and_read(at, 2 * grain, 10));
	WATCHED(at, cuMemUnmap, at, grain);
	app_say("second half: %s", app_write_and_read(at + grain, grain, 11));
	WATCHED(at, cuMemMap, at, grain, 0, first, 0);
	let_access(device, at, grain);
	WATCHED(at, cuMemUnmap, at, 2 * grain);
	WATCHED(0, cuMemRelease, first);
	WATCHED(0, cuMemRelease, second);
	WATCHED(at, cuMemAddressFree, at, 4 * grain);
}

/* The memory of a released handle lives as long as it is mapped. */
static void released_first(CUdevice device, size_t grain)
{
	CUmemGenericAllocationHandle handle = create(device, grain);
	CUdeviceptr at = 0;

	WATCHED(at, cuMemAddressReserve, &at, grain, 0, 0, 0);
	WATCHED(at, cuMemMap, at, grain, 0, handle, 0);
	let_access(device, at, grain);
	WATCHED(0, cuMemRelease, handle);
	app_say("%s", app_write_and_read(at, grain, 12));
	WATCHED(at, cuMemUnmap, at, grain);
	WATCHED(at, cuMemAddressFree, at, grain);
}

/* Creates, maps and exports memory; prints what became of its properties. */
static void exported(CUdevice device, size_t size, unsigned char compression, unsigned char rdma)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
		.allocFlags = {.compressionType = compression, .gpuDirectRDMACapable = rdma},
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
	let_access(device, at, size);
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
static void exports(CUdevice device, size_t grain)
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
	CUdeviceptr at = 0;
	size_t size = 0;

	WATCHED(0, cuMemCreate, NULL, grain, &prop, 0);
	WATCHED(0, cuMemCreate, &handle, grain, &nowhere, 0);
	WATCHED(0, cuMemGetAllocationGranularity, NULL, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	WATCHED(0, cuMemGetAllocationGranularity, &size, &prop, 77);
	WATCHED(0, cuMemAddressReserve, NULL, grain, 0, 0, 0);
	WATCHED(at, cuMemAddressReserve, &at, grain, 0, 0, 0);
	WATCHED(0, cuMemUnmap, at, grain);
	WATCHED(at, cuMemAddressFree, at, grain);
}

int app_vmm(int argc, char **argv)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUdevice device = app_begin();
	size_t grain = 0;

	(void)argc, (void)argv;
	WATCHED(0, cuMemGetAllocationGranularity, &grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	app_say("granularity %zu", grain);
	two_handles(device, grain);
	released_first(device, grain);
	exports(device, grain);
	wrong(device, grain);
	app_end(device);
	return 0;
}
