/* SPDX-License-Identifier: MIT */
/*
 * Who defines a name for a library that is opened with RTLD_DEEPBIND: the library that it brings
 * along, and not the program. Built as the program (DEEP_PROGRAM), as the library that defines the
 * name (DEEP_OWN), and as the plugin that uses it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const char *deep_who(void);

#if defined(DEEP_PROGRAM)

EXPORT const char *deep_who(void)
{
	return "the program";
}

int main(int argc, char **argv)
{
	void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND) : NULL;
	const char *(*ask)(void) = plugin != NULL ? dlsym(plugin, "deep_ask") : NULL;

	if (ask == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	printf("defined by %s\n", ask());
	return 0;
}

#elif defined(DEEP_OWN)

EXPORT const char *deep_who(void)
{
	return "the library";
}

#else

EXPORT const char *deep_ask(void);

EXPORT const char *deep_ask(void)
{
	return deep_who();
}

#endif
