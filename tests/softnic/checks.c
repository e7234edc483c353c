/* SPDX-License-Identifier: MIT */
/* What was counted, and the log that names each transfer that should not have been. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "softnic.h"

/* Relaxed: the counts order nothing. */
static unsigned long counts[COUNTS];

void checks_count(enum count what)
{
	__atomic_fetch_add(&counts[what], 1, __ATOMIC_RELAXED);
}

static unsigned long counted(enum count what)
{
	return __atomic_load_n(&counts[what], __ATOMIC_RELAXED);
}

EXPORT unsigned long softnic_stale_transfers(void)
{
	return counted(COUNT_STALE);
}

/* One write for each line, so that lines of several processes don't mix. */
static void write_line(const char *line, size_t length)
{
	const char *log = softnic_options()->log;
	bool to_stderr = log && strcmp(log, "-") == 0;
	int fd;

	if (!log || !*log)
		return;
	fd = to_stderr ? STDERR_FILENO : open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0)
		return;
	if (write(fd, line, length) < 0)
		fprintf(stderr, "softnic: %s: %s\n", log, strerror(errno));
	if (!to_stderr)
		close(fd);
}

void checks_report(const char *format, ...)
{
	char line[512];
	va_list args;
	int length;

	length = snprintf(line, sizeof(line), "softnic: %s[%d]: ", program_invocation_short_name,
			  (int)getpid());
	va_start(args, format);
	length += vsnprintf(line + length, sizeof(line) - length, format, args);
	va_end(args);
	if (length > (int)sizeof(line) - 2)
		length = sizeof(line) - 2;
	line[length++] = '\n';
	write_line(line, length);
}

EXPORT __attribute__((destructor)) void softnic_report_counts(void)
{
	if (!counted(COUNT_REGISTRATIONS) && !counted(COUNT_TRANSFERS))
		return;
	checks_report("registrations %lu deregistrations %lu transfers %lu stale %lu unmapped %lu",
		      counted(COUNT_REGISTRATIONS), counted(COUNT_DEREGISTRATIONS),
		      counted(COUNT_TRANSFERS), counted(COUNT_STALE), counted(COUNT_UNMAPPED));
}
