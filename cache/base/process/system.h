/* SPDX-License-Identifier: MIT */
/*
 * System calls of pindown's own. The names of the C library's functions are the program's to
 * replace: its own mmap() or write() may use CUDA, wait for a lock that it holds itself, or show
 * another time. And syscall() is one of these names. So what pindown needs of the kernel it asks
 * the kernel for. None of these calls touches errno or is a cancellation point.
 */
#ifndef PDN_SYSTEM_H
#define PDN_SYSTEM_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

/* The kernel's answer, as it is: from -4095 to -1 it is an errno, negated. For pdn_sys() only. */
long pdn_system_call(long number, long a, long b, long c, long d, long e, long f);

/* pdn_sys(SYS_close, fd): up to six arguments, numbers and pointers. */
#define pdn_sys(...) PDN_SYS(__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define PDN_SYS(number, a, b, c, d, e, f, ...) \
	pdn_system_call((number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* The descriptor, close-on-exec, or a negative errno. The file is made with mode 0600. */
static inline int pdn_sys_open(const char *path, int flags)
{
	return (int)pdn_sys(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

static inline bool pdn_sys_stat(const char *path, struct stat *status)
{
	return pdn_sys(SYS_newfstatat, AT_FDCWD, path, status, 0) == 0;
}

static inline bool pdn_sys_fstat(int fd, struct stat *status)
{
	return pdn_sys(SYS_fstat, fd, status) == 0;
}

static inline long pdn_sys_readlink(const char *path, char *text, size_t size)
{
	return pdn_sys(SYS_readlinkat, AT_FDCWD, path, text, size);
}

/* false: the kernel does not know a path from the root to it. */
static inline bool pdn_sys_working_directory(char *path, size_t size)
{
	return pdn_sys(SYS_getcwd, path, size) > 0 && path[0] == '/';
}

static inline void pdn_sys_unlink(const char *path)
{
	pdn_sys(SYS_unlinkat, AT_FDCWD, path, 0);
}

/* The soft limit. */
static inline rlim_t pdn_sys_limit(int resource)
{
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};

	pdn_sys(SYS_prlimit64, 0, resource, NULL, &limit);
	return limit.rlim_cur;
}

/*
 * In nanoseconds. The C library reads most clocks without entering the kernel, some hundred
 * nanoseconds faster: not for hits.
 */
static inline uint64_t pdn_sys_clock(clockid_t clock)
{
	struct timespec now = {0};

	pdn_sys(SYS_clock_gettime, clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t pdn_sys_clock_monotonic(void)
{
	return pdn_sys_clock(CLOCK_MONOTONIC);
}

static inline struct timespec pdn_sys_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
				 .tv_nsec = (long)(ns % 1000000000u)};
}

/* A signal may end it early. */
static inline void pdn_sys_sleep(uint64_t ns)
{
	const struct timespec pause = pdn_sys_timespec(ns);

	pdn_sys(SYS_nanosleep, &pause, NULL);
}

#endif
