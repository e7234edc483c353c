/* SPDX-License-Identifier: MIT */
/* The devices: their number and their attributes. Their names say that they are simulated. */
#include <stdio.h>
#include <string.h>

#include "bar.h"
#include "contexts.h"
#include "core.h"
#include "memory.h"

bool sim_device_in_range(CUdevice device)
{
	return device >= 0 && device < (int)sim_options.devices;
}

SIM_CALL(cuDeviceGetCount, (int *count), (count))
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = (int)sim_options.devices;
	return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal))
{
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetName, (char *name, int length, CUdevice device), (name, length, device))
{
	if (!name || length < 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, length, "pindown simulated GPU %d", device);
	return CUDA_SUCCESS;
}

static CUresult uuid_of(CUuuid *uuid, CUdevice device)
{
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	memcpy(uuid->bytes, "simulated GPU 00", 16);
	uuid->bytes[14] = '0' + device / 10;
	uuid->bytes[15] = '0' + device % 10;
	return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetUuid, (CUuuid * uuid, CUdevice device), (uuid, device))
{
	return uuid_of(uuid, device);
}

SIM_CALL(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device), (uuid, device))
{
	return uuid_of(uuid, device);
}

SIM_CALL(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device), (bytes, device))
{
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = sim_options.memory;
	return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceTotalMem, (unsigned int *bytes, CUdevice device), (bytes, device))
{
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = sim_options.memory > UINT32_MAX ? UINT32_MAX : sim_options.memory;
	return CUDA_SUCCESS;
}

static int attribute_of(CUdevice_attribute attribute, int device)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		return 1024;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		return 32;
	case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
		return INT32_MAX;
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
		return 1000000;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return 9;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		return device + 1;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
		return 1;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
		return 100;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return 4;
	case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
		return sim_bar_is_there() ? 0 : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
		return !sim_bar_is_there();
	case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
		return sim_options.coherent;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
		return sim_options.rdma && sim_options.rdma_flag != SIM_RDMA_FLAG_UNKNOWN;
	case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
		return sim_options.dma_buf;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
		return sim_options.rdma;
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
		return 1;
	default: /* not an integrated device, no compute mode, PCI domain 0, ... */
		return 0;
	}
}

/* The last attribute that drivers of this CUDA version know. */
static int last_attribute(void)
{
	if (sim_options.driver_version < 11060)
		return CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES;
	if (sim_options.driver_version < 12010)
		return 129;
	if (sim_options.driver_version < 12050)
		return 134;
	return sim_options.driver_version < 13000 ? 143 : CU_DEVICE_ATTRIBUTE_LAST;
}

SIM_CALL(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device),
	 (value, attribute, device))
{
	if (!value || (int)attribute < 1 || (int)attribute > last_attribute())
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*value = attribute_of(attribute, device);
	return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceComputeCapability, (int *major, int *minor, CUdevice device),
	 (major, minor, device))
{
	if (!major || !minor)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*major = 9;
	*minor = 0;
	return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetPCIBusId, (char *text, int length, CUdevice device), (text, length, device))
{
	if (!text || length < 13)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(text, length, "0000:%02X:00.0", device + 1);
	return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetByPCIBusId, (CUdevice * device, const char *text), (device, text))
{
	unsigned domain, bus;

	if (!device || !text)
		return CUDA_ERROR_INVALID_VALUE;
	if (sscanf(text, "%x:%x:", &domain, &bus) != 2 || domain || !bus ||
	    !sim_device_known((int)bus - 1))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = (int)bus - 1;
	return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer), (can, device, peer))
{
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_device_known(device) || !sim_device_known(peer))
		return CUDA_ERROR_INVALID_DEVICE;
	*can = device != peer;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuCtxEnablePeerAccess, (CUcontext peer, unsigned int flags), (peer, flags))
{
	struct sim_context *context = sim_context_of(peer);

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context || context == sim_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	return CUDA_SUCCESS; /* every device can always reach the memory of every other one */
}

SIM_CTX_CALL(cuCtxDisablePeerAccess, (CUcontext peer), (peer))
{
	return sim_context_of(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
