/* SPDX-License-Identifier: MIT */
/*
 * The calls for OpenGL's buffers by number, EGL's images and streams, and contexts beside OpenGL
 * and VDPAU. There is no graphics here: any buffer number, image and stream except 0 is valid. The
 * producer of a stream always has a new frame.
 */
#include <stdlib.h>

#include "contexts.h"
#include "core.h"
#include "graphics.h"
#include "handles.h"
#include "streams.h"

/* ---- buffers of OpenGL ---------------------------------------------------------------------- */

/* Each CUDA context has an OpenGL context of its own, with its own buffer numbers. */
static struct buffer {
	struct sim_context *context;
	unsigned number;
	struct sim_resource *resource;
	struct buffer *next;
} * buffers;

static struct buffer **place_of_buffer(unsigned number)
{
	struct buffer **at = &buffers;

	while (*at && ((*at)->number != number || (*at)->context != sim_current()))
		at = &(*at)->next;
	return at;
}

static struct sim_resource *buffer_of(unsigned number)
{
	const struct buffer *buffer = *place_of_buffer(number);

	return buffer ? buffer->resource : NULL;
}

SIM_CTX_CALL(cuGLRegisterBufferObject, (unsigned int number), (number))
{
	struct buffer **place = place_of_buffer(number), *new;

	if (!number || number > SIM_GL_BUFFERS)
		return CUDA_ERROR_INVALID_VALUE;
	if (*place)
		return CUDA_ERROR_ALREADY_MAPPED;
	new = calloc(1, sizeof(*new));
	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*new = (struct buffer){.context = sim_current(), .number = number};
	new->resource = sim_resource_new(sim_gl_buffer_bytes(number));
	if (!new->resource) {
		free(new);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*place = new;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuGLUnregisterBufferObject, (unsigned int number), (number))
{
	struct buffer **place = place_of_buffer(number), *buffer = *place;

	if (!buffer)
		return CUDA_ERROR_INVALID_VALUE;
	*place = buffer->next;
	sim_resource_delete(buffer->resource);
	free(buffer);
	return CUDA_SUCCESS;
}

static CUresult map(unsigned number, CUstream stream, bool per_thread, uint64_t *ptr,
		    uint64_t *size)
{
	struct sim_resource *buffer = buffer_of(number);
	CUresult result;

	if (!sim_stream_of(stream, per_thread))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!buffer)
		return CUDA_ERROR_INVALID_VALUE;
	result = buffer->mapped ? CUDA_ERROR_ALREADY_MAPPED : sim_resource_map(buffer);
	if (result != CUDA_SUCCESS)
		return result;
	*ptr = buffer->mapped->addr;
	*size = buffer->size;
	return CUDA_SUCCESS;
}

static CUresult map_to(unsigned number, CUstream stream, bool per_thread, CUdeviceptr *ptr,
		       size_t *size)
{
	uint64_t addr, bytes;
	CUresult result = map(number, stream, per_thread, &addr, &bytes);

	if (result == CUDA_SUCCESS && ptr)
		*ptr = addr;
	if (result == CUDA_SUCCESS && size)
		*size = bytes;
	return result;
}

/* 32 bits can't hold an address above 4 GiB. */
static CUresult map_to_v1(unsigned number, CUstream stream, CUdeviceptr_v1 *ptr, unsigned *size)
{
	(void)ptr;
	(void)size;
	if (!sim_stream_of(stream, false))
		return CUDA_ERROR_INVALID_HANDLE;
	return buffer_of(number) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

static CUresult unmap(unsigned number, CUstream stream)
{
	struct sim_resource *buffer = buffer_of(number);

	if (!sim_stream_of(stream, false))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!buffer)
		return CUDA_ERROR_INVALID_VALUE;
	if (!buffer->mapped)
		return CUDA_ERROR_NOT_MAPPED;
	sim_resource_unmap(buffer);
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuGLMapBufferObject, (CUdeviceptr_v1 * ptr, unsigned int *size, unsigned int number),
	     (ptr, size, number))
{
	return map_to_v1(number, NULL, ptr, size);
}

SIM_CTX_CALL(cuGLMapBufferObject_v2, (CUdeviceptr * ptr, size_t *size, unsigned int number),
	     (ptr, size, number))
{
	return map_to(number, NULL, false, ptr, size);
}

SIM_CTX_CALL(cuGLMapBufferObject_v2_ptds, (CUdeviceptr * ptr, size_t *size, unsigned int number),
	     (ptr, size, number))
{
	return map_to(number, NULL, true, ptr, size);
}

SIM_CTX_CALL(cuGLMapBufferObjectAsync,
	     (CUdeviceptr_v1 * ptr, unsigned int *size, unsigned int number, CUstream stream),
	     (ptr, size, number, stream))
{
	return map_to_v1(number, stream, ptr, size);
}

SIM_CTX_CALL(cuGLMapBufferObjectAsync_v2,
	     (CUdeviceptr * ptr, size_t *size, unsigned int number, CUstream stream),
	     (ptr, size, number, stream))
{
	return map_to(number, stream, false, ptr, size);
}

SIM_CTX_CALL(cuGLMapBufferObjectAsync_v2_ptsz,
	     (CUdeviceptr * ptr, size_t *size, unsigned int number, CUstream stream),
	     (ptr, size, number, stream))
{
	return map_to(number, stream, true, ptr, size);
}

SIM_CTX_CALL(cuGLUnmapBufferObject, (unsigned int number), (number))
{
	return unmap(number, NULL);
}

SIM_CTX_CALL(cuGLUnmapBufferObjectAsync, (unsigned int number, CUstream stream), (number, stream))
{
	return unmap(number, stream);
}

/* ---- frames: of images, and of streams ------------------------------------------------------ */

/* YUV 4:2:0 in two planes, the second half as large as the first. */
enum { WIDTH = 2048, HEIGHT = 1024, PLANES = 2 };

static struct sim_resource *new_plane(unsigned rows)
{
	struct sim_resource *plane = sim_resource_new((uint64_t)WIDTH * rows);

	if (!plane)
		return NULL;
	plane->frame = true;
	if (sim_resource_map(plane) == CUDA_SUCCESS)
		return plane;
	sim_resource_delete(plane);
	return NULL;
}

static CUresult new_frame(CUgraphicsResource *handle)
{
	struct sim_resource *first = new_plane(HEIGHT);

	if (first)
		first->next_plane = new_plane(HEIGHT / 2);
	if (!first || !first->next_plane) {
		if (first)
			sim_resource_delete(first);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*handle = (CUgraphicsResource)first;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuGraphicsEGLRegisterImage,
	     (CUgraphicsResource * handle, void *image, unsigned int flags), (handle, image, flags))
{
	if (!handle || !image || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	return new_frame(handle);
}

SIM_CTX_CALL(cuGraphicsResourceGetMappedEglFrame,
	     (CUeglFrame * frame, CUgraphicsResource handle, unsigned int index,
	      unsigned int level),
	     (frame, handle, index, level))
{
	struct sim_resource *resource = sim_resource_of(handle);

	if (!frame || index || level)
		return CUDA_ERROR_INVALID_VALUE;
	if (!resource || !resource->frame)
		return CUDA_ERROR_INVALID_HANDLE;
	*frame = (CUeglFrame){
		.width = WIDTH,
		.height = HEIGHT,
		.depth = 1,
		.pitch = WIDTH,
		.planeCount = PLANES,
		.numChannels = 1,
		.frameType = CU_EGL_FRAME_TYPE_PITCH,
		.eglColorFormat = CU_EGL_COLOR_FORMAT_YUV420_SEMIPLANAR,
		.cuFormat = CU_AD_FORMAT_UNSIGNED_INT8,
	};
	for (unsigned i = 0; i < PLANES; i++, resource = resource->next_plane)
		frame->frame.pPitch[i] = (void *)(uintptr_t)resource->mapped->addr;
	return CUDA_SUCCESS;
}

#define FRAMES 8 /* the maximum that a consumer may have at a time */

struct connection {
	CUgraphicsResource frames[FRAMES];
};

static struct connection *connection_of(const CUeglStreamConnection *handle)
{
	return handle ? sim_handle(*handle, SIM_EGL_CONNECTION) : NULL;
}

SIM_CTX_CALL(cuEGLStreamConsumerConnect, (CUeglStreamConnection * handle, void *stream),
	     (handle, stream))
{
	if (!handle || !stream)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = sim_handle_new(SIM_EGL_CONNECTION, sizeof(struct connection));
	return *handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUgraphicsResource *place_of(struct connection *connection, CUgraphicsResource frame)
{
	for (unsigned i = 0; i < FRAMES; i++)
		if (connection->frames[i] == frame)
			return &connection->frames[i];
	return NULL;
}

SIM_CTX_CALL(cuEGLStreamConsumerAcquireFrame,
	     (CUeglStreamConnection * handle, CUgraphicsResource *frame, CUstream *stream,
	      unsigned int timeout),
	     (handle, frame, stream, timeout))
{
	struct connection *connection = connection_of(handle);
	CUgraphicsResource *place;
	CUresult result;

	(void)timeout;
	(void)stream;
	if (!connection)
		return CUDA_ERROR_INVALID_HANDLE;
	place = place_of(connection, NULL);
	if (!frame || !place)
		return frame ? CUDA_ERROR_NOT_READY : CUDA_ERROR_INVALID_VALUE;
	result = new_frame(place);
	if (result == CUDA_SUCCESS)
		*frame = *place;
	return result;
}

static void end_frame(CUgraphicsResource *place)
{
	sim_resource_delete(sim_resource_of(*place));
	*place = NULL;
}

SIM_CTX_CALL(cuEGLStreamConsumerReleaseFrame,
	     (CUeglStreamConnection * handle, CUgraphicsResource frame, CUstream *stream),
	     (handle, frame, stream))
{
	struct connection *connection = connection_of(handle);
	CUgraphicsResource *place = connection && frame ? place_of(connection, frame) : NULL;

	(void)stream;
	if (!place)
		return CUDA_ERROR_INVALID_HANDLE;
	end_frame(place);
	return CUDA_SUCCESS;
}

/* Ends the frames that were acquired and not released. */
SIM_CTX_CALL(cuEGLStreamConsumerDisconnect, (CUeglStreamConnection * handle), (handle))
{
	struct connection *connection = connection_of(handle);

	if (!connection)
		return CUDA_ERROR_INVALID_HANDLE;
	for (unsigned i = 0; i < FRAMES; i++)
		if (connection->frames[i])
			end_frame(&connection->frames[i]);
	sim_handle_delete(connection);
	*handle = NULL;
	return CUDA_SUCCESS;
}

/* ---- contexts ------------------------------------------------------------------------------- */

static CUresult create(CUcontext *handle, unsigned flags, CUdevice device, unsigned api_version)
{
	struct sim_context *context;
	CUresult result;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	result = sim_context_new(device, flags, api_version, &context);
	if (result != CUDA_SUCCESS)
		return result;
	sim_context_push(context);
	*handle = (CUcontext)context;
	return CUDA_SUCCESS;
}

SIM_CALL(cuGLCtxCreate, (CUcontext * handle, unsigned int flags, CUdevice device),
	 (handle, flags, device))
{
	return create(handle, flags, device, 3010);
}

SIM_CALL(cuGLCtxCreate_v2, (CUcontext * handle, unsigned int flags, CUdevice device),
	 (handle, flags, device))
{
	return create(handle, flags, device, 3020);
}

SIM_CALL(cuVDPAUCtxCreate,
	 (CUcontext * handle, unsigned int flags, CUdevice device, VdpDevice vdp,
	  VdpGetProcAddress *functions),
	 (handle, flags, device, vdp, functions))
{
	return functions && vdp ? create(handle, flags, device, 3010) : CUDA_ERROR_INVALID_VALUE;
}

SIM_CALL(cuVDPAUCtxCreate_v2,
	 (CUcontext * handle, unsigned int flags, CUdevice device, VdpDevice vdp,
	  VdpGetProcAddress *functions),
	 (handle, flags, device, vdp, functions))
{
	return functions && vdp ? create(handle, flags, device, 3020) : CUDA_ERROR_INVALID_VALUE;
}
