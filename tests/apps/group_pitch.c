/* SPDX-License-Identifier: MIT */
/* Memory with a pitch. */
#include "app.h"

int app_pitch(int argc, char **argv)
{
	CUdevice device = app_begin();
	CUdeviceptr at = 0;
	size_t pitch = 0;

	(void)argc, (void)argv;
	WATCHED(at, cuMemAllocPitch_v2, &at, &pitch, 1000, 64, 4);
	app_say("pitch %zu: %s", pitch, app_write_and_read(at, pitch * 64, 5));
	WATCHED(at, cuMemFree_v2, at);
	WATCHED(0, cuMemAllocPitch_v2, &at, &pitch, 1000, 64, 3);
	WATCHED(0, cuMemAllocPitch_v2, &at, &pitch, 0, 64, 4);
	WATCHED(0, cuMemAllocPitch_v2, &at, NULL, 1000, 64, 4);
	WATCHED(0, cuMemAllocPitch_v2, NULL, &pitch, 1000, 64, 4);
	app_end(device);
	return 0;
}
