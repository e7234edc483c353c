/* SPDX-License-Identifier: MIT */
/* Contexts that the program creates: their memory ends with them. */
#include "app.h"

#define SIZE (1u << 20)

static void destroyed_with_memory(CUdevice device)
{
	CUcontext context = NULL, now = NULL;
	CUdeviceptr at = 0, freed = 0;

	WATCHED(0, cuCtxCreate_v2, &context, 0, device);
	PLAIN(cuCtxGetCurrent, &now);
	app_say("current: %s", now == context ? "the new one" : "another");
	WATCHED(at, cuMemAlloc_v2, &at, SIZE);
	WATCHED(freed, cuMemAlloc_v2, &freed, SIZE);
	WATCHED(freed, cuMemFree_v2, freed);
	WATCHED(0, cuCtxDestroy_v2, context);
	WATCHED(0, cuMemFree_v2, at);
	PLAIN(cuCtxGetCurrent, &now);
	app_say("current: %s", now == context ? "the destroyed one" : now ? "another" : "none");
}

static void newer_versions(CUdevice device)
{
	CUcontext context = NULL;

	WATCHED(0, cuCtxCreate_v3, &context, NULL, 0, 0, device);
	WATCHED(0, cuCtxDestroy_v2, context);
	context = NULL;
	WATCHED(0, cuCtxCreate_v4, &context, NULL, 0, device);
	WATCHED(0, cuCtxDestroy, context);
	WATCHED(0, cuCtxCreate_v2, NULL, 0, device);
	WATCHED(0, cuCtxCreate_v2, &context, 0, 99);
	WATCHED(0, cuCtxDestroy_v2, NULL);
}

/* Attach and detach count; the last detach destroys. */
static void attached(CUdevice device)
{
	CUcontext context = NULL, same = NULL;
	CUdeviceptr at = 0;

	WATCHED(0, cuCtxCreate_v2, &context, 0, device);
	WATCHED(at, cuMemAlloc_v2, &at, SIZE);
	WATCHED(0, cuCtxAttach, &same, 0);
	app_say("attached to %s", same == context ? "the same" : "another");
	WATCHED(0, cuCtxDetach, context);
	app_say("%s", app_write_and_read(at, 4096, 13));
	WATCHED(0, cuCtxDetach, context);
	WATCHED(0, cuMemFree_v2, at);
}

int app_context(int argc, char **argv)
{
	CUcontext primary = NULL;
	CUdevice device = app_begin();
	CUdeviceptr at = 0;

	(void)argc, (void)argv;
	PLAIN(cuCtxGetCurrent, &primary);
	WATCHED(at, cuMemAlloc_v2, &at, SIZE);
	destroyed_with_memory(device);
	newer_versions(device);
	attached(device);
	PLAIN(cuCtxSetCurrent, primary);
	app_say("the primary context's: %s", app_write_and_read(at, SIZE, 14));
	WATCHED(at, cuMemFree_v2, at);
	app_end(device);
	return 0;
}
