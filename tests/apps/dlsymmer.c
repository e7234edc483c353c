/* SPDX-License-Identifier: MIT */
/*
 * A preloaded library of another project that interposes dlsym and dlopen, as HAMi-core does: it
 * answers look-ups of two calls of the driver with functions of its own, and prints the names that
 * are looked up. Its version script gives a version to another function only, so that its dlsym has
 * none.
 */
#define _GNU_SOURCE
#include "app.h"
#include "say.h"

#include <dlfcn.h>

#define EXPORT __attribute__((visibility("default")))

static CUresult (*alloc)(CUdeviceptr *, size_t);
static CUresult (*release)(CUdeviceptr);

/* With a version, since the bare name is this library's own. */
static void *next(const char *name)
{
	void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.34");

	if (found == NULL)
		found = dlvsym(RTLD_NEXT, name, "GLIBC_2.2.5");
	return found != NULL ? found : dlvsym(RTLD_NEXT, name, "GLIBC_2.17");
}

EXPORT int dlsymmer_version(void)
{
	return 1;
}

static CUresult limited_alloc(CUdeviceptr *at, size_t size)
{
	say("the limit is asked about %zu bytes", size);
	return alloc(at, size);
}

static CUresult limited_release(CUdeviceptr at)
{
	say("the limit hears of a free");
	return release(at);
}

EXPORT void *dlsym(void *handle, const char *name)
{
	static void *(*real)(void *, const char *);
	void *found;

	if (real == NULL)
		real = next("dlsym");
	found = real(handle, name);
	if (found == NULL || found == (void *)limited_alloc || found == (void *)limited_release)
		return found;
	if (!strcmp(name, "cuMemAlloc_v2")) {
		alloc = found;
		return limited_alloc;
	}
	if (!strcmp(name, "cuMemFree_v2")) {
		release = found;
		return limited_release;
	}
	return found;
}

EXPORT void *dlopen(const char *file, int flags)
{
	static void *(*real)(const char *, int);

	if (real == NULL)
		real = next("dlopen");
	if (file != NULL && strstr(file, "cuda") != NULL)
		say("%s is opened", strrchr(file, '/') != NULL ? strrchr(file, '/') + 1 : file);
	return real(file, flags);
}
