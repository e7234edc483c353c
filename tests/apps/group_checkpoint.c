/* SPDX-License-Identifier: MIT */
/* The device memory of the process is moved to the host and back. */
#include "app.h"

int app_checkpoint(int argc, char **argv)
{
	CUdevice device = app_begin();
	CUdeviceptr at = 0;

	(void)argc, (void)argv;
	WATCHED(at, cuMemAlloc_v2, &at, 1 << 20);
	PLAIN(cuMemsetD8_v2, at, 77, 1 << 20);
	PLAIN(cuCtxSynchronize);
	PLAIN(cuCheckpointProcessLock, getpid(), NULL);
	WATCHED(0, cuCheckpointProcessCheckpoint, getpid(), NULL);
	WATCHED(0, cuCheckpointProcessRestore, getpid(), NULL);
	PLAIN(cuCheckpointProcessUnlock, getpid(), NULL);
	app_say("%s", app_write_and_read(at, 1 << 20, 24));
	WATCHED(0, cuCheckpointProcessCheckpoint, -1, NULL);
	WATCHED(at, cuMemFree_v2, at);
	app_end(device);
	return 0;
}
