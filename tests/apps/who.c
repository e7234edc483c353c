/* SPDX-License-Identifier: MIT */
/*
 * A library in a chain: each has a who() that says its name and calls the next one's, found by
 * RTLD_NEXT, which depends on the caller of dlsym. It is built as several libraries, and loads a
 * neighbour that only its own RUNPATH leads to, which depends on the caller of dlopen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void who(void)
{
	void (*next)(void) = (void (*)(void))dlsym(RTLD_NEXT, "who");
	const char *error = dlerror();

	printf("%s, then %s\n", WHO, next != NULL ? "the next" : "nobody");
	if (next != NULL)
		next();
	else
		printf("%s\n", error);
}

EXPORT const char *whose(void)
{
	return WHO;
}

/* Like whose(), but for the next library, with a symbol version that glibc has. */
EXPORT void *versioned_malloc(void)
{
	return dlvsym(RTLD_NEXT, "malloc", "GLIBC_2.2.5");
}

EXPORT void *open_neighbour(const char *name)
{
	return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}
