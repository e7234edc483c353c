/* SPDX-License-Identifier: MIT */
/* A program that opens libcuda, uses it and closes it, more than once. */
#include "app.h"

#include <dlfcn.h>

#define SIZE (1u << 20)

/* Calls the function that dlsym finds now: each call looks it up again. */
#define THROUGH(handle, addr, fn, ...)                                                   \
	({                                                                               \
		__typeof__(&fn) found_ = (__typeof__(&fn))dlsym(handle, #fn);            \
		app_before();                                                            \
		CUresult result_ = found_ != NULL ? found_(__VA_ARGS__) : APP_NOT_THERE; \
		int errno_ = errno;                                                      \
		app_after(#fn, result_, errno_, (uint64_t)(addr), true);                 \
	})

static bool is_mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	bool found = false;
	char line[4096];

	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
		found |= strstr(line, "/libcuda.so") != NULL;
	if (maps != NULL)
		fclose(maps);
	return found;
}

int app_dlclose(int argc, char **argv)
{
	CUcontext context = NULL;
	CUresult (*init)(unsigned);
	CUdeviceptr at = 0;
	void *libcuda;
	int round;

	(void)argc, (void)argv;
	for (round = 0; round < 3; round++) {
		libcuda = dlopen("libcuda.so.1", RTLD_NOW);
		if (libcuda == NULL) {
			app_say("%s", dlerror());
			return 1;
		}
		init = (CUresult(*)(unsigned))dlsym(libcuda, "cuInit");
		app_say("round %d: %d", round, init(0));
		THROUGH(libcuda, 0, cuDevicePrimaryCtxRetain, &context, 0);
		((CUresult(*)(CUcontext))dlsym(libcuda, "cuCtxSetCurrent"))(context);
		THROUGH(libcuda, at, cuMemAlloc_v2, &at, SIZE);
		THROUGH(libcuda, at, cuMemFree_v2, at);
		THROUGH(libcuda, 0, cuDevicePrimaryCtxRelease_v2, 0);
		app_say("closed: %d; libcuda is %s", dlclose(libcuda),
			is_mapped() ? "mapped" : "gone");
	}
	return 0;
}
