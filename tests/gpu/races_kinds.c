/* SPDX-License-Identifier: MIT */
/* The allocation and the free of each kind of memory. */
#define _GNU_SOURCE
#include "races.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/pindown.h"

#define DRIVER(fn, ...) driver(fn(__VA_ARGS__), #fn)

/* Small pieces share pages, and large ones have blocks of their own. */
static size_t some_size(uint64_t random)
{
	static const size_t sizes[] = {100, 5000,    65536,	    200000,
				       MIB, 2 * MIB, 3 * MIB + 777, 4 * MIB};

	return sizes[random % (sizeof(sizes) / sizeof(sizes[0]))];
}

static bool make_linear(struct piece *piece, uint64_t random)
{
	piece->size = some_size(random);
	return DRIVER(cuMemAlloc_v2, &piece->at, piece->size);
}

static bool end_linear(struct piece *piece, uint64_t random)
{
	(void)random;
	return DRIVER(cuMemFree_v2, piece->at);
}

static bool make_ordered(struct piece *piece, uint64_t random)
{
	piece->size = some_size(random);
	return DRIVER(cuMemAllocAsync, &piece->at, piece->size, NULL);
}

static bool end_ordered(struct piece *piece, uint64_t random)
{
	return random % 4 ? DRIVER(cuMemFreeAsync, piece->at, NULL)
			  : DRIVER(cuMemFree_v2, piece->at);
}

/* ---- mappings ------------------------------------------------------------------------------- */

static bool map_part(struct piece *piece, unsigned part)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr at = piece->at + part * piece->part;

	return DRIVER(cuMemCreate, &piece->handles[part], piece->part, &prop, 0) &&
	       DRIVER(cuMemMap, at, piece->part, 0, piece->handles[part], 0) &&
	       DRIVER(cuMemSetAccess, at, piece->part, &access, 1);
}

static bool make_mapped(struct piece *piece, uint64_t random)
{
	(void)random;
	piece->part = 2 * MIB;
	piece->size = PARTS * piece->part;
	return DRIVER(cuMemAddressReserve, &piece->at, piece->size, 0, 0, 0) &&
	       map_part(piece, 0) && map_part(piece, 1);
}

static bool release(const struct piece *piece)
{
	return DRIVER(cuMemRelease, piece->handles[0]) && DRIVER(cuMemRelease, piece->handles[1]);
}

static bool unmap(const struct piece *piece, bool at_once)
{
	if (at_once)
		return DRIVER(cuMemUnmap, piece->at, piece->size);
	return DRIVER(cuMemUnmap, piece->at + piece->part, piece->part) &&
	       DRIVER(cuMemUnmap, piece->at, piece->part);
}

static bool end_mapped(struct piece *piece, uint64_t random)
{
	bool first = random & 1, ok = !first || release(piece);

	return ok && unmap(piece, random & 2) && (first || release(piece)) &&
	       DRIVER(cuMemAddressFree, piece->at, piece->size);
}

/* ---- memory that ends with its context ------------------------------------------------------ */

static bool make_owned(struct piece *piece, uint64_t random)
{
	CUcontext popped;
	bool ok;

	piece->size = some_size(random);
	if (!DRIVER(cuCtxCreate_v2, &piece->context, 0, 0))
		return false;
	ok = DRIVER(cuMemAlloc_v2, &piece->at, piece->size);
	return DRIVER(cuCtxPopCurrent_v2, &popped) && ok;
}

static bool end_owned(struct piece *piece, uint64_t random)
{
	(void)random;
	return DRIVER(cuCtxDestroy_v2, piece->context);
}

/* ---- what can't be pinned ------------------------------------------------------------------- */

static bool make_managed(struct piece *piece, uint64_t random)
{
	piece->size = some_size(random);
	return DRIVER(cuMemAllocManaged, &piece->at, piece->size, CU_MEM_ATTACH_GLOBAL);
}

static bool make_host(struct piece *piece, uint64_t random)
{
	void *at = NULL;
	bool ok;

	piece->size = some_size(random);
	ok = DRIVER(cuMemAllocHost_v2, &at, piece->size);
	piece->at = (uintptr_t)at;
	return ok;
}

static bool end_host(struct piece *piece, uint64_t random)
{
	(void)random;
	return DRIVER(cuMemFreeHost, (void *)(uintptr_t)piece->at);
}

/* ---- another process's memory ---------------------------------------------------------------- */

#define MAX_EXPORTED 256

static struct {
	CUipcMemHandle handles[MAX_EXPORTED];
	unsigned count;
	pid_t child;
	int to_child;
} exporter;

/* Prints its handles, and stays until its input ends. */
int exporter_main(unsigned count)
{
	CUipcMemHandle handle;
	CUdeviceptr at;
	char byte;

	for (unsigned i = 0; i < count; i++)
		if (cuMemAlloc_v2(&at, 4 * MIB) != CUDA_SUCCESS ||
		    cuIpcGetMemHandle(&handle, at) != CUDA_SUCCESS ||
		    write(STDOUT_FILENO, &handle, sizeof(handle)) != sizeof(handle))
			return 1;
	return read(STDIN_FILENO, &byte, 1) == 0 ? 0 : 1;
}

static bool spawn(unsigned count, int input, int output)
{
	char number[16];
	char *arguments[] = {"races", "--export", number, NULL};
	posix_spawn_file_actions_t actions;
	bool done;

	snprintf(number, sizeof(number), "%u", count);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
	done = posix_spawn(&exporter.child, "/proc/self/exe", &actions, NULL, arguments, environ) ==
	       0;
	posix_spawn_file_actions_destroy(&actions);
	return done;
}

bool exporter_start(unsigned count)
{
	int to[2], from[2];
	bool ok;

	exporter.count = count < MAX_EXPORTED ? count : MAX_EXPORTED;
	if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
		return false;
	ok = spawn(exporter.count, to[0], from[1]);
	close(to[0]);
	close(from[1]);
	exporter.to_child = to[1];
	for (unsigned i = 0; ok && i < exporter.count; i++)
		ok = read(from[0], &exporter.handles[i], sizeof(CUipcMemHandle)) ==
		     sizeof(CUipcMemHandle);
	close(from[0]);
	return ok;
}

void exporter_end(void)
{
	if (exporter.child > 0) {
		close(exporter.to_child);
		waitpid(exporter.child, NULL, 0);
	}
}

static bool make_imported(struct piece *piece, uint64_t random)
{
	(void)random;
	piece->size = 4 * MIB;
	return DRIVER(cuIpcOpenMemHandle_v2, &piece->at,
		      exporter.handles[piece->number % exporter.count],
		      CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static bool end_imported(struct piece *piece, uint64_t random)
{
	(void)random;
	return DRIVER(cuIpcCloseMemHandle, piece->at);
}

const struct kind kinds[] = {
	{"linear", PINDOWN_OK, false, 4, make_linear, end_linear},
	{"ordered", PINDOWN_OK, false, 4, make_ordered, end_ordered},
	{"mapped", PINDOWN_OK, false, 4, make_mapped, end_mapped},
	{"context", PINDOWN_OK, false, 64, make_owned, end_owned},
	{"managed", PINDOWN_ERR_MANAGED, true, 8, make_managed, end_linear},
	{"host", PINDOWN_ERR_HOST, true, 8, make_host, end_host},
	{"ipc", PINDOWN_OK, true, 16, make_imported, end_imported},
	{.name = NULL},
};
