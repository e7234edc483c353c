/* SPDX-License-Identifier: MIT */
/*
 * A preloaded library of another project that wraps allocation and free and passes them on through
 * RTLD_NEXT. It is built several times under several names: the libraries must be called in the
 * order of the preload, whatever stands between them.
 */
#define _GNU_SOURCE
#include "app.h"
#include "say.h"

#include <dlfcn.h>

#define EXPORT __attribute__((visibility("default")))

static void *next(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (function == NULL) {
		say(INTERPOSER ": %s", dlerror());
		_exit(1);
	}
	return function;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t size)
{
	CUresult (*real)(CUdeviceptr *, size_t) = next("cuMemAlloc_v2");

	say(INTERPOSER " sees an allocation of %zu", size);
	return real(at, size);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr at)
{
	CUresult (*real)(CUdeviceptr) = next("cuMemFree_v2");

	say(INTERPOSER " sees a free");
	return real(at);
}

/* No other library watches this call. */
EXPORT CUresult cuCtxSynchronize(void)
{
	CUresult (*real)(void) = next("cuCtxSynchronize");

	say(INTERPOSER " sees a synchronization");
	return real();
}
