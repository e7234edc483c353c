/* SPDX-License-Identifier: MIT */
/*
 * Opens a plugin that uses CUDA, with the given flags, and runs it: so Python, Java and MPI
 * libraries bring CUDA into a process whose program does not use it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int flags_named(const char *name)
{
	int flags = RTLD_NOW;

	if (strstr(name, "lazy") != NULL)
		flags = RTLD_LAZY;
	if (strstr(name, "global") != NULL)
		flags |= RTLD_GLOBAL;
	if (strstr(name, "deepbind") != NULL)
		flags |= RTLD_DEEPBIND;
	return flags;
}

int main(int argc, char **argv)
{
	int (*app_main)(int argc, char **argv, int at);
	void *plugin;

	if (argc < 5) {
		fprintf(stderr, "usage: %s PLUGIN [lazy][global][deepbind][dlmopen] ROAD GROUP\n",
			argv[0]);
		return 2;
	}
	plugin = strstr(argv[2], "dlmopen") != NULL
			 ? dlmopen(LM_ID_BASE, argv[1], flags_named(argv[2]))
			 : dlopen(argv[1], flags_named(argv[2]));
	if (plugin == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	app_main = (int (*)(int, char **, int))dlsym(plugin, "app_main");
	return app_main != NULL ? app_main(argc, argv, 3) : 2;
}
