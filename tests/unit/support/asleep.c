/* SPDX-License-Identifier: MIT */
/* Reads from /proc what a thread does, to wait until it sleeps. */
#include "tests/unit/support/asleep.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LOOKS = 6 };

/*
 * Uses system calls that ThreadSanitizer does not see: it would take the descriptor for the one
 * that another thread had under the same number.
 */
char thread_state(int tid)
{
	char path[64] = "/proc/self/task/", text[256], digits[12], *first = digits + sizeof(digits);
	const char *name_end;
	long fd, n;

	*--first = '\0';
	for (; tid; tid /= 10)
		*--first = (char)('0' + tid % 10);
	strcpy(stpcpy(path + strlen(path), first), "/stat");
	fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return THREAD_GONE;
	n = syscall(SYS_read, fd, text, sizeof(text) - 1);
	syscall(SYS_close, fd);
	if (n <= 0)
		return THREAD_GONE;
	text[n] = '\0';
	name_end = strrchr(text, ')');
	return name_end && name_end[1] == ' ' ? name_end[2] : 'R';
}

/*
 * Waits until the thread sleeps for a while. A short sleep may be for a lock that is about to be
 * released, a sanitizer's for example.
 */
void wait_until_asleep(int tid, const char *states)
{
	unsigned asleep = 0;
	char state;

	while (asleep < LOOKS && (state = thread_state(tid)) != THREAD_GONE) {
		if (strchr(states, state)) {
			asleep++;
			usleep(1000);
		} else {
			asleep = 0;
			sched_yield();
		}
	}
}
