/* SPDX-License-Identifier: MIT */
/*
 * tries [keep|all] LIBRARY...: looks for a driver that works, as programs do that run anywhere: it
 * opens one libcuda after another, and closes it again, unless they are kept, if its cuInit fails.
 * Or it uses all.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cache/pindown.h"
#include "hook/cuda/abi.h"

#define FIND(handle, name) ((typeof(name) *)dlsym(handle, #name))

static const char *file_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* With pindown: can the memory be registered? */
static void get_and_put(CUdeviceptr p)
{
	typeof(pindown_get) *get = FIND(RTLD_DEFAULT, pindown_get);
	pindown_region *region = NULL;

	if (!get)
		return;
	fprintf(stderr, "get %d\n", get(p, 4096, 0, &region));
	if (region)
		FIND(RTLD_DEFAULT, pindown_put)(region);
}

static void use(void *handle)
{
	typeof(cuCtxCreate_v2) *create = FIND(handle, cuCtxCreate_v2);
	typeof(cuMemAlloc_v2) *allocate = FIND(handle, cuMemAlloc_v2);
	typeof(cuMemFree_v2) *end = FIND(handle, cuMemFree_v2);
	CUcontext context;
	CUdeviceptr p = 0;

	printf("  context %d", create(&context, 0, 0));
	printf(", allocate %d", allocate(&p, 1 << 20));
	get_and_put(p);
	printf(", free %d", end(p));
	printf(", free again %d\n", end(p));
}

int main(int argc, char **argv)
{
	bool all = argc > 1 && !strcmp(argv[1], "all");
	bool keeps = all || (argc > 1 && !strcmp(argv[1], "keep"));

	for (int i = 1 + keeps; i < argc; i++) {
		void *handle = dlopen(argv[i], RTLD_NOW);
		CUresult result;

		if (!handle) {
			printf("%s: not there\n", file_of(argv[i]));
			continue;
		}
		/* All functions are looked up before the first is called. */
		dlsym(handle, "cuMemAlloc_v2");
		dlsym(handle, "cuMemFree_v2");
		result = FIND(handle, cuInit)(0);
		printf("%s: cuInit %d\n", file_of(argv[i]), result);
		if (result == CUDA_SUCCESS) {
			use(handle);
			if (!all)
				return 0;
		}
		if (keeps)
			continue;
		dlclose(handle);
		handle = dlopen(argv[i], RTLD_NOW | RTLD_NOLOAD);
		printf("  closed, %s\n", handle ? "and still loaded" : "and unloaded");
	}
	return !all;
}
