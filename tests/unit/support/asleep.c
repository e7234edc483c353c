/* SPDX-License-Identifier: MIT */
/* Reads from /proc what a thread does, to wait until it sleeps. */
#include "tests/unit/support/asleep.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/support/patience.h"

enum { LOOKS = 6 };

/* Appends the number, as a signal handler may. */
static char *put_number(char *at, int number)
{
	char digits[12], *first = digits + sizeof(digits);

	*--first = '\0';
	for (; number; number /= 10)
		*--first = (char)('0' + number % 10);
	return stpcpy(at, first);
}

/*
 * The path names the thread in a way that an emulator of processors leaves to the kernel. Uses
 * system calls that ThreadSanitizer does not see: it would take the descriptor for the one that
 * another thread had under the same number.
 */
char thread_state(int tid)
{
	char path[64], text[256], state;
	const char *name_end;
	long fd, n;

	strcpy(put_number(stpcpy(put_number(stpcpy(path, "/proc/"), tid), "/task/"), tid), "/stat");
	fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return THREAD_GONE;
	n = syscall(SYS_read, fd, text, sizeof(text) - 1);
	syscall(SYS_close, fd);
	if (n <= 0)
		return THREAD_GONE;
	text[n] = '\0';
	name_end = strrchr(text, ')');
	state = name_end && name_end[1] == ' ' ? name_end[2] : 'R';
	return state == 'Z' || state == 'X' ? THREAD_GONE : state;
}

/*
 * Waits until the thread sleeps for a while. A short sleep may be for a lock that is about to be
 * released, a sanitizer's for example.
 */
void wait_until_asleep(int tid, const char *states)
{
	const uint64_t deadline = patience_now() + PATIENCE_NS;
	unsigned asleep = 0;
	char state;

	while (asleep < LOOKS && (state = thread_state(tid)) != THREAD_GONE) {
		if (patience_now() > deadline) {
			fprintf(stderr, "thread %d does not fall asleep: its state is %c\n", tid,
				state);
			abort();
		}
		if (strchr(states, state)) {
			asleep++;
			usleep(1000);
		} else {
			asleep = 0;
			sched_yield();
		}
	}
}
