/* SPDX-License-Identifier: MIT */
/* Managed memory. */
#include "app.h"

#define SIZE (256u << 10)

int app_managed(int argc, char **argv)
{
	CUdevice device = app_begin();
	CUdeviceptr at = 0;

	(void)argc, (void)argv;
	WATCHED(at, cuMemAllocManaged, &at, SIZE, CU_MEM_ATTACH_GLOBAL);
	app_say("%s", app_write_and_read(at, SIZE, 6));
	WATCHED(at, cuMemFree_v2, at);
	WATCHED(0, cuMemAllocManaged, &at, SIZE, 0);
	WATCHED(0, cuMemAllocManaged, &at, 0, CU_MEM_ATTACH_GLOBAL);
	WATCHED(0, cuMemAllocManaged, NULL, SIZE, CU_MEM_ATTACH_GLOBAL);
	app_end(device);
	return 0;
}
