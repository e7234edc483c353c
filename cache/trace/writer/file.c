// SPDX-License-Identifier: MIT
/* The trace file: creating it under a free name, keeping its descriptor, claiming and writing. */
#define _GNU_SOURCE
#include "cache/trace/writer/file.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cache/base/process/descriptor.h"
#include "cache/base/environment/environment.h"
#include "cache/base/process/system.h"
#include "cache/base/visible.h"
#include "cache/trace/journal/journal.h"
#include "cache/trace/writer/events.h"

/* Names to try for one process number; bytes for what is added to one. */
enum { MAX_NAMES = 10000, ROOM = 40 };

static struct trace_file {
	int fd; /* -1: none; can be stale, see descriptor() */
	dev_t device;
	ino_t inode;
	uint64_t next_unit;
	int64_t full_until; /* when to ask for space again, in ns; 0: not full */
	bool warned_full, warned_gone, warned_cut;
} file = {.fd = -1};
static char file_path[PATH_MAX]; /* in .bss; as a member, its zeroes would be in the library file */

/* ---- names ------------------------------------------------------------------------------- */

/*
 * What replaces the text at `at`, which begins with a %, and in *length that text's length. NULL:
 * nothing does. `own` has space for a replacement that is not in memory yet.
 */
static const char *replacement(const char *at, char *own, size_t *length)
{
	struct utsname system;

	*length = 2;
	switch (at[1]) {
	case '%':
		return "%";
	case 'p':
		sprintf(own, "%d", (int)getpid());
		return own;
	case 'h':
		return uname(&system) == 0 ? strcpy(own, system.nodename) : NULL;
	case 'q':
		*length = strcspn(at, "}") + 1;
		return at[2] == '{' && at[*length - 1] ? pdn_variable_of(at + 3, *length - 4)
						       : NULL;
	default:
		return NULL;
	}
}

/*
 * app.pdt means app.<pid>.pdt. Stores what comes before the .pdt, and returns its length; 0: it is
 * too long.
 */
static size_t expand_name(const char *name, char *path)
{
	static bool warned;
	size_t stem = strlen(name), used = 0, taken;
	const char *end = name + stem;
	bool has_pid = false;

	if (stem > 4 && strcmp(end - 4, ".pdt") == 0)
		end -= 4;
	for (; name < end; name += taken) {
		char own[sizeof(((struct utsname *)0)->nodename)];
		const char *text = *name == '%' ? replacement(name, own, &taken) : NULL;
		size_t more = text ? strlen(text) : 1;

		if (text)
			has_pid |= name[1] == 'p';
		else if (*name == '%')
			pdn_log_once(&warned, PDN_LOG_WARN,
				     "PINDOWN_TRACE: %s stays as it is: accepted are %%h (host), "
				     "%%p (process), %%q{VARIABLE} (one that is set) and %%%%",
				     name);
		taken = text ? taken : 1;
		if (more + ROOM > PATH_MAX - used)
			return 0;
		memcpy(path + used, text ? text : name, more);
		used += more;
	}
	return used + (size_t)(has_pid ? 0 : sprintf(path + used, ".%d", (int)getpid()));
}

/* A negative errno. Below these numbers the program's own output would go into the trace. */
static int open_above_standard(int flags)
{
	int fd = (int)pdn_sys(SYS_openat, AT_FDCWD, file_path,
			      O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0666);

	if (fd >= 0)
		fd = pdn_descriptor_move_up(fd);
	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	pdn_descriptor_close(fd);
	if (flags & O_CREAT)
		pdn_sys_unlink(file_path);
	return -EMFILE;
}

/* The nth further file of the same process, as after an exec, has .n before its .pdt. */
static int create_with_free_name(const char *name)
{
	size_t length = expand_name(name, file_path);
	int fd = -EEXIST;

	if (!length) {
		file_path[0] = '\0';
		return -ENAMETOOLONG;
	}
	strcpy(file_path + length, ".pdt");
	for (unsigned n = 1; n < MAX_NAMES && fd == -EEXIST; n++) {
		fd = open_above_standard(O_CREAT | O_EXCL);
		if (fd == -EEXIST)
			sprintf(file_path + length, ".%u.pdt", n);
	}
	return fd;
}

/* ---- the descriptor ---------------------------------------------------------------------- */

/* Is fd the trace file? *status is then the file's. */
static bool is_trace_file(int fd, struct stat *status)
{
	return fd >= 0 && pdn_sys_fstat(fd, status) && status->st_dev == file.device &&
	       status->st_ino == file.inode;
}

/* Acquire: pairs with pdn_trace_file_create() and the exchange: device and inode are set before. */
static int descriptor(struct stat *status)
{
	int stale = __atomic_load_n(&file.fd, __ATOMIC_ACQUIRE), fd;

	if (is_trace_file(stale, status))
		return stale;
	/* Another thread may be first. `stale` is not closed: it can be any file. */
	fd = open_above_standard(O_NONBLOCK);
	if (is_trace_file(fd, status) &&
	    __atomic_compare_exchange_n(&file.fd, &stale, fd, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return fd;
	if (fd >= 0)
		pdn_descriptor_close(fd);
	if (is_trace_file(stale, status))
		return stale;
	pdn_log_once(&file.warned_gone, PDN_LOG_WARN,
		     "%s: the trace's descriptor was closed and the file is no longer there: "
		     "events are lost from here on",
		     file_path);
	return -1;
}

/* ---- space ------------------------------------------------------------------------------- */

/* Returns 0 or an errno. */
static int write_whole(int fd, const void *memory, size_t bytes, uint64_t offset)
{
	const char *from = memory;

	while (bytes) {
		long done = pdn_sys(SYS_pwrite64, fd, from, bytes, offset);

		if (done == -EINTR)
			continue;
		if (done <= 0)
			return done ? (int)-done : ENOSPC;
		from += done;
		offset += (uint64_t)done;
		bytes -= (size_t)done;
	}
	return 0;
}

/*
 * Makes the file longer: if it is shorter later, it was truncated. Allocating the space now halves
 * the cost of writing pieces; where fallocate is not supported, writing the last byte is enough.
 * Returns 0 or an errno.
 */
static int extend(int fd, uint64_t begin)
{
	static const char zero;
	long result;

	do
		result = pdn_sys(SYS_fallocate, fd, 0, begin, PDN_TRACE_UNIT);
	while (result == -EINTR);
	if (result == -EOPNOTSUPP || result == -ENOSYS || result == -EINVAL)
		return write_whole(fd, &zero, 1, begin + PDN_TRACE_UNIT - 1);
	return (int)-result;
}

static int64_t coarse_now(void)
{
	return (int64_t)pdn_sys_clock(CLOCK_MONOTONIC_COARSE);
}

/* Asks a full disk again only after a while: each lost event would cost some microseconds. */
bool pdn_trace_file_is_full(void)
{
	return coarse_now() < __atomic_load_n(&file.full_until, __ATOMIC_RELAXED);
}

static void set_full(int error)
{
	__atomic_store_n(&file.full_until, coarse_now() + 10000000, __ATOMIC_RELAXED);
	pdn_log_once(&file.warned_full, PDN_LOG_WARN,
		     "%s: no room for the trace (%s): events are lost, and counted, until there is "
		     "space",
		     file_path, pdn_error_text(error));
}

/* The file was truncated by another process: it belongs to someone else now. */
static void stop(void)
{
	pdn_log_once(&file.warned_cut, PDN_LOG_WARN,
		     "%s: the file was truncated: nothing is traced from here on", file_path);
	__atomic_store_n(&pdn_trace_mask, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&pdn_trace.state, PDN_TRACE_OFF, __ATOMIC_RELEASE);
	/* Counters and pieces stay where they are until the process ends. */
	pdn_journal_end();
}

/* The descriptor, if the file can be written to; else -1. Relaxed: a number that only grows. */
static int writable_descriptor(void)
{
	uint64_t units = __atomic_load_n(&pdn_trace.header->units, __ATOMIC_RELAXED);
	struct stat status;
	int fd = descriptor(&status);

	if (fd < 0) { /* the file may come back: try again in a second */
		__atomic_store_n(&file.full_until, coarse_now() + 1000000000, __ATOMIC_RELAXED);
		return -1;
	}
	if ((uint64_t)status.st_size >= units * PDN_TRACE_UNIT)
		return fd;
	stop();
	return -1;
}

bool pdn_trace_file_write(const void *from, size_t bytes, uint64_t offset)
{
	int fd = writable_descriptor(), error;

	if (fd < 0)
		return false;
	error = write_whole(fd, from, bytes, offset);
	if (error)
		set_full(error);
	return !error;
}

uint64_t pdn_trace_file_claim(void)
{
	uint64_t unit, next;
	int fd = writable_descriptor(), error;

	if (fd < 0)
		return 0;
	/* Relaxed: only unique numbers are needed. */
	unit = __atomic_fetch_add(&file.next_unit, 1, __ATOMIC_RELAXED);
	error = extend(fd, unit * PDN_TRACE_UNIT);
	__atomic_store_n(&file.full_until, 0, __ATOMIC_RELAXED);
	if (!error)
		return unit * PDN_TRACE_UNIT;
	set_full(error);
	/* Unless other units were claimed after this one, give it back: no hole. */
	next = unit + 1;
	__atomic_compare_exchange_n(&file.next_unit, &next, unit, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
	return 0;
}

/* ---- the state of the trace ----------------------------------------------------------------- */

PDN_AT_LOAD struct pdn_trace pdn_trace;

void pdn_alone_begin(struct pdn_shield *alone)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	sigset_t all;

	sigfillset(&all);
	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		sigdelset(&all, own[i]);
	pdn_shield_up(alone);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
}

/* ---- the file as a whole ------------------------------------------------------------------ */

bool pdn_trace_file_create(const char *name, const struct pdn_trace_header *header)
{
	struct stat status;
	int fd, error;

	file_path[0] = '\0';
	fd = header ? create_with_free_name(name) : -ENOMEM;
	error = fd < 0 ? -fd : (int)-pdn_sys(SYS_fstat, fd, &status);
	if (!error)
		error = write_whole(fd, header, PDN_TRACE_UNIT, 0);
	if (!error) {
		file = (struct trace_file){
			.fd = -1, .device = status.st_dev, .inode = status.st_ino, .next_unit = 1};
		__atomic_store_n(&file.fd, fd, __ATOMIC_RELEASE);
		pdn_journal_publish(header, file.device, file.inode, file_path);
		return true;
	}
	pdn_log(PDN_LOG_WARN, "PINDOWN_TRACE: %s: %s; nothing is traced",
		file_path[0] ? file_path : name, pdn_error_text(error));
	if (fd >= 0) {
		pdn_sys_unlink(file_path);
		pdn_descriptor_close(fd);
	}
	return false;
}

void pdn_trace_file_forget(void)
{
	struct stat status;
	int fd = __atomic_exchange_n(&file.fd, -1, __ATOMIC_RELAXED);

	if (is_trace_file(fd, &status))
		pdn_descriptor_close(fd);
	file_path[0] = '\0';
}

/* Acquire: as descriptor(). */
const char *pdn_trace_file_name(void)
{
	return __atomic_load_n(&file.fd, __ATOMIC_ACQUIRE) >= 0 ? file_path : NULL;
}
