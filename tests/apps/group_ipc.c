/* SPDX-License-Identifier: MIT */
/* Memory of one process mapped in another: the parent allocates, and its child opens it. */
#include "app.h"

#define SIZE (2u << 20)

/* Handles are opaque bytes; they travel as hexadecimal in the child's argument. */
static void to_text(const void *bytes, size_t size, char *text)
{
	size_t i;

	for (i = 0; i < size; i++)
		sprintf(text + 2 * i, "%02x", ((const unsigned char *)bytes)[i]);
}

static void from_text(const char *text, void *bytes, size_t size)
{
	unsigned value = 0;
	size_t i;

	for (i = 0; i < size && sscanf(text + 2 * i, "%2x", &value) == 1; i++)
		((unsigned char *)bytes)[i] = value;
}

/* Each open needs a close, and both versions of the call may be mixed. */
static int child(const char *text)
{
	unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
	CUdevice device = app_begin();
	CUdeviceptr at = 0, again = 0;
	CUipcMemHandle handle;
	unsigned char byte = 0;

	from_text(text, &handle, sizeof(handle));
	WATCHED(at, cuIpcOpenMemHandle_v2, &at, handle, flags);
	WATCHED(again, cuIpcOpenMemHandle, &again, handle, flags);
	PLAIN(cuMemcpyDtoH_v2, &byte, at, 1);
	app_say("the parent wrote %d", byte);
	if (again != 0)
		WATCHED(again, cuIpcCloseMemHandle, again);
	WATCHED(at, cuIpcCloseMemHandle, at);
	WATCHED(0, cuIpcCloseMemHandle, at);
	WATCHED(0, cuIpcOpenMemHandle_v2, NULL, handle, flags);
	app_end(device);
	return 0;
}

int app_ipc(int argc, char **argv)
{
	char text[2 * sizeof(CUipcMemHandle) + 1] = "";
	CUdeviceptr at = 0;
	CUipcMemHandle handle;
	CUdevice device;

	if (argc > 1)
		return child(argv[1]);
	device = app_begin();
	WATCHED(at, cuMemAlloc_v2, &at, SIZE);
	PLAIN(cuMemsetD8_v2, at, 42, SIZE);
	PLAIN(cuCtxSynchronize);
	PLAIN(cuIpcGetMemHandle, &handle, at);
	to_text(&handle, sizeof(handle), text);
	app_wait(app_spawn("ipc", text));
	WATCHED(at, cuMemFree_v2, at);
	app_end(device);
	return 0;
}
