/* SPDX-License-Identifier: MIT */
/* Graphics resources. Without a graphics API none can be registered: only refusals are seen here.
 */
#include "app.h"

int app_graphics(int argc, char **argv)
{
	CUdevice device = app_begin();
	CUdeviceptr at = 0;
	size_t size = 0;

	(void)argc, (void)argv;
	WATCHED(0, cuGraphicsMapResources, 0, NULL, NULL);
	WATCHED(0, cuGraphicsMapResources, 1, NULL, NULL);
	WATCHED(0, cuGraphicsUnmapResources, 0, NULL, NULL);
	WATCHED(0, cuGraphicsUnmapResources, 1, NULL, NULL);
	WATCHED(0, cuGraphicsUnregisterResource, NULL);
	WATCHED(0, cuGraphicsResourceGetMappedPointer_v2, &at, &size, NULL);
	WATCHED(0, cuGraphicsResourceGetMappedPointer_v2, NULL, NULL, NULL);
	app_end(device);
	return 0;
}
