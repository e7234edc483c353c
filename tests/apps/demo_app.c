/* SPDX-License-Identifier: MIT */
/*
 * The demo's application: allocates GPU memory, fills it, sends it twice, frees it, and does all
 * that again. It prints one fact a line, as "what: value".
 *
 * With the argument "probe" it only reports by its exit status whether this machine's driver can do
 * all this.
 */
#include <stdio.h>
#include <string.h>

#include "demo_transport.h"

#define MIB  (1u << 20)
#define SIZE (64u * MIB)

static bool ready(char *name, size_t length)
{
	CUcontext context;
	CUdevice device;

	return cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
	       cuDeviceGetName(name, (int)length, device) == CUDA_SUCCESS &&
	       cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS &&
	       cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

static size_t free_memory(void)
{
	size_t available = 0, total;

	cuMemGetInfo_v2(&available, &total);
	return available;
}

static bool send_message(const char *which, const char *text, CUdeviceptr at)
{
	struct demo_sent sent, again;
	char message[32] = "";

	strcpy(message, text);
	if (cuMemcpyHtoD_v2(at, message, sizeof(message)) != CUDA_SUCCESS ||
	    !demo_send(at, SIZE, &sent) || !demo_send(at, SIZE, &again))
		return false;
	printf("%s registration: %s\n", which,
	       sent.from_cache ? "found in the cache" : "registered now");
	printf("%s registration is of: %s\n", which,
	       sent.right_memory ? "this buffer" : "the freed buffer");
	printf("%s wire: %.31s\n", which, sent.readable ? sent.first_bytes : "not readable here");
	printf("%s registration again: %s\n", which,
	       again.from_cache ? "found in the cache" : "registered now");
	return true;
}

static int run(void)
{
	size_t before_free, returned;
	CUdeviceptr first, second;

	if (cuMemAlloc_v2(&first, SIZE) != CUDA_SUCCESS || !send_message("first", "hello", first))
		return 1;
	before_free = free_memory();
	if (cuMemFree_v2(first) != CUDA_SUCCESS)
		return 1;
	returned = free_memory() - before_free;
	printf("memory returned: %zu of %u MiB\n", returned / MIB, SIZE / MIB);
	if (cuMemAlloc_v2(&second, SIZE) != CUDA_SUCCESS)
		return 1;
	printf("second address: %s\n", second == first ? "the same" : "another");
	if (!send_message("second", "goodbye", second))
		return 1;
	cuMemFree_v2(second);
	demo_close();
	cuDevicePrimaryCtxRelease_v2(0);
	return 0;
}

static int probe(void)
{
	struct demo_sent sent;
	CUdeviceptr at;
	bool able;

	if (cuMemAlloc_v2(&at, SIZE) != CUDA_SUCCESS)
		return 1;
	able = demo_send(at, SIZE, &sent);
	demo_close();
	cuMemFree_v2(at);
	return able ? 0 : 1;
}

int main(int argc, char **argv)
{
	char name[128] = "";

	if (!ready(name, sizeof(name))) {
		fprintf(stderr, "%s: no GPU that can be used\n", argv[0]);
		return 1;
	}
	if (argc > 1 && strcmp(argv[1], "probe") == 0)
		return probe();
	printf("device: %s\n", name);
	return run();
}
