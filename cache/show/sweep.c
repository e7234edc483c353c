/* SPDX-License-Identifier: MIT */
/* Finding and removing the page files of processes that were killed. */
#define _GNU_SOURCE
#include "cache/show/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/base/process/system.h"
#include "cache/show/format.h"

enum { MAX_CHECKED = 64 }; /* pages: a program must start fast on a full machine too */

/* The number that a text begins with; the C library has new names for this in new releases. */
static uint64_t number_at(const char *at, const char **end)
{
	uint64_t number = 0;

	for (; *at >= '0' && *at <= '9'; at++)
		number = number * 10 + (unsigned)(*at - '0');
	*end = at;
	return number;
}

/* Field 22. Fields are counted after the name, which may contain any character. */
int64_t pdn_top_start_of(uint32_t pid)
{
	char path[40], text[1024];
	const char *at;
	long length;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	fd = pdn_sys_open(path, O_RDONLY);
	if (fd < 0)
		return fd;
	length = pdn_sys(SYS_read, fd, text, sizeof(text) - 1);
	pdn_sys(SYS_close, fd);
	if (length <= 0)
		return 0;
	text[length] = '\0';
	at = strrchr(text, ')');
	for (unsigned field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? (int64_t)number_at(at + 1, &at) : 0;
}

uint64_t pdn_top_namespace(const char *link)
{
	struct stat status;

	return pdn_sys_stat(link, &status) ? status.st_ino : 0;
}

/* "pindown.<pid>.<start>" */
static bool parse_name(const char *name, uint32_t *pid, uint64_t *start)
{
	const char *digits = name + sizeof(PDN_TOP_PREFIX) - 1;
	const char *end;

	if (strncmp(name, PDN_TOP_PREFIX, sizeof(PDN_TOP_PREFIX) - 1) != 0 || *digits < '0' ||
	    *digits > '9')
		return false;
	*pid = (uint32_t)number_at(digits, &end);
	if (end[0] != '.' || end[1] < '0' || end[1] > '9')
		return false;
	*start = number_at(end + 1, &end);
	return *end == '\0';
}

/*
 * A confined process may be refused what /proc says of others, which may be alive. kill() would
 * tell, but a filter of system calls may end the program for it. *by_start: another process has
 * the number now, or it is the process in another time namespace.
 */
static bool has_ended(uint32_t pid, uint64_t start, bool *by_start)
{
	int64_t now = pdn_top_start_of(pid);

	*by_start = now > 0;
	return *by_start ? (uint64_t)now != start : now == -ENOENT;
}

/* A process number is valid only in its namespace, and so is a start time. */
static bool is_page_of(int folder, const char *name, uint32_t pid, uint64_t start, bool by_start)
{
	int fd = (int)pdn_sys(SYS_openat, folder, name,
			      O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	static struct pdn_top_page live; /* under the lock; stacks can be small */
	struct stat status;
	bool matches;

	if (fd < 0)
		return false;
	matches = pdn_sys_fstat(fd, &status) && S_ISREG(status.st_mode) &&
		  status.st_uid == geteuid() &&
		  pdn_sys(SYS_pread64, fd, &live, sizeof(live), 0) == sizeof(live) &&
		  memcmp(live.magic, PDN_TOP_MAGIC, sizeof(live.magic)) == 0 && live.pid == pid &&
		  live.start == start && live.pid_namespace == pdn_top_namespace(PDN_TOP_PIDS) &&
		  (!by_start || live.time_namespace == pdn_top_namespace(PDN_TOP_TIME));
	pdn_sys(SYS_close, fd);
	return matches;
}

static bool check_file(int folder, const char *name)
{
	uint64_t start;
	bool by_start;
	uint32_t pid;

	if (!parse_name(name, &pid, &start))
		return false;
	if (has_ended(pid, start, &by_start) && is_page_of(folder, name, pid, start, by_start))
		pdn_sys(SYS_unlinkat, folder, name, 0);
	return true;
}

/* Without readdir(), which allocates memory. */
void pdn_top_sweep(const char *folder)
{
	int fd = pdn_sys_open(folder, O_RDONLY | O_DIRECTORY);
	char entries[2048] __attribute__((aligned(16)));
	unsigned checked = 0;
	long length;

	if (fd < 0)
		return;
	while (checked < MAX_CHECKED &&
	       (length = pdn_sys(SYS_getdents64, fd, entries, sizeof(entries))) > 0) {
		for (long at = 0; at < length && checked < MAX_CHECKED;) {
			const struct dirent64 *entry = (const void *)(entries + at);

			checked += check_file(fd, entry->d_name);
			at += entry->d_reclen;
		}
	}
	pdn_sys(SYS_close, fd);
}
