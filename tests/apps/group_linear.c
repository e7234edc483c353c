/* SPDX-License-Identifier: MIT */
/* Linear memory: allocated and freed, its address reused, and frees that fail. */
#include "app.h"

#define MIB (1u << 20)

/* Frees and allocates the same size again and again: the driver hands out the same address. */
static void reuse(size_t size)
{
	CUdeviceptr at;
	int i;

	for (i = 0; i < 3; i++) {
		at = 0;
		WATCHED(at, cuMemAlloc_v2, &at, size);
		app_say("%s", app_write_and_read(at, size, i));
		WATCHED(at, cuMemFree_v2, at);
	}
}

int app_linear(int argc, char **argv)
{
	CUdeviceptr small = 0, neighbour = 0, large = 0, again = 0;
	CUdevice device = app_begin();

	(void)argc, (void)argv;
	reuse(4 * MIB);
	reuse(64 << 10);
	reuse(100);
	WATCHED(small, cuMemAlloc_v2, &small, 100);
	WATCHED(neighbour, cuMemAlloc_v2, &neighbour, 100);
	WATCHED(large, cuMemAlloc_v2, &large, 3 * MIB + 777);
	app_say("small: %s", app_write_and_read(small, 100, 1));
	app_say("neighbour: %s", app_write_and_read(neighbour, 100, 2));
	app_say("large: %s", app_write_and_read(large, 3 * MIB + 777, 3));
	WATCHED(small, cuMemFree_v2, small);
	app_say("neighbour: %s", app_write_and_read(neighbour, 100, 4));
	WATCHED(again, cuMemAlloc_v2, &again, 100);
	WATCHED(large, cuMemFree_v2, large);
	WATCHED(neighbour, cuMemFree_v2, neighbour);
	WATCHED(again, cuMemFree_v2, again);
	app_end(device);
	return 0;
}
