/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "descriptor.h"

/* Half-way up what the process may have. */
static int lowest_number_for_us(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur > 1u << 20)
		return 1 << 19;
	return (int)(files.rlim_cur / 2);
}

int pd_descriptor_move_up(int fd)
{
	int moved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, lowest_number_for_us());

	if (moved < 0) {
		fcntl(fd, F_SETFD, FD_CLOEXEC);
		return fd;
	}
	pd_descriptor_close(fd);
	return moved;
}

uint64_t pd_descriptor_identity(int fd)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0)
		return 0;
	return (st.st_ino ^ (uint64_t)st.st_dev << 40) | 1ull << 63;
}

bool pd_descriptors_exhausted(void)
{
	/* By its number, as it is closed: ThreadSanitizer is to know of neither. */
	int fd = (int)syscall(SYS_eventfd2, 0, EFD_CLOEXEC);

	if (fd < 0)
		return errno == EMFILE || errno == ENFILE;
	pd_descriptor_close(fd);
	return false;
}

void pd_descriptor_close(int fd)
{
	syscall(SYS_close, fd);
}
