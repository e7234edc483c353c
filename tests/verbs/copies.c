/* SPDX-License-Identifier: MIT */
/*
 * copies PLUGIN...: a program that knows neither CUDA nor verbs loads plug-ins, each with a
 * libibverbs of its own: linked with one under another name (as in Python wheels), with the
 * system's, statically, or through functions of its own that open one. Each registers host memory
 * and GPU memory. "close:PLUGIN": it is unloaded again, and registers host memory only. Each
 * registers host memory in its destructor, too.
 *
 * The same file is the plug-ins (COPIES_PLUGIN).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "hook/cuda/abi.h"
#include "recorder.h"

#if defined(COPIES_PLUGIN)
static const char *registered(struct ibv_pd *pd, void *addr)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, addr, 4096, IBV_ACCESS_LOCAL_WRITE);

	if (!mr)
		return strerror(errno);
	if (mr->pd != pd || mr->addr != addr)
		return "another region";
	return ibv_dereg_mr(mr) ? "registered, and not deregistered" : "registered";
}

/* In the middle of its dlclose(), or at the end of the program. */
static void __attribute__((destructor)) register_at_the_end(void)
{
	static char memory[4096];
	struct ibv_context *context = ibv_open_device(ibv_get_device_list(NULL)[0]);
	struct ibv_pd *pd = ibv_alloc_pd(context);

	printf("destructor: host memory %s\n", registered(pd, memory));
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
}

int work(const char *name, bool with_gpu);
int work(const char *name, bool with_gpu)
{
	static char memory[4096];
	struct ibv_context *context = ibv_open_device(ibv_get_device_list(NULL)[0]);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CUcontext cuda;
	CUdeviceptr p;

	printf("%s: host memory %s\n", name, registered(pd, memory));
	if (with_gpu && !cuInit(0) && !cuDevicePrimaryCtxRetain(&cuda, 0) &&
	    !cuCtxSetCurrent(cuda) && !cuMemAlloc_v2(&p, 65536)) {
		printf("%s: GPU memory %s\n", name, registered(pd, (void *)p));
		printf("%s: GPU memory again %s\n", name, registered(pd, (void *)p));
		cuMemFree_v2(p);
	}
	printf("%s: the end %d %d, %u left\n", name, ibv_dealloc_pd(pd), ibv_close_device(context),
	       recorder_open_mrs());
	return 0;
}
#else
int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		bool closes = !strncmp(argv[i], "close:", 6);
		void *plugin = dlopen(argv[i] + (closes ? 6 : 0), RTLD_NOW | RTLD_LOCAL);
		int (*run)(const char *, bool) =
			plugin ? (int (*)(const char *, bool))dlsym(plugin, "work") : NULL;

		if (!run) {
			fprintf(stderr, "copies: %s\n", dlerror());
			return 2;
		}
		run(strrchr(argv[i], '/') + 1, !closes);
		if (closes)
			dlclose(plugin);
	}
	return 0;
}
#endif
