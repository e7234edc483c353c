// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "tools/base/regular.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file that O_PATH has found; by its name again where there is no /proc. */
static int open_found(int found, const char *path, int flags)
{
	char link[40];
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", found);
	fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return fd < 0 && errno == ENOENT ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags)
					 : fd;
}

int open_regular(const char *path, int flags)
{
	int found = open(path, O_PATH | O_CLOEXEC | flags), fd = -1, error;
	struct stat status;

	if (found < 0)
		return -1;
	if (fstat(found, &status) == 0) {
		errno = EINVAL;
		if (S_ISREG(status.st_mode))
			fd = open_found(found, path, flags);
	}
	error = errno;
	close(found);
	errno = error;
	return fd;
}
