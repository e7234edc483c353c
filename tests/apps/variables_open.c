/* SPDX-License-Identifier: MIT */
/*
 * variables_open [global:|lazy:]LIBRARY[=FUNCTION]...: opens one after another, and calls the
 * function: app_main() runs the group "linear".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int open_one(char *what)
{
	int flags = strncmp(what, "lazy:", 5) == 0 ? RTLD_LAZY : RTLD_NOW;
	char *colon = strchr(what, ':'), *file = colon ? colon + 1 : what;
	char *function = strchr(file, '=');
	int (*call)(void);
	void *library;

	if (strncmp(what, "global:", 7) == 0)
		flags |= RTLD_GLOBAL;
	if (function)
		*function++ = 0;
	library = dlopen(file, flags);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	if (function && strcmp(function, "app_main") == 0) {
		char *arguments[] = {"app", "linked", "linear", NULL};

		return ((int (*)(int, char **, int))dlsym(library, function))(3, arguments, 1);
	}
	call = function ? (int (*)(void))dlsym(library, function) : NULL;
	return call ? call() : 0;
}

int main(int argc, char **argv)
{
	int status = 0;

	for (int i = 1; i < argc && !status; i++)
		status = open_one(argv[i]);
	printf("status %d\n", status);
	return status;
}
