// SPDX-License-Identifier: MIT
/* Finds libpindown.so. */
#define _GNU_SOURCE
#include "tools/system/preload.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#ifndef PDN_LIBDIR
#define PDN_LIBDIR "/usr/local/lib"
#endif

const char *preload_installed(void)
{
	return PDN_LIBDIR;
}

bool preload_find(char *path, size_t capacity)
{
	static const char *const places[] = {"", "../lib/", "../lib64/", NULL};
	char self[PATH_MAX] = "", *slash;

	/* Without /proc, use the path by which the command was started. */
	if (!realpath("/proc/self/exe", self) &&
	    !realpath((const char *)getauxval(AT_EXECFN), self))
		self[0] = '\0';
	slash = strrchr(self, '/');
	for (unsigned i = 0; slash && places[i]; i++) {
		char candidate[PATH_MAX + 40], real[PATH_MAX];

		snprintf(candidate, sizeof(candidate), "%.*s/%slibpindown.so", (int)(slash - self),
			 self, places[i]);
		if (access(candidate, R_OK) == 0 && realpath(candidate, real) &&
		    strlen(real) < capacity) {
			strcpy(path, real);
			return true;
		}
	}
	snprintf(path, capacity, "%s/libpindown.so", PDN_LIBDIR);
	return access(path, R_OK) == 0;
}
