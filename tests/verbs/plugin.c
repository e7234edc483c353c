/* SPDX-License-Identifier: MIT */
/*
 * plugin FILE [lazy|deepbind] ROAD: a program that knows neither CUDA nor verbs loads the app as a
 * plugin.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	int flags = RTLD_LOCAL |
		    (argc > 2 && strcmp(argv[2], "deepbind") == 0 ? RTLD_NOW | RTLD_DEEPBIND
								  : RTLD_LAZY);
	void *plugin = argc > 2 ? dlopen(argv[1], flags) : NULL;
	int (*run)(int, char **) = plugin ? (int (*)(int, char **))dlsym(plugin, "main") : NULL;

	if (!run) {
		fprintf(stderr, "plugin: %s\n", dlerror());
		return 2;
	}
	return run(argc - 2, argv + 2);
}
