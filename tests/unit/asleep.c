/* SPDX-License-Identifier: MIT */
#include "asleep.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { GONE = 0, LOOKS = 6 };

/*
 * As in ps: 'R', 'S' and so on. By system calls that ThreadSanitizer does not see: it would take a
 * descriptor's number for the one that another thread had.
 */
static char state_of(int tid)
{
	char path[64], text[256];
	const char *name_end;
	long fd, n;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return GONE;
	n = syscall(SYS_read, fd, text, sizeof(text) - 1);
	syscall(SYS_close, fd);
	if (n <= 0)
		return GONE;
	text[n] = '\0';
	name_end = strrchr(text, ')');
	return name_end && name_end[1] == ' ' ? name_end[2] : 'R';
}

/* For a while, and not for a lock that is about to be let go, a sanitizer's for example. */
void wait_until_asleep(int tid, const char *states)
{
	unsigned asleep = 0;
	char state;

	while (asleep < LOOKS && (state = state_of(tid)) != GONE) {
		if (strchr(states, state)) {
			asleep++;
			usleep(1000);
		} else {
			asleep = 0;
			sched_yield();
		}
	}
}
