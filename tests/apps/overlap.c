/* SPDX-License-Identifier: MIT */
/*
 * overlap asks | exports | registers: one thread frees memory, and another asks the driver about an
 * address inside it meanwhile, exports a page of it, or registers it with pindown.
 * SIM_DELAY=cuMemFree_v2:... keeps the free in the driver.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hook/cuda/abi.h"
#include "cache/pindown.h"
#include "tests/sim/sim.h"

#define SIZE (4u << 20)
#define AT   (1u << 20)

static CUdeviceptr p;

static void *free_it(void *unused)
{
	cuMemFree_v2(p);
	return unused;
}

static int ask(void)
{
	unsigned long long id;

	return cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p + AT);
}

static int export_a_page(void)
{
	int fd = -1;

	return cuMemGetHandleForAddressRange(&fd, p + AT, 65536,
					     CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

static int register_it(void)
{
	pindown_region *region;
	int (*get)(uint64_t, size_t, unsigned, pindown_region **) =
		(int (*)(uint64_t, size_t, unsigned, pindown_region **))dlsym(RTLD_DEFAULT,
									      "pindown_get");

	return get ? get(p + AT, 4096, 0, &region) : 1;
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : "";
	CUcontext context;
	pthread_t thread;
	int result;

	if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0) || cuMemAlloc_v2(&p, SIZE))
		return 2;
	if (pthread_create(&thread, NULL, free_it, NULL))
		return 2;
	while (!sim_calls("cuMemFree_v2"))
		usleep(1000);
	result = strcmp(what, "asks") == 0	? ask()
		 : strcmp(what, "exports") == 0 ? export_a_page()
						: register_it();
	pthread_join(thread, NULL);
	printf("%d\n", result);
	return 0;
}
