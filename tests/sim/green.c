/* SPDX-License-Identifier: MIT */
/*
 * Green contexts: a share of a device's multiprocessors, and a context on it. Memory that is
 * allocated there belongs to the primary context.
 */
#include <string.h>

#include "contexts.h"
#include "core.h"
#include "handles.h"

#define PROCESSORS 4

struct sim_green {
	struct sim_context *context;
	int device;
};

struct description {
	unsigned processors;
};

SIM_CALL(cuDeviceGetDevResource, (CUdevice device, CUdevResource *resource, CUdevResourceType type),
	 (device, resource, type))
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!resource || type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_VALUE;
	memset(resource, 0, sizeof(*resource));
	resource->type = CU_DEV_RESOURCE_TYPE_SM;
	resource->sm.smCount = PROCESSORS;
	return CUDA_SUCCESS;
}

SIM_CALL(cuDevResourceGenerateDesc,
	 (CUdevResourceDesc * handle, CUdevResource *resources, unsigned int count),
	 (handle, resources, count))
{
	struct description *description;

	if (!handle || !resources || count != 1 || resources->type != CU_DEV_RESOURCE_TYPE_SM ||
	    !resources->sm.smCount || resources->sm.smCount > PROCESSORS)
		return CUDA_ERROR_INVALID_VALUE;
	description = sim_handle_new(SIM_RESOURCE_DESC, sizeof(*description));
	if (!description)
		return CUDA_ERROR_OUT_OF_MEMORY;
	description->processors = resources->sm.smCount;
	*handle = (CUdevResourceDesc)description;
	return CUDA_SUCCESS;
}

SIM_CALL(cuGreenCtxCreate,
	 (CUgreenCtx * handle, CUdevResourceDesc description, CUdevice device, unsigned int flags),
	 (handle, description, device, flags))
{
	struct sim_green *green;
	CUresult result;

	if (!handle || !sim_handle(description, SIM_RESOURCE_DESC) ||
	    flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	green = sim_handle_new(SIM_GREEN, sizeof(*green));
	if (!green)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = sim_context_new(device, 0, 3020, &green->context);
	if (result != CUDA_SUCCESS) {
		sim_handle_delete(green);
		return result;
	}
	if (!sim_primary_retain(device)) {
		sim_context_destroy(green->context);
		sim_handle_delete(green);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	green->device = device;
	green->context->green = green;
	*handle = (CUgreenCtx)green;
	return CUDA_SUCCESS;
}

SIM_CALL(cuCtxFromGreenCtx, (CUcontext * context, CUgreenCtx handle), (context, handle))
{
	struct sim_green *green = sim_handle(handle, SIM_GREEN);

	if (!context || !green)
		return CUDA_ERROR_INVALID_VALUE;
	*context = (CUcontext)green->context;
	return CUDA_SUCCESS;
}

SIM_CALL(cuGreenCtxDestroy, (CUgreenCtx handle), (handle))
{
	struct sim_green *green = sim_handle(handle, SIM_GREEN);

	if (!green)
		return CUDA_ERROR_INVALID_VALUE;
	sim_context_destroy(green->context);
	sim_primary_release(green->device);
	sim_handle_delete(green);
	return CUDA_SUCCESS;
}
