/* SPDX-License-Identifier: MIT */
/* Arrays have no address that could be registered, but their calls are watched as well. */
#include "app.h"

int app_array(int argc, char **argv)
{
	CUDA_ARRAY3D_DESCRIPTOR solid = {.Width = 64,
					 .Height = 32,
					 .Depth = 4,
					 .Format = CU_AD_FORMAT_FLOAT,
					 .NumChannels = 1};
	CUDA_ARRAY_DESCRIPTOR flat = {
		.Width = 64, .Height = 32, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUdevice device = app_begin();
	CUmipmappedArray pyramid = NULL;
	CUarray array = NULL;

	(void)argc, (void)argv;
	WATCHED(0, cuArrayCreate_v2, &array, &flat);
	WATCHED(0, cuArrayDestroy, array);
	WATCHED(0, cuArray3DCreate_v2, &array, &solid);
	WATCHED(0, cuArrayDestroy, array);
	WATCHED(0, cuMipmappedArrayCreate, &pyramid, &solid, 2);
	WATCHED(0, cuMipmappedArrayDestroy, pyramid);
	WATCHED(0, cuArrayCreate_v2, NULL, &flat);
	WATCHED(0, cuArrayDestroy, NULL);
	app_end(device);
	return 0;
}
