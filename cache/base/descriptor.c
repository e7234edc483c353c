/* SPDX-License-Identifier: MIT */
/* Descriptors of pindown's own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cache/base/descriptor.h"

#define NO_LIMIT (1u << 20) /* what the kernel allows, unless told otherwise: fs.nr_open */

uint64_t pdn_descriptor_limit(void)
{
	struct rlimit files;
	int saved = errno;
	bool known = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < NO_LIMIT;

	errno = saved;
	return known ? files.rlim_cur : NO_LIMIT;
}

/*
 * Half-way up the numbers that the process may have, but no higher than is of use: the kernel's
 * table, which each fork copies, reaches up to the highest number.
 */
static int lowest_number_for_us(void)
{
	uint64_t half = pdn_descriptor_limit() / 2;

	return half < 16384 ? (int)half : 16384;
}

int pdn_descriptor_duplicate(int fd)
{
	return (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, lowest_number_for_us());
}

int pdn_descriptor_move_up(int fd)
{
	int moved = pdn_descriptor_duplicate(fd);

	if (moved < 0) {
		fcntl(fd, F_SETFD, FD_CLOEXEC);
		return fd;
	}
	pdn_descriptor_close(fd);
	return moved;
}

uint64_t pdn_descriptor_identity(int fd)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0)
		return 0;
	return (st.st_ino ^ (uint64_t)st.st_dev << 40) | 1ull << 63;
}

bool pdn_descriptors_exhausted(void)
{
	/* By system call number, as it is closed: ThreadSanitizer is to see neither. */
	int fd = (int)syscall(SYS_eventfd2, 0, EFD_CLOEXEC);

	if (fd < 0)
		return errno == EMFILE || errno == ENFILE;
	pdn_descriptor_close(fd);
	return false;
}

void pdn_descriptor_close(int fd)
{
	syscall(SYS_close, fd);
}
