/* SPDX-License-Identifier: MIT */
/*
 * A preloaded library of another project that wraps allocation and free and passes them on through
 * RTLD_NEXT. It is built several times under several names: the libraries must be called in the
 * order of the preload, whatever stands between them.
 */
#define _GNU_SOURCE
#include "app.h"

#include <dlfcn.h>
#include <stdarg.h>

#define EXPORT __attribute__((visibility("default")))

static void *next(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (function == NULL) {
		app_say(INTERPOSER ": %s", dlerror());
		_exit(1);
	}
	return function;
}

void app_say(const char *format, ...)
{
	char line[256];
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(line, sizeof(line) - 1, format, arguments);
	va_end(arguments);
	line[length] = '\n';
	if (write(STDOUT_FILENO, line, length + 1) < 0)
		_exit(121);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t size)
{
	CUresult (*real)(CUdeviceptr *, size_t) = next("cuMemAlloc_v2");

	app_say(INTERPOSER " sees an allocation of %zu", size);
	return real(at, size);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr at)
{
	CUresult (*real)(CUdeviceptr) = next("cuMemFree_v2");

	app_say(INTERPOSER " sees a free");
	return real(at);
}

/* No other library watches this call. */
EXPORT CUresult cuCtxSynchronize(void)
{
	CUresult (*real)(void) = next("cuCtxSynchronize");

	app_say(INTERPOSER " sees a synchronization");
	return real();
}
