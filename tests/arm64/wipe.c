/* SPDX-License-Identifier: MIT */
/*
 * Preloaded where QEMU ignores MADV_WIPEONFORK and says that it did it (wipes.c): zeroes the pages
 * in each child, as the kernel would, whether it is made by fork(), by _Fork() or by a bare clone.
 * In a child by fork() that happens before other libraries' handlers run there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#define EXPORT __attribute__((visibility("default")))

enum { MOST = 64 };
static struct {
	void *start;
	size_t length;
} ranges[MOST];
static unsigned count;

static long bare(long number, const long *args)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = args[0];
	register long x1 __asm__("x1") = args[1];
	register long x2 __asm__("x2") = args[2];
	register long x3 __asm__("x3") = args[3];
	register long x4 __asm__("x4") = args[4];
	register long x5 __asm__("x5") = args[5];

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}

static int advise(void *start, size_t length, int advice)
{
	long result = bare(SYS_madvise, (long[6]){(long)start, (long)length, advice});

	if (result < 0)
		errno = (int)-result;
	return result < 0 ? -1 : 0;
}

static void wipe_all(void)
{
	int saved = errno;

	for (unsigned i = 0; i < count && i < MOST; i++)
		advise(ranges[i].start, ranges[i].length, MADV_DONTNEED);
	errno = saved;
}

__attribute__((constructor(101))) static void begin(void)
{
	pthread_atfork(NULL, NULL, wipe_all);
}

EXPORT int madvise(void *start, size_t length, int advice)
{
	if (advice == MADV_WIPEONFORK) {
		unsigned i = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);

		if (i < MOST) {
			ranges[i].start = start;
			ranges[i].length = length;
		}
	}
	return advise(start, length, advice);
}

EXPORT pid_t _Fork(void)
{
	pid_t (*real)(void) = (pid_t(*)(void))dlvsym(RTLD_NEXT, "_Fork", "GLIBC_2.34");
	pid_t child = real();

	if (child == 0)
		wipe_all();
	return child;
}

EXPORT long syscall(long number, ...)
{
	long args[6], result;
	va_list list;

	va_start(list, number);
	for (unsigned i = 0; i < 6; i++)
		args[i] = va_arg(list, long);
	va_end(list);
	result = bare(number, args);
	if (result == 0 && number == SYS_clone && !(args[0] & CLONE_VM))
		wipe_all();
	if (result < 0 && result > -4096) {
		errno = (int)-result;
		return -1;
	}
	return result;
}
