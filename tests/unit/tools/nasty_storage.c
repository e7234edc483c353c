/* SPDX-License-Identifier: MIT */
/*
 * Stands between pindown and the kernel for check-storage (LD_PRELOAD): dma-bufs of the simulated
 * driver can be mapped from offset 0, as those of a kernel are, and any file system has direct I/O.
 * NASTY says which fault there is; "peer" is I/O of a mapped dma-buf:
 *
 *	map=N       a dma-buf can't be mapped, with this errno
 *	write=N     peer writes fail with this errno
 *	read=N      peer reads fail
 *	space=N     any write fails
 *	parts       peer reads and writes move a part of what is asked for
 *	short       peer reads end early
 *	lost        peer reads bring nothing, but succeed
 *	hang        peer writes never end
 *	crash       peer writes crash
 *	exit        peer writes end the process
 *	nodirect    the file system has no direct I/O
 *	cached      it has, through the page cache
 *	silent      it does not say whether it has
 *	notmp       it has no O_TMPFILE
 *	file=N      a file can't be made
 *
 * All calls are system calls, so that sanitizers can call these functions from anywhere.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PART = 1 << 20 };

static bool is_nasty(const char *fault)
{
	const char *chosen = getenv("NASTY");

	return chosen && strcmp(chosen, fault) == 0;
}

/* The number behind "fault="; 0: this is not the fault. */
static int nasty_errno(const char *fault)
{
	const char *chosen = getenv("NASTY");
	size_t length = strlen(fault);

	if (!chosen || strncmp(chosen, fault, length) != 0 || chosen[length] != '=')
		return 0;
	errno = atoi(chosen + length + 1);
	return errno;
}

/* ---- mapped dma-bufs ------------------------------------------------------------------------ */

static char *mapped;
static size_t mapped_bytes;

static bool is_peer(const void *bytes)
{
	return mapped && (const char *)bytes >= mapped &&
	       (const char *)bytes < mapped + mapped_bytes;
}

static bool is_dmabuf(int fd)
{
	char link[64] = "/proc/self/fd/", target[64] = "";
	char digits[16];
	int at = 15;

	digits[at] = '\0';
	do
		digits[--at] = (char)('0' + fd % 10);
	while (fd /= 10);
	strcat(link, digits + at);
	return syscall(SYS_readlinkat, AT_FDCWD, link, target, sizeof(target) - 1) > 0 &&
	       strstr(target, "memfd:simulated-gpu");
}

void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	bool is_map = fd >= 0 && !addr && (prot & PROT_WRITE) && is_dmabuf(fd);
	long at;

	if (is_map && nasty_errno("map"))
		return MAP_FAILED;
	if (is_map)
		offset = syscall(SYS_lseek, fd, 0L, SEEK_CUR);
	at = syscall(SYS_mmap, addr, length, (long)prot, (long)flags, (long)fd, offset);
	if (at == -1)
		return MAP_FAILED;
	if (is_map) {
		mapped = (char *)at;
		mapped_bytes = length;
	}
	return (void *)at;
}

int munmap(void *addr, size_t length)
{
	if (addr == mapped)
		mapped = NULL;
	return (int)syscall(SYS_munmap, addr, length);
}

/* ---- files ---------------------------------------------------------------------------------- */

int open(const char *path, int flags, ...)
{
	bool is_temporary = (flags & O_TMPFILE) == O_TMPFILE;
	va_list arguments;
	unsigned mode;

	va_start(arguments, flags);
	mode = is_temporary || flags & O_CREAT ? va_arg(arguments, unsigned) : 0;
	va_end(arguments);
	if ((is_temporary || flags & O_EXCL) && nasty_errno("file"))
		return -1;
	if (is_temporary && is_nasty("notmp")) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fcntl(int fd, int command, ...)
{
	va_list arguments;
	long argument;

	va_start(arguments, command);
	argument = va_arg(arguments, long);
	va_end(arguments);
	if (command == F_SETFL && argument & O_DIRECT) {
		errno = EINVAL;
		return is_nasty("nodirect") ? -1 : 0;
	}
	return (int)syscall(SYS_fcntl, fd, command, argument);
}

int statx(int fd, const char *restrict path, int flags, unsigned mask,
	  struct statx *restrict status)
{
	enum { DIRECT_ALIGN = 0x2000 };
	uint32_t *words = (uint32_t *)status;
	long result = syscall(SYS_statx, fd, path, flags, mask, status);

	if (!result && mask == DIRECT_ALIGN) {
		words[0] = is_nasty("silent") ? words[0] & ~DIRECT_ALIGN : words[0] | DIRECT_ALIGN;
		words[38] = 512;
	}
	return (int)result;
}

int mincore(void *addr, size_t length, unsigned char *pages)
{
	(void)addr;
	memset(pages, is_nasty("cached"), length / (size_t)sysconf(_SC_PAGESIZE));
	return 0;
}

/* How many bytes are moved at a time. */
static size_t a_part_of(const void *bytes, size_t length)
{
	return is_peer(bytes) && is_nasty("parts") && length > PART ? PART : length;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
	if (nasty_errno("space") || (is_peer(bytes) && nasty_errno("write")))
		return -1;
	if (is_peer(bytes) && is_nasty("crash"))
		raise(SIGABRT); /* a sanitizer turns SIGSEGV into an exit */
	if (is_peer(bytes) && is_nasty("exit"))
		_exit(1);
	while (is_peer(bytes) && is_nasty("hang"))
		pause();
	return syscall(SYS_pwrite64, fd, bytes, a_part_of(bytes, length), offset);
}

ssize_t pread(int fd, void *bytes, size_t length, off_t offset)
{
	if (is_peer(bytes) && nasty_errno("read"))
		return -1;
	if (is_peer(bytes) && is_nasty("short"))
		return 0;
	if (is_peer(bytes) && is_nasty("lost"))
		return (ssize_t)length;
	return syscall(SYS_pread64, fd, bytes, a_part_of(bytes, length), offset);
}
