/* SPDX-License-Identifier: MIT */
/*
 * A preloaded library that allocates and frees memory of its own inside each free of the program: a
 * wrapper of the free is entered again from within.
 */
#define _GNU_SOURCE
#include "app.h"

#include <dlfcn.h>

#define EXPORT __attribute__((visibility("default")))

static __thread int depth;

/* Through the symbol, like any other caller. */
static void use_some_memory(void)
{
	CUresult (*allocate)(CUdeviceptr *, size_t) = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
	CUresult (*release)(CUdeviceptr) = dlsym(RTLD_DEFAULT, "cuMemFree_v2");
	CUdeviceptr at = 0;
	CUresult result;

	app_quiet = true;
	app_before();
	result = allocate(&at, 12345);
	app_after("cuMemAlloc_v2", result, errno, at, true);
	app_before();
	result = release(at);
	app_after("cuMemFree_v2", result, errno, at, true);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr at)
{
	CUresult (*real)(CUdeviceptr) = dlsym(RTLD_NEXT, "cuMemFree_v2");
	int error = errno;
	CUresult result;

	if (depth++ == 0) {
		if (gettid() == getpid()) /* the order of other threads' lines is not fixed */
			app_say("inside a free:");
		use_some_memory();
	}
	errno = error;
	result = real(at);
	depth--;
	return result;
}
