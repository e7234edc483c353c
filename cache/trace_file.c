// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "pages.h"

enum {
	SAME_NAMES = 10000, /* files of one process number that we look for a free name among */
	HIGH = 1000,	    /* descriptors from here up are not what programs count on */
};

static struct {
	int fd; /* -1: none; may be stale, see descriptor() */
	dev_t device;
	ino_t inode;
	uint64_t next_unit;
	int64_t full_until; /* when to try to get space again, in ns; 0: not full */
	bool in_memory;	    /* tmpfs: fallocate has made the pages already */
	bool told_full, told_gone;
} file = {.fd = -1};
static char file_path[PATH_MAX]; /* not a member: the library's file would hold its zeroes */

/* ---- names ------------------------------------------------------------------------------- */

/*
 * app.pdt stands for app.<pid>.pdt, and %p for the process number; the nth further file of the same
 * process, as after exec, has .n before its .pdt. False when the name gets too long.
 */
static bool expand_name(const char *name, unsigned n, char *path, size_t room)
{
	static const char extension[] = ".pdt";
	size_t stem = strlen(name), used = 0;
	bool has_pid = false;
	char tail[40] = "";
	int length;

	if (stem > 4 && strcmp(name + stem - 4, extension) == 0)
		stem -= 4;
	for (size_t i = 0; i < stem; i++) {
		if (used + 24 > room)
			return false;
		if (name[i] == '%' && name[i + 1] == 'p') {
			used += (size_t)sprintf(path + used, "%d", (int)getpid());
			has_pid = true;
			i++;
		} else if (name[i] == '%' && name[i + 1] == '%') {
			path[used++] = name[i++];
		} else {
			path[used++] = name[i];
		}
	}
	if (!has_pid)
		sprintf(tail, ".%d", (int)getpid());
	if (n)
		sprintf(tail + strlen(tail), ".%u", n);
	length = snprintf(path + used, room - used, "%s%s", tail, extension);
	return length > 0 && (size_t)length < room - used;
}

static int create_new(const char *name)
{
	for (unsigned n = 0; n < SAME_NAMES; n++) {
		int fd;

		if (!expand_name(name, n, file_path, sizeof(file_path))) {
			errno = ENAMETOOLONG;
			return -1;
		}
		fd = open(file_path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
		if (fd >= 0 || errno != EEXIST)
			return fd;
	}
	errno = EEXIST;
	return -1;
}

/* ---- the descriptor ---------------------------------------------------------------------- */

/* Out of the way of programs that expect the lowest numbers, or close a handful from 3 up. */
static int move_high(int fd)
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);

	if (high < 0)
		return fd;
	close(fd);
	return high;
}

static bool is_ours(int fd)
{
	struct stat status;

	return fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == file.device &&
	       status.st_ino == file.inode;
}

static int reopen(int stale)
{
	int fd = open(file_path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -1;
	if (is_ours(fd)) {
		fd = move_high(fd);
		/* Another thread may have been quicker; a stale number is not ours to close. */
		if (__atomic_compare_exchange_n(&file.fd, &stale, fd, false, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			return fd;
		close(fd);
		return is_ours(stale) ? stale : -1;
	}
	close(fd);
	return -1;
}

/* Acquire: pairs with pd_trace_file_create() and reopen(): which file it is was set before. */
static int descriptor(void)
{
	int fd = __atomic_load_n(&file.fd, __ATOMIC_ACQUIRE);

	if (is_ours(fd))
		return fd;
	fd = reopen(fd);
	if (fd < 0)
		pd_log_once(
			&file.told_gone, PD_LOG_WARN,
			"%s: the trace's descriptor was closed and the file is no longer there: "
			"events are lost from here on",
			file_path);
	return fd;
}

/* ---- space ------------------------------------------------------------------------------- */

static bool within_limit(uint64_t end)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
	       end <= limit.rlim_cur;
}

/*
 * One write for all: where fallocate is not known (NFS before 4.2, and others) it is what
 * allocates, and on disks it makes the page faults that follow four times cheaper, since the kernel
 * then has the pages in large pieces.
 */
static bool write_zeroes(int fd, uint64_t offset, uint64_t bytes)
{
	static char zeroes[PD_TRACE_UNIT];
	struct iovec pieces[8];

	while (bytes) {
		uint64_t gathered = 0;
		ssize_t done;
		int n = 0;

		for (; n < 8 && gathered < bytes; n++) {
			uint64_t left = bytes - gathered;

			pieces[n].iov_base = zeroes;
			pieces[n].iov_len = left < sizeof(zeroes) ? left : sizeof(zeroes);
			gathered += pieces[n].iov_len;
		}
		done = pwritev(fd, pieces, n, (off_t)offset);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false;
		offset += (uint64_t)done;
		bytes -= (uint64_t)done;
	}
	return true;
}

static bool allocate(int fd, uint64_t offset, uint64_t bytes)
{
	bool unknown;
	int result;

	if (!within_limit(offset + bytes)) {
		errno = EFBIG;
		return false;
	}
	do
		result = fallocate(fd, 0, (off_t)offset, (off_t)bytes);
	while (result != 0 && errno == EINTR);
	unknown = result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL);
	if (result != 0 && !unknown)
		return false;
	return (!unknown && file.in_memory) || write_zeroes(fd, offset, bytes);
}

static int64_t coarse_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* A full disk is asked again only now and then: each lost event would cost a system call. */
static bool is_full(void) /* relaxed: a time, and nothing else */
{
	int64_t until = __atomic_load_n(&file.full_until, __ATOMIC_RELAXED);

	return until && coarse_now() < until;
}

static void set_full(int error)
{
	__atomic_store_n(&file.full_until, coarse_now() + 10000000, __ATOMIC_RELAXED);
	pd_log_once(&file.told_full, PD_LOG_WARN,
		    "%s: no room for the trace (%s): events are lost, and counted, until there is",
		    file_path, strerrordesc_np(error));
}

uint64_t pd_trace_file_claim(unsigned units)
{
	struct pd_shield shield;
	uint64_t first = 0, next;
	int fd;

	if (is_full())
		return 0;
	pd_shield_up(&shield, SIGXFSZ);
	fd = descriptor();
	if (fd >= 0) {
		/* Relaxed: units are told apart by their numbers alone. */
		first = __atomic_fetch_add(&file.next_unit, units, __ATOMIC_RELAXED);
		if (!allocate(fd, first * PD_TRACE_UNIT, (uint64_t)units * PD_TRACE_UNIT)) {
			set_full(errno);
			/* Units that nobody claimed after these need not become a hole. */
			next = first + units;
			__atomic_compare_exchange_n(&file.next_unit, &next, first, false,
						    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
			first = 0;
		} else {
			__atomic_store_n(&file.full_until, 0, __ATOMIC_RELAXED);
		}
	} else {
		__atomic_store_n(&file.full_until, coarse_now() + 1000000000, __ATOMIC_RELAXED);
	}
	pd_shield_down(&shield);
	return first * PD_TRACE_UNIT;
}

/* ---- mappings ---------------------------------------------------------------------------- */

static void *bare_mmap(void *address, size_t bytes, int access, int flags, int fd, uint64_t offset)
{
	long result = syscall(SYS_mmap, address, bytes, access, flags, fd, (off_t)offset);

	return result == -1 ? NULL : (void *)result;
}

void *pd_trace_window(size_t bytes)
{
	return bare_mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			 0);
}

void pd_trace_unmap(void *address, size_t bytes)
{
	syscall(SYS_munmap, address, bytes);
}

void *pd_trace_file_map(void *window, uint64_t offset, unsigned units)
{
	size_t bytes = (size_t)units * PD_TRACE_UNIT;
	struct pd_shield shield;
	void *map = NULL;
	int fd;

	pd_shield_up(&shield, SIGXFSZ);
	fd = descriptor();
	if (fd >= 0)
		map = bare_mmap(window, bytes, PROT_READ | PROT_WRITE,
				MAP_SHARED | (window ? MAP_FIXED : 0), fd, offset);
	/*
	 * Page faults now instead of one by one, and an error instead of a signal when the file
	 * system has no room after all. Kernels that don't know this (EINVAL) fault later.
	 */
	if (map && syscall(SYS_madvise, map, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
		set_full(errno);
		if (window)
			bare_mmap(window, bytes, PROT_NONE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		else
			pd_trace_unmap(map, bytes);
		map = NULL;
	}
	pd_shield_down(&shield);
	return map;
}

/* ---- the whole --------------------------------------------------------------------------- */

/* errno says why. */
static void give_up(const char *name)
{
	pd_log(PD_LOG_WARN, "PINDOWN_TRACE: %s: %s; nothing is traced", name,
	       strerrordesc_np(errno));
}

static bool set_up(int fd)
{
	struct statfs system;
	struct stat status;

	file.in_memory = fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
	if (fstat(fd, &status) != 0 || !allocate(fd, 0, PD_TRACE_UNIT))
		return false;
	file.device = status.st_dev;
	file.inode = status.st_ino;
	file.next_unit = 1;
	file.full_until = 0;
	file.told_full = file.told_gone = false;
	return true;
}

struct pd_trace_header *pd_trace_file_create(const char *name)
{
	struct pd_trace_header *header = NULL;
	struct pd_shield shield;
	int fd;

	pd_shield_up(&shield, SIGXFSZ);
	file_path[0] = '\0';
	fd = create_new(name);
	if (fd >= 0 && set_up(fd)) {
		__atomic_store_n(&file.fd, move_high(fd), __ATOMIC_RELEASE);
		header = pd_trace_file_map(NULL, 0, 1);
	}
	if (!header) {
		give_up(file_path[0] ? file_path : name);
		if (fd >= 0)
			unlink(file_path);
		if (__atomic_load_n(&file.fd, __ATOMIC_RELAXED) >= 0)
			pd_trace_file_forget();
		else if (fd >= 0)
			close(fd);
	}
	pd_shield_down(&shield);
	return header;
}

void pd_trace_file_forget(void)
{
	struct pd_shield shield;
	int fd = __atomic_exchange_n(&file.fd, -1, __ATOMIC_RELAXED);

	pd_shield_up(&shield, SIGXFSZ);
	if (is_ours(fd))
		close(fd);
	file_path[0] = '\0';
	pd_shield_down(&shield);
}

/* Acquire: as descriptor(). */
const char *pd_trace_file_name(void)
{
	return __atomic_load_n(&file.fd, __ATOMIC_ACQUIRE) >= 0 ? file_path : NULL;
}
