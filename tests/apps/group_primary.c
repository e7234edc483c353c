/* SPDX-License-Identifier: MIT */
/* The primary context: memory ends when it is released to zero, and when it is reset. */
#include "app.h"

#define SIZE (1u << 20)

static void show_state(CUdevice device)
{
	unsigned flags = 0;
	int active = -1;

	PLAIN(cuDevicePrimaryCtxGetState, device, &flags, &active);
	app_say("primary context: %s", active == 1 ? "active" : "not active");
}

static CUdeviceptr retain_and_allocate(CUdevice device)
{
	CUcontext context = NULL;
	CUdeviceptr at = 0;

	WATCHED(0, cuDevicePrimaryCtxRetain, &context, device);
	PLAIN(cuCtxSetCurrent, context);
	WATCHED(at, cuMemAlloc_v2, &at, SIZE);
	return at;
}

int app_primary(int argc, char **argv)
{
	CUdevice device = app_begin();
	CUdeviceptr at = retain_and_allocate(device);

	(void)argc, (void)argv;
	WATCHED(0, cuDevicePrimaryCtxRelease_v2, device);
	app_say("released once of twice: %s", app_write_and_read(at, SIZE, 15));
	WATCHED(0, cuDevicePrimaryCtxRelease, device);
	show_state(device);
	WATCHED(0, cuMemFree_v2, at);
	WATCHED(0, cuDevicePrimaryCtxRelease_v2, device);

	at = retain_and_allocate(device);
	WATCHED(0, cuDevicePrimaryCtxReset_v2, device);
	show_state(device);
	at = retain_and_allocate(device);
	WATCHED(0, cuDevicePrimaryCtxReset, device);
	WATCHED(0, cuDevicePrimaryCtxRelease_v2, 99);
	WATCHED(0, cuDevicePrimaryCtxRetain, NULL, device);
	return 0;
}
