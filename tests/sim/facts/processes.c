/* SPDX-License-Identifier: MIT */
/* Several processes; and the end of one. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "facts.h"

struct message {
	CUipcMemHandle handle, packed, freed;
	char byte;
};

static void read_all(int fd, void *to, size_t size)
{
	if (read(fd, to, size) != (ssize_t)size)
		_exit(1);
}

static void write_all(int fd, const void *from, size_t size)
{
	if (write(fd, from, size) != (ssize_t)size)
		_exit(1);
}

static void import_in_child(int in, int out)
{
	struct message message;
	CUdeviceptr a = 0, b = 0, packed = 0;
	char text[8] = "";

	read_all(in, &message, sizeof(message));
	begin();
	ASK(cuIpcOpenMemHandle_v2(NULL, message.handle, 1));
	ASK(cuIpcOpenMemHandle_v2(&a, message.handle, 0));
	ASK_ABOUT("open", cuIpcOpenMemHandle_v2(&a, message.handle, 1));
	ASK_ABOUT("open again", cuIpcOpenMemHandle_v2(&b, message.handle, 1));
	say("the same address", "%d", a == b);
	ASK_ABOUT("open of a packed one", cuIpcOpenMemHandle_v2(&packed, message.packed, 1));
	describe("opened", a);
	describe("opened, packed", packed);
	ASK_ABOUT("open of a freed one", cuIpcOpenMemHandle_v2(&b, message.freed, 1));
	memset(message.handle.reserved, 0, sizeof(message.handle.reserved));
	ASK_ABOUT("open of zeros", cuIpcOpenMemHandle_v2(&b, message.handle, 1));
	ASK_ABOUT("copy from it", cuMemcpyDtoH_v2(text, a, 8));
	say("contents", "%d", text[7]);
	ASK_ABOUT("cuMemFree of it", cuMemFree_v2(a));
	ASK_ABOUT("a handle of it", cuIpcGetMemHandle(&message.handle, a));
	ASK_ABOUT("close of an interior address", cuIpcCloseMemHandle(a + 512));
	ASK_ABOUT("close", cuIpcCloseMemHandle(a));
	ASK_ABOUT("still usable", cuMemcpyDtoH_v2(text, a, 8));
	ASK_ABOUT("second close", cuIpcCloseMemHandle(a));
	ASK_ABOUT("third close", cuIpcCloseMemHandle(a));
	describe("closed", a);
	write_all(out, "x", 1);
	exit(0);
}

static void export_in_parent(int out, int in)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle physical;
	CUdeviceptr big, packed, freed, other;
	struct message message;

	begin();
	NEED(cuMemAlloc_v2(&big, 2 * MIB));
	NEED(cuMemAlloc_v2(&packed, 1000));
	NEED(cuMemAlloc_v2(&packed, 5000));
	NEED(cuMemAlloc_v2(&freed, 4 * MIB));
	NEED(cuMemsetD8_v2(big, 6, 2 * MIB));
	ASK(cuIpcGetMemHandle(NULL, big));
	ASK_ABOUT("handle", cuIpcGetMemHandle(&message.handle, big));
	ASK_ABOUT("handle of a packed one", cuIpcGetMemHandle(&message.packed, packed));
	NEED(cuIpcGetMemHandle(&message.freed, freed));
	ASK_ABOUT("handle of an interior address", cuIpcGetMemHandle(&message.freed, freed + 4096));
	ASK_ABOUT("open in the same process", cuIpcOpenMemHandle_v2(&other, message.handle, 1));
	NEED(cuMemFree_v2(freed));
	ASK_ABOUT("handle of freed memory", cuIpcGetMemHandle(&message.freed, freed));
	NEED(cuMemAllocAsync(&other, MIB, NULL));
	ASK_ABOUT("handle of pool memory", cuIpcGetMemHandle((CUipcMemHandle[1]){0}, other));
	NEED(cuMemAllocManaged(&other, MIB, CU_MEM_ATTACH_GLOBAL));
	ASK_ABOUT("handle of managed memory", cuIpcGetMemHandle((CUipcMemHandle[1]){0}, other));
	NEED(cuMemCreate(&physical, 2 * MIB, &prop, 0));
	NEED(cuMemAddressReserve(&other, 2 * MIB, 0, 0, 0));
	NEED(cuMemMap(other, 2 * MIB, 0, physical, 0));
	ASK_ABOUT("handle of mapped memory", cuIpcGetMemHandle((CUipcMemHandle[1]){0}, other));
	write_all(out, &message, sizeof(message));
	read_all(in, &message.byte, 1);
}

void facts_ipc(void)
{
	int down[2], up[2];

	if (pipe(down) || pipe(up))
		_exit(1);
	fflush(stdout);
	if (fork() == 0)
		import_in_child(down[0], up[1]);
	export_in_parent(down[1], up[0]);
	wait(NULL);
}

/* ---- the end -------------------------------------------------------------------------------- */

static CUdeviceptr left_over;

static void at_exit(void)
{
	CUcontext context;
	CUdeviceptr ptr;
	uint64_t id;
	int version;

	ASK_ABOUT("cuMemFree", cuMemFree_v2(left_over));
	ASK_ABOUT("cuMemAlloc", cuMemAlloc_v2(&ptr, 4096));
	ASK_ABOUT("cuCtxGetCurrent", cuCtxGetCurrent(&context));
	ASK_ABOUT("buffer id",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, left_over));
	ASK_ABOUT("cuDriverGetVersion", cuDriverGetVersion(&version));
	ASK_ABOUT("cuInit", cuInit(0));
}

static void at_exit_early(void)
{
	ASK_ABOUT("in a handler registered after cuInit, cuMemGetInfo",
		  cuMemGetInfo_v2(NULL, NULL));
}

/* Handlers run in reverse: one registered before cuInit sees a driver that is shut down. */
void facts_exit(void)
{
	atexit(at_exit);
	begin();
	NEED(cuMemAlloc_v2(&left_over, MIB));
	atexit(at_exit_early);
}

void facts_fork(void)
{
	CUdeviceptr ptr;
	CUcontext context;
	size_t left;
	int version;
	void *function;

	begin();
	NEED(cuMemAlloc_v2(&ptr, MIB));
	fflush(stdout);
	if (fork()) {
		wait(NULL);
		return;
	}
	ASK_ABOUT("child: cuMemGetInfo", cuMemGetInfo_v2(&left, NULL));
	ASK_ABOUT("child: cuMemFree", cuMemFree_v2(ptr));
	ASK_ABOUT("child: cuCtxGetCurrent", cuCtxGetCurrent(&context));
	ASK_ABOUT("child: cuInit", cuInit(0));
	ASK_ABOUT("child: cuDriverGetVersion", cuDriverGetVersion(&version));
	ASK_ABOUT("child: cuGetProcAddress",
		  cuGetProcAddress_v2("cuMemFree", &function, 12000, 0, NULL));
	ASK_ABOUT("child: export", export_range(ptr, 64 * KIB));
	_exit(0);
}
