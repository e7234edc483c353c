/* SPDX-License-Identifier: MIT */
/*
 * cuMemcpy and cuMemset, in all variants. Most exist four times: waiting and in a stream, each for
 * the legacy default stream and for the thread's. The FLAVOURS macros write the four from one
 * description of the work.
 */
#include "arrays.h"
#include "contexts.h"
#include "copies.h"
#include "core.h"
#include "streams.h"
#include "work.h"

#define UNPACK(...) __VA_ARGS__

/* Waiting calls: `name` and `name_ptds`. */
#define WAITING_FLAVOURS(name, params, args, describe)            \
	SIM_CTX_CALL(name, (UNPACK params), (UNPACK args))        \
	{                                                         \
		struct sim_work work = describe args;             \
		return sim_work_do(&work);                        \
	}                                                         \
	SIM_CTX_CALL(name##_ptds, (UNPACK params), (UNPACK args)) \
	{                                                         \
		struct sim_work work = describe args;             \
		return sim_work_do(&work);                        \
	}

/* Calls in a stream: `name` and `name_ptsz`. */
#define STREAM_FLAVOURS(name, params, args, describe)                                      \
	SIM_CTX_CALL(name, (UNPACK params, CUstream stream), (UNPACK args, stream))        \
	{                                                                                  \
		struct sim_work work = describe args;                                      \
		return sim_submit(stream, false, &work);                                   \
	}                                                                                  \
	SIM_CTX_CALL(name##_ptsz, (UNPACK params, CUstream stream), (UNPACK args, stream)) \
	{                                                                                  \
		struct sim_work work = describe args;                                      \
		return sim_submit(stream, true, &work);                                    \
	}

/* Calls from before CUDA 3.2, with 32-bit addresses. */
#define OLD_FLAVOUR(name, params, args, describe)          \
	SIM_CTX_CALL(name, (UNPACK params), (UNPACK args)) \
	{                                                  \
		struct sim_work work = describe args;      \
		return sim_work_do(&work);                 \
	}

static struct sim_work plain_copy(uint64_t dst, uint64_t src, uint64_t size)
{
	return (struct sim_work){
		.type = CU_GRAPH_NODE_TYPE_MEMCPY,
		.copy = {.dst = dst, .src = src, .width = size, .height = 1, .depth = 1}};
}

static struct sim_work unified(CUdeviceptr dst, CUdeviceptr src, size_t size)
{
	return plain_copy(dst, src, size);
}

static struct sim_work to_device(CUdeviceptr dst, const void *src, size_t size)
{
	return plain_copy(dst, (uint64_t)src, size);
}

static struct sim_work to_host(void *dst, CUdeviceptr src, size_t size)
{
	return plain_copy((uint64_t)dst, src, size);
}

static struct sim_work peer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
			    CUcontext src_context, size_t size)
{
	(void)dst_context;
	(void)src_context;
	return plain_copy(dst, src, size);
}

/* ---- copies of one run of bytes ------------------------------------------------------------- */

/* clang-format off */
WAITING_FLAVOURS(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t size),
		 (dst, src, size), unified)
STREAM_FLAVOURS(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t size),
		(dst, src, size), unified)
WAITING_FLAVOURS(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t size),
		 (dst, src, size), to_device)
STREAM_FLAVOURS(cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void *src, size_t size),
		(dst, src, size), to_device)
OLD_FLAVOUR(cuMemcpyHtoD, (CUdeviceptr_v1 dst, const void *src, unsigned int size),
	    (dst, src, size), to_device)
WAITING_FLAVOURS(cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t size),
		 (dst, src, size), to_host)
STREAM_FLAVOURS(cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t size),
		(dst, src, size), to_host)
OLD_FLAVOUR(cuMemcpyDtoH, (void *dst, CUdeviceptr_v1 src, unsigned int size),
	    (dst, src, size), to_host)
WAITING_FLAVOURS(cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t size),
		 (dst, src, size), unified)
STREAM_FLAVOURS(cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t size),
		(dst, src, size), unified)
OLD_FLAVOUR(cuMemcpyDtoD, (CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int size),
	    (dst, src, size), unified)
WAITING_FLAVOURS(cuMemcpyPeer,
		 (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t size),
		 (dst, to, src, from, size), peer)
STREAM_FLAVOURS(cuMemcpyPeerAsync,
		(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t size),
		(dst, to, src, from, size), peer)
/* clang-format on */

/* ---- copies of a rectangle ------------------------------------------------------------------ */

static bool plane_address(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array,
			  uint64_t x, uint64_t y, uint64_t pitch, uint64_t *addr, uint64_t *stride)
{
	struct sim_array *backing;

	*stride = pitch;
	switch (type) {
	case CU_MEMORYTYPE_HOST:
		*addr = (uint64_t)host;
		break;
	case CU_MEMORYTYPE_DEVICE:
	case CU_MEMORYTYPE_UNIFIED:
		*addr = device;
		break;
	case CU_MEMORYTYPE_ARRAY:
		backing = sim_array_of(array);
		if (!backing)
			return false;
		*addr = backing->addr;
		*stride = backing->pitch;
		break;
	default:
		return false;
	}
	*addr += y * *stride + x;
	return true;
}

static uint64_t plane_rows(CUmemorytype type, CUarray array, uint64_t given, uint64_t height)
{
	if (type == CU_MEMORYTYPE_ARRAY)
		return sim_array_of(array)->shape.Height;
	return given ? given : height;
}

/* A pitch of 0 means rows without gaps. */
static bool pitches_are_sane(struct sim_copy *copy)
{
	if (copy->height > 1 && ((copy->src_pitch && copy->src_pitch < copy->width) ||
				 (copy->dst_pitch && copy->dst_pitch < copy->width)))
		return false;
	if (!copy->src_pitch)
		copy->src_pitch = copy->width;
	if (!copy->dst_pitch)
		copy->dst_pitch = copy->width;
	return true;
}

static CUresult rectangle(const CUDA_MEMCPY2D *wanted, struct sim_work *work)
{
	struct sim_copy *copy = &work->copy;

	if (!wanted)
		return CUDA_ERROR_INVALID_VALUE;
	*work = plain_copy(0, 0, wanted->WidthInBytes);
	copy->height = wanted->Height;
	if (!plane_address(wanted->srcMemoryType, wanted->srcHost, wanted->srcDevice,
			   wanted->srcArray, wanted->srcXInBytes, wanted->srcY, wanted->srcPitch,
			   &copy->src, &copy->src_pitch) ||
	    !plane_address(wanted->dstMemoryType, wanted->dstHost, wanted->dstDevice,
			   wanted->dstArray, wanted->dstXInBytes, wanted->dstY, wanted->dstPitch,
			   &copy->dst, &copy->dst_pitch) ||
	    !pitches_are_sane(copy))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* A height of 0 means planes without gaps. */
CUresult sim_describe_box(const CUDA_MEMCPY3D *wanted, struct sim_work *work)
{
	struct sim_copy *copy = &work->copy;

	if (!wanted || wanted->srcLOD || wanted->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	*work = plain_copy(0, 0, wanted->WidthInBytes);
	copy->height = wanted->Height;
	copy->depth = wanted->Depth;
	if (!plane_address(wanted->srcMemoryType, wanted->srcHost, wanted->srcDevice,
			   wanted->srcArray, wanted->srcXInBytes, wanted->srcY, wanted->srcPitch,
			   &copy->src, &copy->src_pitch) ||
	    !plane_address(wanted->dstMemoryType, wanted->dstHost, wanted->dstDevice,
			   wanted->dstArray, wanted->dstXInBytes, wanted->dstY, wanted->dstPitch,
			   &copy->dst, &copy->dst_pitch) ||
	    !pitches_are_sane(copy))
		return CUDA_ERROR_INVALID_VALUE;
	copy->src_slice = copy->src_pitch * plane_rows(wanted->srcMemoryType, wanted->srcArray,
						       wanted->srcHeight, wanted->Height);
	copy->dst_slice = copy->dst_pitch * plane_rows(wanted->dstMemoryType, wanted->dstArray,
						       wanted->dstHeight, wanted->Height);
	copy->src += wanted->srcZ * copy->src_slice;
	copy->dst += wanted->dstZ * copy->dst_slice;
	return CUDA_SUCCESS;
}

static CUresult copy_rectangle(const CUDA_MEMCPY2D *wanted)
{
	struct sim_work work;
	CUresult result = rectangle(wanted, &work);

	return result == CUDA_SUCCESS ? sim_work_do(&work) : result;
}

static CUresult submit_rectangle(const CUDA_MEMCPY2D *wanted, CUstream stream, bool per_thread)
{
	struct sim_work work;
	CUresult result = rectangle(wanted, &work);

	return result == CUDA_SUCCESS ? sim_submit(stream, per_thread, &work) : result;
}

SIM_CTX_CALL(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *wanted), (wanted))
{
	return copy_rectangle(wanted);
}

SIM_CTX_CALL(cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *wanted), (wanted))
{
	return copy_rectangle(wanted);
}

SIM_CTX_CALL(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *wanted), (wanted))
{
	return copy_rectangle(wanted);
}

SIM_CTX_CALL(cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D *wanted), (wanted))
{
	return copy_rectangle(wanted);
}

SIM_CTX_CALL(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *wanted, CUstream stream), (wanted, stream))
{
	return submit_rectangle(wanted, stream, false);
}

SIM_CTX_CALL(cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D *wanted, CUstream stream),
	     (wanted, stream))
{
	return submit_rectangle(wanted, stream, true);
}

static CUresult copy_box(const CUDA_MEMCPY3D *wanted)
{
	struct sim_work work;
	CUresult result = sim_describe_box(wanted, &work);

	return result == CUDA_SUCCESS ? sim_work_do(&work) : result;
}

static CUresult submit_box(const CUDA_MEMCPY3D *wanted, CUstream stream, bool per_thread)
{
	struct sim_work work;
	CUresult result = sim_describe_box(wanted, &work);

	return result == CUDA_SUCCESS ? sim_submit(stream, per_thread, &work) : result;
}

SIM_CTX_CALL(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *wanted), (wanted))
{
	return copy_box(wanted);
}

SIM_CTX_CALL(cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D *wanted), (wanted))
{
	return copy_box(wanted);
}

SIM_CTX_CALL(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *wanted, CUstream stream), (wanted, stream))
{
	return submit_box(wanted, stream, false);
}

SIM_CTX_CALL(cuMemcpy3DAsync_v2_ptsz, (const CUDA_MEMCPY3D *wanted, CUstream stream),
	     (wanted, stream))
{
	return submit_box(wanted, stream, true);
}

/* ---- fills ---------------------------------------------------------------------------------- */

static struct sim_work plain_fill(uint64_t dst, uint32_t value, uint32_t element, uint64_t count)
{
	return (struct sim_work){.type = CU_GRAPH_NODE_TYPE_MEMSET,
				 .fill = {.dst = dst,
					  .value = value,
					  .element = element,
					  .width = count,
					  .height = 1}};
}

static struct sim_work fill8(CUdeviceptr dst, unsigned char value, size_t count)
{
	return plain_fill(dst, value, 1, count);
}

static struct sim_work fill16(CUdeviceptr dst, unsigned short value, size_t count)
{
	return plain_fill(dst, value, 2, count);
}

static struct sim_work fill32(CUdeviceptr dst, unsigned int value, size_t count)
{
	return plain_fill(dst, value, 4, count);
}

static struct sim_work with_rows(struct sim_work work, size_t pitch, size_t height)
{
	work.fill.pitch = pitch;
	work.fill.height = height;
	return work;
}

static struct sim_work rows8(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
			     size_t height)
{
	return with_rows(fill8(dst, value, width), pitch, height);
}

static struct sim_work rows16(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
			      size_t height)
{
	return with_rows(fill16(dst, value, width), pitch, height);
}

static struct sim_work rows32(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
			      size_t height)
{
	return with_rows(fill32(dst, value, width), pitch, height);
}

/* clang-format off */
WAITING_FLAVOURS(cuMemsetD8_v2, (CUdeviceptr dst, unsigned char value, size_t count),
		 (dst, value, count), fill8)
WAITING_FLAVOURS(cuMemsetD16_v2, (CUdeviceptr dst, unsigned short value, size_t count),
		 (dst, value, count), fill16)
WAITING_FLAVOURS(cuMemsetD32_v2, (CUdeviceptr dst, unsigned int value, size_t count),
		 (dst, value, count), fill32)
STREAM_FLAVOURS(cuMemsetD8Async, (CUdeviceptr dst, unsigned char value, size_t count),
		(dst, value, count), fill8)
STREAM_FLAVOURS(cuMemsetD16Async, (CUdeviceptr dst, unsigned short value, size_t count),
		(dst, value, count), fill16)
STREAM_FLAVOURS(cuMemsetD32Async, (CUdeviceptr dst, unsigned int value, size_t count),
		(dst, value, count), fill32)
OLD_FLAVOUR(cuMemsetD8, (CUdeviceptr_v1 dst, unsigned char value, unsigned int count),
	    (dst, value, count), fill8)
OLD_FLAVOUR(cuMemsetD16, (CUdeviceptr_v1 dst, unsigned short value, unsigned int count),
	    (dst, value, count), fill16)
OLD_FLAVOUR(cuMemsetD32, (CUdeviceptr_v1 dst, unsigned int value, unsigned int count),
	    (dst, value, count), fill32)
WAITING_FLAVOURS(cuMemsetD2D8_v2,
		 (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height),
		 (dst, pitch, value, width, height), rows8)
WAITING_FLAVOURS(cuMemsetD2D16_v2,
		 (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height),
		 (dst, pitch, value, width, height), rows16)
WAITING_FLAVOURS(cuMemsetD2D32_v2,
		 (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height),
		 (dst, pitch, value, width, height), rows32)
STREAM_FLAVOURS(cuMemsetD2D8Async,
		(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height),
		(dst, pitch, value, width, height), rows8)
STREAM_FLAVOURS(cuMemsetD2D16Async,
		(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height),
		(dst, pitch, value, width, height), rows16)
STREAM_FLAVOURS(cuMemsetD2D32Async,
		(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height),
		(dst, pitch, value, width, height), rows32)
/* clang-format on */
