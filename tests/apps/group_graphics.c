/* SPDX-License-Identifier: MIT */
/*
 * Graphics resources. Without a graphics API a real driver registers none, and only refuses; the
 * simulated driver pretends to have OpenGL, EGL and VDPAU.
 */
#include "app.h"

static void refusals(void)
{
	CUdeviceptr at = 0;
	size_t size = 0;

	WATCHED(0, cuGraphicsMapResources, 0, NULL, NULL);
	WATCHED(0, cuGraphicsMapResources, 1, NULL, NULL);
	WATCHED(0, cuGraphicsUnmapResources, 0, NULL, NULL);
	WATCHED(0, cuGraphicsUnmapResources, 1, NULL, NULL);
	WATCHED(0, cuGraphicsUnregisterResource, NULL);
	WATCHED(0, cuGraphicsResourceGetMappedPointer_v2, &at, &size, NULL);
	WATCHED(0, cuGraphicsResourceGetMappedPointer_v2, NULL, NULL, NULL);
}

static bool is_simulated(CUdevice device)
{
	char name[64] = "";

	return CU(cuDeviceGetName)(name, sizeof(name), device) == CUDA_SUCCESS &&
	       strstr(name, "simulated") != NULL;
}

static void buffers(void)
{
	CUdeviceptr at = 0;
	size_t size = 0;

	PLAIN(cuGLRegisterBufferObject, 3);
	WATCHED(at, cuGLMapBufferObject_v2, &at, &size, 3);
	app_say("%zu bytes, %s", size, app_write_and_read(at, size, 23));
	WATCHED(0, cuGLMapBufferObject_v2, &at, &size, 3);
	WATCHED(0, cuGLUnmapBufferObject, 3);
	WATCHED(0, cuGLUnmapBufferObject, 3);
	WATCHED(at, cuGLMapBufferObjectAsync_v2, &at, NULL, 3, NULL);
	WATCHED(0, cuGLUnmapBufferObjectAsync, 3, NULL);
	WATCHED(0, cuGLMapBufferObject_v2, NULL, &size, 3);
	WATCHED(0, cuGLUnregisterBufferObject, 3);
	WATCHED(0, cuGLUnregisterBufferObject, 3);
	WATCHED(0, cuGLMapBufferObject_v2, &at, &size, 3);
}

static CUdeviceptr plane(const CUeglFrame *frame, unsigned number)
{
	return (CUdeviceptr)(uintptr_t)frame->frame.pPitch[number];
}

static void frames(void)
{
	CUgraphicsResource first = NULL, second = NULL;
	CUeglStreamConnection connection = NULL;
	CUeglFrame frame;
	size_t size;

	memset(&frame, 0, sizeof(frame));
	PLAIN(cuEGLStreamConsumerConnect, &connection, &frame);
	WATCHED(0, cuEGLStreamConsumerAcquireFrame, &connection, &first, NULL, 0);
	WATCHED(plane(&frame, 0), cuGraphicsResourceGetMappedEglFrame, &frame, first, 0, 0);
	size = (size_t)frame.pitch * frame.height;
	app_say("%u planes: %s; %s", frame.planeCount,
		app_write_and_read(plane(&frame, 0), size, 24),
		app_write_and_read(plane(&frame, 1), size / 2, 25));
	WATCHED(0, cuEGLStreamConsumerAcquireFrame, &connection, &second, NULL, 0);
	WATCHED(0, cuEGLStreamConsumerReleaseFrame, &connection, first, NULL);
	WATCHED(0, cuEGLStreamConsumerReleaseFrame, &connection, first, NULL);
	WATCHED(0, cuGraphicsResourceGetMappedEglFrame, &frame, first, 0, 0);
	WATCHED(0, cuGraphicsResourceGetMappedEglFrame, NULL, second, 0, 0);
	WATCHED(0, cuEGLStreamConsumerAcquireFrame, &connection, NULL, NULL, 0);
	WATCHED(0, cuEGLStreamConsumerDisconnect, &connection);
	app_say("the connection is %s", connection == NULL ? "over" : "still there");
	WATCHED(0, cuEGLStreamConsumerDisconnect, &connection);
	WATCHED(0, cuEGLStreamConsumerDisconnect, NULL);
	WATCHED(0, cuEGLStreamConsumerAcquireFrame, NULL, &first, NULL, 0);
}

static int no_function(VdpDevice device, uint32_t id, void **function)
{
	(void)device, (void)id, (void)function;
	return 1;
}

static void contexts(CUdevice device)
{
	CUcontext context = NULL;
	CUdeviceptr at = 0;

	WATCHED(0, cuGLCtxCreate_v2, &context, 0, device);
	WATCHED(at, cuMemAlloc_v2, &at, 4096);
	WATCHED(0, cuCtxDestroy_v2, context);
	WATCHED(0, cuGLCtxCreate_v2, NULL, 0, device);
	WATCHED(0, cuVDPAUCtxCreate_v2, &context, 0, device, 1, no_function);
	WATCHED(0, cuCtxDestroy_v2, context);
	WATCHED(0, cuVDPAUCtxCreate_v2, &context, 0, device, 0, NULL);
}

int app_graphics(int argc, char **argv)
{
	CUdevice device = app_begin();

	(void)argc, (void)argv;
	refusals();
	if (is_simulated(device)) {
		buffers();
		frames();
		contexts(device);
	}
	app_end(device);
	return 0;
}
