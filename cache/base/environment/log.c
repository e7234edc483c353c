/* SPDX-License-Identifier: MIT */
/* Lines on standard error, and the shield against signals. */
#define _GNU_SOURCE
#include "cache/base/environment/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cache/base/process/system.h"
#include "cache/base/visible.h"

#define KERNEL_SET 8 /* bytes of a set of signals */

static void pending(sigset_t *set)
{
	sigemptyset(set);
	pdn_sys(SYS_rt_sigpending, set, KERNEL_SET);
}

/* SIGTTOU is for a job in the background that writes to its terminal, unless it is blocked. */
static void fill(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGPIPE);
	sigaddset(set, SIGXFSZ);
	sigaddset(set, SIGTTOU);
}

void pdn_shield_up(struct pdn_shield *shield)
{
	sigset_t set;

	shield->error = errno;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &shield->cancel);
	fill(&set);
	pthread_sigmask(SIG_BLOCK, &set, &shield->mask);
	pending(&shield->pending);
}

bool pdn_signal_is_pending(int signal)
{
	sigset_t set;

	pending(&set);
	return sigismember(&set, signal);
}

void pdn_signal_consume(int signal)
{
	static const struct timespec now;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, signal);
	while (pdn_sys(SYS_rt_sigtimedwait, &set, NULL, &now, KERNEL_SET) == -EINTR)
		;
}

/* A signal that was pending before is the program's own: it is delivered when unblocked. */
static void consume(const struct pdn_shield *shield, int signal)
{
	if (!sigismember(&shield->pending, signal) && pdn_signal_is_pending(signal))
		pdn_signal_consume(signal);
}

void pdn_shield_down(struct pdn_shield *shield)
{
	consume(shield, SIGPIPE);
	consume(shield, SIGXFSZ);
	pthread_sigmask(SIG_SETMASK, &shield->mask, NULL);
	pthread_setcancelstate(shield->cancel, NULL);
	errno = shield->error;
}

bool pdn_logging(enum pdn_log_level level)
{
	return level <= pdn_config()->log;
}

/* Which file was open as standard error, descriptor 2, when the library was loaded. */
static PDN_AT_LOAD struct {
	bool is_known; /* not where the library is part of a program, or before its own load */
	bool was_open;
	dev_t device;
	ino_t inode;
} at_load;

PDN_STARTS void pdn_log_at_load(void)
{
	struct stat status;

	at_load.is_known = true;
	at_load.was_open = pdn_sys_fstat(STDERR_FILENO, &status);
	if (!at_load.was_open)
		return;
	at_load.device = status.st_dev;
	at_load.inode = status.st_ino;
}

/*
 * A program that was started without standard error, or has closed it, may have a socket, a pipe or
 * a file of its own under the number. Nothing tells these from a redirection for certain, so only
 * the usual kind is taken for one: a file that is open to append or only to write, or one without a
 * name, as tmpfile() makes it. A file that holds the program's data is mostly open to read, too.
 */
static bool is_standard_error(void)
{
	struct stat now;

	if (!at_load.is_known)
		return true;
	if (!at_load.was_open || !pdn_sys_fstat(STDERR_FILENO, &now))
		return false;
	if (now.st_ino == at_load.inode && now.st_dev == at_load.device)
		return true;
	return S_ISREG(now.st_mode) &&
	       (!now.st_nlink ||
		(pdn_sys(SYS_fcntl, STDERR_FILENO, F_GETFL) & (O_ACCMODE | O_APPEND)) != O_RDWR);
}

void pdn_log(enum pdn_log_level level, const char *format, ...)
{
	static const char prefix[] = "pindown: ";
	char line[1024];
	const size_t begin = sizeof(prefix) - 1, capacity = sizeof(line) - begin - 1;
	struct pdn_shield shield;
	va_list arguments;
	int length;

	if (!pdn_logging(level))
		return;
	pdn_shield_up(&shield);
	memcpy(line, prefix, begin);
	va_start(arguments, format);
	length = vsnprintf(line + begin, capacity, format, arguments);
	va_end(arguments);
	if (length >= 0 && is_standard_error()) {
		size_t end = begin + ((size_t)length < capacity ? (size_t)length : capacity - 1);

		line[end++] = '\n';
		while (pdn_sys(SYS_write, STDERR_FILENO, line, end) == -EINTR)
			;
	}
	pdn_shield_down(&shield);
}

const char *pdn_error_text(int error)
{
	static const struct {
		int error;
		char text[40];
	} texts[] = {
		{EPERM, "Operation not permitted"},
		{ENOENT, "No such file or directory"},
		{EIO, "Input/output error"},
		{ENXIO, "No such device or address"},
		{EAGAIN, "Resource temporarily unavailable"},
		{ENOMEM, "Cannot allocate memory"},
		{EACCES, "Permission denied"},
		{EBUSY, "Device or resource busy"},
		{EEXIST, "File exists"},
		{ENODEV, "No such device"},
		{ENOTDIR, "Not a directory"},
		{EISDIR, "Is a directory"},
		{EINVAL, "Invalid argument"},
		{ENFILE, "Too many open files in system"},
		{EMFILE, "Too many open files"},
		{ETXTBSY, "Text file busy"},
		{EFBIG, "File too large"},
		{ENOSPC, "No space left on device"},
		{EROFS, "Read-only file system"},
		{ENAMETOOLONG, "File name too long"},
		{ENOSYS, "Function not implemented"},
		{ELOOP, "Too many levels of symbolic links"},
		{EOVERFLOW, "Value too large for defined data type"},
		{EOPNOTSUPP, "Operation not supported"},
		{ESTALE, "Stale file handle"},
		{EDQUOT, "Disk quota exceeded"},
	};

	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].error == error)
			return texts[i].text;
	return "an error of another kind";
}
