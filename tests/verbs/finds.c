/* SPDX-License-Identifier: MIT */
/*
 * A library, and a program that is linked with it, which look functions up and print the loader's
 * answers. Built twice: as the library (FINDS_LIBRARY), which is linked with libibverbs, and as the
 * program.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

void finds(const char *name);

#ifdef FINDS_LIBRARY

__attribute__((visibility("default"))) void finds(const char *name)
{
	void *by_default = dlsym(RTLD_DEFAULT, name);
	const char *error = dlerror();

	printf("%s: %s\n", name, by_default ? "found" : error);
	by_default = dlsym(RTLD_NEXT, name);
	error = dlerror();
	printf("%s, next: %s\n", name, by_default ? "found" : error);
}

#else

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		finds(argv[i]);
		/*
		 * The program's own name is not printed: the result for it includes preloaded
		 * libraries.
		 */
		printf("%s, in the program: %s\n", argv[i],
		       dlsym(RTLD_DEFAULT, argv[i]) ? "found" : "not found");
	}
	return 0;
}

#endif
