/* SPDX-License-Identifier: MIT */
/* Calls that programs make and that hardly change anything that is simulated. */
#include <string.h>

#include "contexts.h"
#include "core.h"
#include "handles.h"
#include "memory.h"
#include "streams.h"
#include "work.h"

SIM_CALL(cuProfilerStart, (void), ())
{
	return CUDA_SUCCESS;
}

SIM_CALL(cuProfilerStop, (void), ())
{
	return CUDA_SUCCESS;
}

/* ---- limits and preferences of a context ---------------------------------------------------- */

#define LIMITS 8
static size_t limits[LIMITS] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0, 0};

SIM_CTX_CALL(cuCtxGetLimit, (size_t * value, int limit), (value, limit))
{
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (limit < 0 || limit >= LIMITS)
		return CUDA_ERROR_NOT_SUPPORTED;
	*value = limits[limit];
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuCtxSetLimit, (int limit, size_t value), (limit, value))
{
	if (limit < 0 || limit >= LIMITS)
		return CUDA_ERROR_NOT_SUPPORTED;
	limits[limit] = value;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuCtxGetCacheConfig, (int *config), (config))
{
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config = 0;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuCtxSetCacheConfig, (int config), (config))
{
	return config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_CTX_CALL(cuFlushGPUDirectRDMAWrites, (int target, int scope), (target, scope))
{
	return target || (scope != 100 && scope != 200) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* ---- managed memory: it is where it is ------------------------------------------------------ */

static CUresult check_managed(CUdeviceptr ptr, size_t size)
{
	struct sim_alloc *alloc = sim_alloc_at(ptr);

	if (!size || !alloc || alloc->kind != SIM_MANAGED || size > alloc->addr + alloc->size - ptr)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult prefetch(CUdeviceptr ptr, size_t size, int device, CUstream stream, bool per_thread)
{
	if (device != CU_DEVICE_CPU && !sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!sim_stream_of(stream, per_thread))
		return CUDA_ERROR_INVALID_HANDLE;
	return check_managed(ptr, size);
}

SIM_CTX_CALL(cuMemPrefetchAsync, (CUdeviceptr ptr, size_t size, CUdevice device, CUstream stream),
	     (ptr, size, device, stream))
{
	return prefetch(ptr, size, device, stream, false);
}

SIM_CTX_CALL(cuMemPrefetchAsync_ptsz,
	     (CUdeviceptr ptr, size_t size, CUdevice device, CUstream stream),
	     (ptr, size, device, stream))
{
	return prefetch(ptr, size, device, stream, true);
}

static CUresult prefetch_to(CUdeviceptr ptr, size_t size, CUmemLocation location, unsigned flags,
			    CUstream stream, bool per_thread)
{
	if (flags || location.type == CU_MEM_LOCATION_TYPE_INVALID)
		return CUDA_ERROR_INVALID_VALUE;
	return prefetch(ptr, size,
			location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU,
			stream, per_thread);
}

SIM_CTX_CALL(cuMemPrefetchAsync_v2,
	     (CUdeviceptr ptr, size_t size, CUmemLocation location, unsigned int flags,
	      CUstream stream),
	     (ptr, size, location, flags, stream))
{
	return prefetch_to(ptr, size, location, flags, stream, false);
}

SIM_CTX_CALL(cuMemPrefetchAsync_v2_ptsz,
	     (CUdeviceptr ptr, size_t size, CUmemLocation location, unsigned int flags,
	      CUstream stream),
	     (ptr, size, location, flags, stream))
{
	return prefetch_to(ptr, size, location, flags, stream, true);
}

SIM_CTX_CALL(cuMemAdvise, (CUdeviceptr ptr, size_t size, int advice, CUdevice device),
	     (ptr, size, advice, device))
{
	(void)device;
	return advice < 1 || advice > 6 ? CUDA_ERROR_INVALID_VALUE : check_managed(ptr, size);
}

static CUresult attach(CUstream stream, bool per_thread, CUdeviceptr ptr, unsigned flags)
{
	struct sim_alloc *alloc = sim_alloc_at(ptr);

	if (!sim_stream_of(stream, per_thread))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!alloc || alloc->kind != SIM_MANAGED || !flags || flags > CU_MEM_ATTACH_SINGLE)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuStreamAttachMemAsync,
	     (CUstream stream, CUdeviceptr ptr, size_t size, unsigned int flags),
	     (stream, ptr, size, flags))
{
	(void)size;
	return attach(stream, false, ptr, flags);
}

SIM_CTX_CALL(cuStreamAttachMemAsync_ptsz,
	     (CUstream stream, CUdeviceptr ptr, size_t size, unsigned int flags),
	     (stream, ptr, size, flags))
{
	(void)size;
	return attach(stream, true, ptr, flags);
}

/* ---- memory operations in a stream ---------------------------------------------------------- */

static CUresult write_value(CUstream stream, bool per_thread, CUdeviceptr addr, uint64_t value,
			    unsigned bytes)
{
	struct sim_work work = {.type = CU_GRAPH_NODE_TYPE_MEMSET,
				.fill = {.dst = addr,
					 .value = (uint32_t)value,
					 .element = 4,
					 .width = 1,
					 .height = 1}};
	CUresult result =
		addr % bytes ? CUDA_ERROR_INVALID_VALUE : sim_submit(stream, per_thread, &work);

	if (result != CUDA_SUCCESS || bytes == 4)
		return result;
	work.fill.dst += 4;
	work.fill.value = (uint32_t)(value >> 32);
	return sim_submit(stream, per_thread, &work);
}

SIM_CTX_CALL(cuStreamWriteValue32_v2,
	     (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),
	     (stream, addr, value, flags))
{
	return flags > 1 ? CUDA_ERROR_INVALID_VALUE : write_value(stream, false, addr, value, 4);
}

SIM_CTX_CALL(cuStreamWriteValue32_v2_ptsz,
	     (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),
	     (stream, addr, value, flags))
{
	return flags > 1 ? CUDA_ERROR_INVALID_VALUE : write_value(stream, true, addr, value, 4);
}

SIM_CTX_CALL(cuStreamWriteValue64_v2,
	     (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),
	     (stream, addr, value, flags))
{
	return flags > 1 ? CUDA_ERROR_INVALID_VALUE : write_value(stream, false, addr, value, 8);
}

SIM_CTX_CALL(cuStreamWriteValue64_v2_ptsz,
	     (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),
	     (stream, addr, value, flags))
{
	return flags > 1 ? CUDA_ERROR_INVALID_VALUE : write_value(stream, true, addr, value, 8);
}

/* ---- callbacks: as host functions, with other parameters ------------------------------------ */

typedef void (*stream_callback)(CUstream stream, CUresult status, void *data);

static CUresult add_callback(CUstream handle, bool per_thread, stream_callback callback, void *data,
			     unsigned flags)
{
	struct sim_stream *stream = sim_stream_of(handle, per_thread);
	unsigned depth;

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!callback || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->capture)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	depth = sim_lock_leave();
	callback(handle, CUDA_SUCCESS, data);
	sim_lock_rejoin(depth);
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuStreamAddCallback,
	     (CUstream stream, stream_callback callback, void *data, unsigned int flags),
	     (stream, callback, data, flags))
{
	return add_callback(stream, false, callback, data, flags);
}

SIM_CTX_CALL(cuStreamAddCallback_ptsz,
	     (CUstream stream, stream_callback callback, void *data, unsigned int flags),
	     (stream, callback, data, flags))
{
	return add_callback(stream, true, callback, data, flags);
}
