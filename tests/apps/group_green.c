/* SPDX-License-Identifier: MIT */
/* Green contexts: a share of the device's processors, with a context made from it. */
#include "app.h"

int app_green(int argc, char **argv)
{
	CUdevice device = app_begin();
	CUcontext primary = NULL, context = NULL;
	CUdevResource processors;
	CUdevResourceDesc desc = NULL;
	CUgreenCtx green = NULL;
	CUdeviceptr at = 0;

	(void)argc, (void)argv;
	memset(&processors, 0, sizeof(processors));
	PLAIN(cuCtxGetCurrent, &primary);
	PLAIN(cuDeviceGetDevResource, device, &processors, CU_DEV_RESOURCE_TYPE_SM);
	PLAIN(cuDevResourceGenerateDesc, &desc, &processors, 1);
	WATCHED(0, cuGreenCtxCreate, &green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM);
	WATCHED(0, cuCtxFromGreenCtx, &context, green);
	if (context != NULL) {
		PLAIN(cuCtxSetCurrent, context);
		WATCHED(at, cuMemAlloc_v2, &at, 1 << 20);
		app_say("%s", app_write_and_read(at, 1 << 20, 23));
		PLAIN(cuCtxSetCurrent, primary);
		WATCHED(at, cuMemFree_v2, at);
	}
	WATCHED(0, cuGreenCtxDestroy, green);
	WATCHED(0, cuGreenCtxCreate, NULL, desc, device, CU_GREEN_CTX_DEFAULT_STREAM);
	app_end(device);
	return 0;
}
