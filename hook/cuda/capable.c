/* SPDX-License-Identifier: MIT */
/*
 * PINDOWN_RDMA_CAPABLE: asks the driver for memory that can be registered, where the program has
 * not asked for it. Some devices export or pin memory of cuMemCreate only if it was created so.
 */
#include <errno.h>

#include "cache/driver/driver.h"
#include "hook/hook.h"

/*
 * Only device memory is registered by its device address. Compression stays as the program wants
 * it: the driver may not compress memory that a card reads.
 */
static bool can_be_capable(const CUmemAllocationProp *prop)
{
	return prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
	       prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       !prop->allocFlags.compressionType && !prop->allocFlags.gpuDirectRDMACapable &&
	       pdn_driver_device_attribute(
		       CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
		       prop->location.id) > 0;
}

const CUmemAllocationProp *pdn_capable(struct call *call, const CUmemAllocationProp *prop)
{
	call->error = errno;
	if (can_be_capable(prop)) {
		call->asked = prop;
		call->changed = *prop;
		call->changed.allocFlags.gpuDirectRDMACapable = 1;
		prop = &call->changed;
	}
	errno = call->error;
	return prop;
}
