// SPDX-License-Identifier: MIT
/*
 * descriptors: the system calls that could tell whether a descriptor is still the same file, in ns,
 * by turns in one process. Only those of the stat family name the file by themselves. The others
 * are here for comparison: a call that tells nothing, and those that compare with a descriptor of
 * pindown's own, which the program could replace.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"

#define BATCH	2000u
#define BATCHES 101u

#ifndef F_DUPFD_QUERY
#define F_DUPFD_QUERY 1027 /* Linux 6.10 */
#endif

static int file, duplicate, event, epoll;

static void by_getppid(void)
{
	syscall(SYS_getppid);
}

static void by_fstat(void)
{
	struct stat st;

	syscall(SYS_fstat, file, &st);
}

static void by_newfstatat(void)
{
	struct stat st;

	syscall(SYS_newfstatat, file, "", &st, AT_EMPTY_PATH);
}

static void by_statx(void)
{
	struct statx st;

	syscall(SYS_statx, file, "", AT_EMPTY_PATH, STATX_INO, &st);
}

static void by_lseek(void)
{
	syscall(SYS_lseek, file, 0, SEEK_CUR);
}

static void by_fcntl(void)
{
	syscall(SYS_fcntl, file, F_GETFL);
}

static void by_query(void)
{
	syscall(SYS_fcntl, file, F_DUPFD_QUERY, duplicate);
}

static void by_epoll(void)
{
	struct epoll_event none = {0};

	syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, event, &none);
}

static const struct way {
	const char *name;
	void (*ask)(void);
} ways[] = {
	{"getppid, which tells nothing", by_getppid},
	{"fstat", by_fstat},
	{"newfstatat of an empty path", by_newfstatat},
	{"statx, the inode alone", by_statx},
	{"lseek, the position alone", by_lseek},
	{"fcntl(F_GETFL), which tells nothing", by_fcntl},
	{"fcntl(F_DUPFD_QUERY) with a duplicate", by_query},
	{"epoll_ctl(ADD) of a known one", by_epoll},
};

#define WAYS (sizeof(ways) / sizeof(ways[0]))

static double time_of(void (*ask)(void))
{
	double begin = now_ns();

	for (unsigned i = 0; i < BATCH; i++)
		ask();
	return (now_ns() - begin) / BATCH;
}

int main(void)
{
	static double times[WAYS][BATCHES];

	file = memfd_create("file", MFD_CLOEXEC);
	duplicate = dup(file);
	event = eventfd(0, EFD_CLOEXEC);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	if (file < 0 || duplicate < 0 || event < 0 || epoll < 0)
		stop("no descriptors", 0);
	by_epoll();
	for (unsigned i = 0; i < BATCHES; i++)
		for (unsigned w = 0; w < WAYS; w++)
			times[w][i] = time_of(ways[w].ask);
	for (unsigned w = 0; w < WAYS; w++)
		print_measure(ways[w].name, median(times[w], BATCHES));
	return 0;
}
