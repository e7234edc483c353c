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

/* A machine without what programs are built with has the library only under the second name. */
static const char *const names[] = {"libpindown.so", "libpindown.so.0", NULL};

/* Stores the path of the library in `folder`, which may be relative and ends with a slash. */
static bool find_in(const char *folder, char *path, size_t capacity)
{
	for (unsigned i = 0; names[i]; i++) {
		char candidate[PATH_MAX + 40], real[PATH_MAX];

		snprintf(candidate, sizeof(candidate), "%s%s", folder, names[i]);
		if (access(candidate, R_OK) == 0 && realpath(candidate, real) &&
		    strlen(real) < capacity) {
			strcpy(path, real);
			return true;
		}
	}
	return false;
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
		char folder[PATH_MAX + 16];

		snprintf(folder, sizeof(folder), "%.*s/%s", (int)(slash - self), self, places[i]);
		if (find_in(folder, path, capacity))
			return true;
	}
	for (unsigned i = 0; names[i]; i++) {
		snprintf(path, capacity, "%s/%s", PDN_LIBDIR, names[i]);
		if (access(path, R_OK) == 0)
			return true;
	}
	snprintf(path, capacity, "%s/%s", PDN_LIBDIR, names[0]);
	return false;
}
