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

static void wrong(CUdevice device, size_t grain)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	CUdeviceptr at = 0;

	WATCHED(0, cuMemCreate, NULL, grain, &prop, 0);
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
	two_handles(device, grain);
	released_first(device, grain);
	wrong(device, grain);
	app_end(device);
	return 0;
}
