/* SPDX-License-Identifier: MIT */
/*
 * A program that is linked with two copies of libibverbs, and looks up the functions of the second
 * one (its argument): what is registered with these is the second one's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "hook/cuda/abi.h"
#include "recorder.h"

#define FIND(handle, name) ((__typeof__(&name))dlsym(handle, #name))

static void count(const char *when, void *second)
{
	printf("%s: %u in the first, %u in the second\n", when, recorder_open_mrs(),
	       FIND(second, recorder_open_mrs)());
}

int main(int argc, char **argv)
{
	void *second = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	CUcontext cuda;
	CUdeviceptr p;

	if (!second || cuInit(0) || cuDevicePrimaryCtxRetain(&cuda, 0) || cuCtxSetCurrent(cuda) ||
	    cuMemAlloc_v2(&p, 65536))
		return 2;
	context = FIND(second, ibv_open_device)(FIND(second, ibv_get_device_list)(NULL)[0]);
	pd = FIND(second, ibv_alloc_pd)(context);
	mr = FIND(second, ibv_reg_mr)(pd, (void *)p, 65536, IBV_ACCESS_LOCAL_WRITE);
	count("registered", second);
	/* Now the first one is known, too. */
	ibv_close_device(ibv_open_device(ibv_get_device_list(NULL)[0]));
	printf("deregistered: %d\n", mr ? FIND(second, ibv_dereg_mr)(mr) : -1);
	cuMemFree_v2(p);
	count("freed", second);
	return 0;
}
