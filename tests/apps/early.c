/* SPDX-License-Identifier: MIT */
/*
 * A library whose constructor uses CUDA before a preloaded library's constructor has run, and whose
 * destructor frees after main.
 */
#include "app.h"

static CUdeviceptr at;

__attribute__((constructor)) static void use_early(void)
{
	app_say("before main:");
	app_begin();
	WATCHED(at, cuMemAlloc_v2, &at, 1 << 20);
	app_say("%s", app_write_and_read(at, 1 << 20, 30));
}

__attribute__((destructor)) static void free_late(void)
{
	app_say("after main:");
	WATCHED(at, cuMemFree_v2, at);
}

__attribute__((visibility("default"))) void early_used(void)
{
	app_say("in main: %s", app_write_and_read(at, 1 << 20, 31));
}
