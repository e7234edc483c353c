/* SPDX-License-Identifier: MIT */
/* Descriptors of pindown's own. */
#define _GNU_SOURCE
#include "cache/base/process/descriptor.h"

#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cache/base/process/system.h"

#define NO_LIMIT (1u << 20) /* what the kernel allows, unless told otherwise: fs.nr_open */

/* Relaxed: any answer will do as a first guess. */
static uint64_t last_limit = NO_LIMIT;

uint64_t pdn_descriptor_limit(void)
{
	uint64_t limit = pdn_sys_limit(RLIMIT_NOFILE);

	if (limit > NO_LIMIT)
		limit = NO_LIMIT;
	__atomic_store_n(&last_limit, limit, __ATOMIC_RELAXED);
	return limit;
}

/*
 * Half-way up the numbers that the process may have, but no higher than is of use: the kernel's
 * table, which each fork copies, reaches up to the highest number.
 */
static int duplicate_within(int fd, uint64_t limit)
{
	uint64_t half = limit / 2, lowest = half < 16384 ? half : 16384;

	return (int)pdn_sys(SYS_fcntl, fd, F_DUPFD_CLOEXEC, lowest);
}

/* A pin has just asked for the limit (pdn_dmabufs_max()): it is not asked twice, if that serves. */
int pdn_descriptor_duplicate(int fd)
{
	int copy = duplicate_within(fd, __atomic_load_n(&last_limit, __ATOMIC_RELAXED));

	return copy < 0 ? duplicate_within(fd, pdn_descriptor_limit()) : copy;
}

int pdn_descriptor_move_up(int fd)
{
	int moved = pdn_descriptor_duplicate(fd);

	if (moved < 0) {
		pdn_sys(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
		return fd;
	}
	pdn_descriptor_close(fd);
	return moved;
}

uint64_t pdn_descriptor_identity(int fd)
{
	struct stat st;

	if (fd < 0 || !pdn_sys_fstat(fd, &st))
		return 0;
	return (st.st_ino ^ (uint64_t)st.st_dev << 40) | 1ull << 63;
}

/*
 * A file that is opened here is open in the parent, too, only if both have one table. kcmp() would
 * tell as well, but many containers refuse it, and a filter of system calls may kill a process for
 * a call that is rare. If the parent's /proc can't be read, the answer is no, and the child closes
 * the descriptors of its parent's pins. If the table is shared all the same, they are then closed
 * in the parent as well, which notices that as if the program had closed them, and pins again.
 */
bool pdn_descriptors_are_shared(void)
{
	struct stat here, there;
	char path[48];
	bool same = false;
	/* The directory of this process: nobody has it open under that number by chance. */
	int fd = pdn_sys_open("/proc/self", O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getppid(), fd);
	if (pdn_sys_fstat(fd, &here) && pdn_sys_stat(path, &there))
		same = here.st_ino == there.st_ino && here.st_dev == there.st_dev;
	pdn_descriptor_close(fd);
	return same;
}

bool pdn_descriptors_exhausted(void)
{
	int fd = (int)pdn_sys(SYS_eventfd2, 0, EFD_CLOEXEC);

	if (fd < 0)
		return fd == -EMFILE || fd == -ENFILE;
	pdn_descriptor_close(fd);
	return false;
}

void pdn_descriptor_close(int fd)
{
	pdn_sys(SYS_close, fd);
}
