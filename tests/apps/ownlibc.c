/* SPDX-License-Identifier: MIT */
/*
 * Functions of the C library that are defined once more, by the program or by a preloaded library,
 * and use CUDA and pindown before they do their work: so memory hooks, allocators and I/O libraries
 * may. Calls that the driver makes are left alone, since it may be in the middle of something.
 */
#define _GNU_SOURCE
#include "ownlibc.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>

#include "cache/pindown.h"
#include "hook/cuda/abi.h"

#define EXPORT __attribute__((visibility("default")))

struct place {
	const char *library;
	uintptr_t begin, end;
};
static struct place driver = {.library = "/libcuda.so.1"}, pindown = {.library = "/libpindown.so"};

static bool is_on;
static __thread bool is_inside;
static const char *volatile within = "none of them";

/* The real one is not called by a name of this file. */
static long call(long number, ...)
{
	static long (*real)(long number, ...);
	va_list arguments;
	long a[6];

	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	va_start(arguments, number);
	for (unsigned i = 0; i < 6; i++)
		a[i] = va_arg(arguments, long);
	va_end(arguments);
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void say(const char *what, const char *name)
{
	char line[100];

	*stpcpy(stpcpy(stpcpy(line, what), name), "\n") = '\0';
	call(SYS_write, 2L, line, strlen(line));
}

static bool is_in(const struct place *place, const void *caller)
{
	return (uintptr_t)caller - place->begin < place->end - place->begin;
}

static void use_memory(void)
{
	pindown_region *region;
	CUdeviceptr at;

	if (cuMemAlloc_v2(&at, 1 << 20) == CUDA_SUCCESS) {
		if (own_libc_pindown.get(at, 100, 0, &region) == PINDOWN_OK)
			own_libc_pindown.put(region);
		cuMemFree_v2(at);
	}
	own_libc_pindown.flush();
}

static void use(const char *name, const void *caller)
{
	int saved = errno;

	if (!is_on || is_inside || is_in(&driver, caller))
		return;
	is_inside = true;
	within = name;
	if (is_in(&pindown, caller))
		say("pindown has called the program's ", name);
	use_memory();
	within = "none of them";
	is_inside = false;
	errno = saved;
}

static int find(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct place *place = arg;
	const char *at = strstr(info->dlpi_name, place->library);

	(void)size;
	if (at == NULL)
		return 0;
	place->begin = info->dlpi_addr;
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD)
			place->end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr +
				     info->dlpi_phdr[i].p_memsz;
	return 1;
}

static void late(int signal)
{
	(void)signal;
	say("hangs in the program's own ", within);
	call(SYS_exit_group, 9L);
}

struct own_libc_pindown own_libc_pindown;

EXPORT bool own_libc_begin(const struct own_libc_pindown *functions)
{
	own_libc_pindown = *functions;
	if (dl_iterate_phdr(find, &driver) == 0 || dl_iterate_phdr(find, &pindown) == 0)
		return false;
	signal(SIGALRM, late);
	is_on = true;
	return true;
}

EXPORT void own_libc_end(void)
{
	is_on = false;
}

/* ---- the functions --------------------------------------------------------------------------- */

#define OWN(result, name, parameters, ...)                   \
	EXPORT result name parameters                        \
	{                                                    \
		use(#name, __builtin_return_address(0));     \
		return (result)(uintptr_t)call(__VA_ARGS__); \
	}
/* With one more argument, which may not be there. */
#define OWN_MORE(name, last, parameters, ...)            \
	EXPORT int name parameters                       \
	{                                                \
		va_list arguments;                       \
		long more;                               \
                                                         \
		va_start(arguments, last);               \
		more = va_arg(arguments, long);          \
		va_end(arguments);                       \
		use(#name, __builtin_return_address(0)); \
		return (int)call(__VA_ARGS__, more);     \
	}
/* The next definition. */
#define OWN_NEXT(result, name, parameters, ...)            \
	EXPORT result name parameters                      \
	{                                                  \
		result(*next) parameters;                  \
                                                           \
		use(#name, __builtin_return_address(0));   \
		*(void **)&next = dlsym(RTLD_NEXT, #name); \
		return next(__VA_ARGS__);                  \
	}

OWN(void *, mmap, (void *at, size_t size, int protection, int flags, int fd, off_t offset),
    SYS_mmap, at, size, (long)protection, (long)flags, (long)fd, offset)
OWN(int, munmap, (void *at, size_t size), SYS_munmap, at, size)
OWN(int, mprotect, (void *at, size_t size, int protection), SYS_mprotect, at, size,
    (long)protection)
OWN(int, madvise, (void *at, size_t size, int advice), SYS_madvise, at, size, (long)advice)
OWN(int, munlock, (const void *at, size_t size), SYS_munlock, at, size)
OWN(int, close, (int fd), SYS_close, (long)fd)
OWN(ssize_t, read, (int fd, void *to, size_t size), SYS_read, (long)fd, to, size)
OWN(ssize_t, write, (int fd, const void *from, size_t size), SYS_write, (long)fd, from, size)
OWN(ssize_t, pread, (int fd, void *to, size_t size, off_t at), SYS_pread64, (long)fd, to, size, at)
OWN(off_t, lseek, (int fd, off_t to, int whence), SYS_lseek, (long)fd, to, (long)whence)
OWN(int, fstat, (int fd, struct stat *status), SYS_fstat, (long)fd, status)
OWN(int, stat, (const char *restrict path, struct stat *restrict status), SYS_newfstatat, -100L,
    path, status, 0L)
OWN(int, poll, (struct pollfd * asked, nfds_t count, int ms), SYS_ppoll, asked, count,
    ms < 0 ? NULL : &(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL, 8L)
OWN(ssize_t, readlink, (const char *restrict path, char *restrict to, size_t size), SYS_readlinkat,
    -100L, path, to, size)
OWN(int, unlink, (const char *path), SYS_unlinkat, -100L, path, 0L)
OWN(int, unlinkat, (int folder, const char *path, int flags), SYS_unlinkat, (long)folder, path,
    (long)flags)
OWN(int, fallocate, (int fd, int mode, off_t at, off_t size), SYS_fallocate, (long)fd, (long)mode,
    at, size)
OWN(int, getrlimit, (__rlimit_resource_t which, struct rlimit *limit), SYS_prlimit64, 0L,
    (long)which, NULL, limit)
OWN(int, shmget, (key_t key, size_t size, int flags), SYS_shmget, (long)key, size, (long)flags)
OWN(void *, shmat, (int id, const void *at, int flags), SYS_shmat, (long)id, at, (long)flags)
OWN(int, shmdt, (const void *at), SYS_shmdt, at)
OWN(int, shmctl, (int id, int command, struct shmid_ds *about), SYS_shmctl, (long)id, (long)command,
    about)
OWN(int, clock_gettime, (clockid_t clock, struct timespec *now), SYS_clock_gettime, (long)clock,
    now)
OWN(int, nanosleep, (const struct timespec *pause, struct timespec *left), SYS_nanosleep, pause,
    left)
OWN(int, sigpending, (sigset_t * set), SYS_rt_sigpending, set, 8L)
OWN(pid_t, getpid, (void), SYS_getpid)
OWN(pid_t, getppid, (void), SYS_getppid)

OWN_MORE(open, flags, (const char *path, int flags, ...), SYS_openat, -100L, path, (long)flags)
OWN_MORE(openat, flags, (int folder, const char *path, int flags, ...), SYS_openat, (long)folder,
	 path, (long)flags)
OWN_MORE(fcntl, command, (int fd, int command, ...), SYS_fcntl, (long)fd, (long)command)
OWN_MORE(ioctl, request, (int fd, unsigned long request, ...), SYS_ioctl, (long)fd, request)

OWN_NEXT(char *, getcwd, (char *path, size_t size), path, size)
OWN_NEXT(char *, dlerror, (void))
OWN_NEXT(int, dladdr, (const void *at, Dl_info *info), at, info)
OWN_NEXT(int, dladdr1, (const void *at, Dl_info *info, void **more, int flags), at, info, more,
	 flags)
OWN_NEXT(int, dl_iterate_phdr, (int (*look)(struct dl_phdr_info *, size_t, void *), void *arg),
	 look, arg)

EXPORT void *mremap(void *at, size_t size, size_t more, int flags, ...)
{
	va_list arguments;
	void *to;

	va_start(arguments, flags);
	to = va_arg(arguments, void *);
	va_end(arguments);
	use("mremap", __builtin_return_address(0));
	return (void *)call(SYS_mremap, at, size, more, (long)flags, to);
}

EXPORT long syscall(long number, ...)
{
	va_list arguments;
	long a[6];

	va_start(arguments, number);
	for (unsigned i = 0; i < 6; i++)
		a[i] = va_arg(arguments, long);
	va_end(arguments);
	use("syscall", __builtin_return_address(0));
	return call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
