/* SPDX-License-Identifier: MIT */
/*
 * Registers much memory, opens a library and forks, in a process with functions of the C library
 * that use CUDA themselves (ownlibc.c). They may be this program's own.
 */
#define _GNU_SOURCE
#include "ownlibc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hook/cuda/abi.h"

#define MOST 20000

static struct own_libc_pindown pindown;
static CUdeviceptr at[MOST];

static bool find(void)
{
	pindown.get = dlsym(RTLD_DEFAULT, "pindown_get");
	pindown.put = dlsym(RTLD_DEFAULT, "pindown_put");
	pindown.flush = dlsym(RTLD_DEFAULT, "pindown_flush");
	return pindown.get != NULL && pindown.put != NULL && pindown.flush != NULL;
}

static bool makes_a_context(void)
{
	CUcontext context;

	return cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS;
}

static bool registers(unsigned count)
{
	pindown_region *region;

	for (unsigned i = 0; i < count; i++) {
		if (cuMemAlloc_v2(&at[i], 65536) != CUDA_SUCCESS ||
		    pindown.get(at[i], 1, 0, &region) != PINDOWN_OK)
			return false;
		pindown.put(region);
	}
	for (unsigned i = 0; i < count; i++)
		if (cuMemFree_v2(at[i]) != CUDA_SUCCESS)
			return false;
	return true;
}

static bool forks(void)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		pindown.flush();
		_exit(0);
	}
	return waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv)
{
	__typeof__(&own_libc_begin) begin = dlsym(RTLD_DEFAULT, "own_libc_begin");
	__typeof__(&own_libc_end) end = dlsym(RTLD_DEFAULT, "own_libc_end");
	unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
	bool good;

	if (count > MOST || begin == NULL || end == NULL || !find() || !begin(&pindown))
		return 2;
	alarm(20);
	good = makes_a_context() && registers(count) && forks() &&
	       dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND) != NULL;
	end();
	if (!good)
		fprintf(stderr, "a call has failed\n");
	return !good;
}
