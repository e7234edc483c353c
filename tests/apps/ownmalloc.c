/* SPDX-License-Identifier: MIT */
/*
 * A preloaded allocator of another project, which looks the C library's allocator up with dlsym at
 * its first use, as several do. A library that interposes dlsym must not allocate there: the call
 * would come back here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static void *(*real_malloc)(size_t);
static void (*real_free)(void *);
static __thread int looking;

static void *find(const char *name)
{
	static const char complaint[] = "malloc was called from within dlsym\n";
	void *function;

	if (looking++ != 0 && write(STDERR_FILENO, complaint, sizeof(complaint) - 1) > 0)
		_exit(99);
	function = dlsym(RTLD_NEXT, name);
	looking--;
	return function;
}

EXPORT void *malloc(size_t size)
{
	if (real_malloc == NULL)
		real_malloc = (void *(*)(size_t))find("malloc");
	return real_malloc(size);
}

EXPORT void free(void *at)
{
	if (real_free == NULL)
		real_free = (void (*)(void *))find("free");
	real_free(at);
}

EXPORT void *calloc(size_t count, size_t size)
{
	void *at = malloc(count * size);

	return at != NULL ? memset(at, 0, count * size) : NULL;
}
