/* SPDX-License-Identifier: MIT */
/*
 * Where the process was when it crashed: of each thread what it was doing, and its stack. Whose
 * fault it is can be seen from that alone: libcuda may crash in a call of the program's own.
 */
#define _GNU_SOURCE
#include "races.h"

#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__thread const char *stage = "no thread of the test", *stage_of = "";

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
void tell_of_crashes(void) /* the sanitizer does */
{
}
#else

#define MAX_DEPTH 48

static int crashed, answered; /* a thread has; the thread that was asked last */

static void say(const char *text)
{
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return; /* nobody can be told */
}

static void say_where(const char *what)
{
	void *frames[MAX_DEPTH];
	char line[200];

	snprintf(line, sizeof(line), "-- thread %ld %s, in: %s%s%s\n", syscall(SYS_gettid), what,
		 stage, *stage_of ? " of " : "", stage_of);
	say(line);
	backtrace_symbols_fd(frames, backtrace(frames, MAX_DEPTH), STDERR_FILENO);
}

static void on_question(int signal)
{
	(void)signal;
	say_where("meanwhile");
	__atomic_store_n(&answered, 1, __ATOMIC_RELEASE);
}

static void ask_thread(int tid)
{
	const struct timespec nap = {.tv_nsec = 1000000};

	__atomic_store_n(&answered, 0, __ATOMIC_RELAXED);
	if (syscall(SYS_tgkill, getpid(), tid, SIGUSR2) != 0)
		return;
	for (int i = 0; i < 100 && !__atomic_load_n(&answered, __ATOMIC_ACQUIRE); i++)
		nanosleep(&nap, NULL);
	if (!__atomic_load_n(&answered, __ATOMIC_ACQUIRE))
		say("-- a thread does not answer\n");
}

static int number_of(const char *digits)
{
	int number = 0;

	for (; *digits >= '0' && *digits <= '9'; digits++)
		number = number * 10 + (*digits - '0');
	return number;
}

/* Without readdir(), which allocates: the crash may have been in malloc(). */
static void ask_all_others(void)
{
	static char entries[32768];
	int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY), me = (int)syscall(SYS_gettid);
	long bytes;

	while ((bytes = syscall(SYS_getdents64, folder, entries, sizeof(entries))) > 0)
		for (long at = 0; at < bytes;) {
			const struct dirent64 *entry = (const void *)(entries + at);
			int tid = number_of(entry->d_name);

			if (tid && tid != me)
				ask_thread(tid);
			at += entry->d_reclen;
		}
}

static void on_crash(int number)
{
	char line[60];

	if (__atomic_exchange_n(&crashed, 1, __ATOMIC_ACQ_REL))
		for (;;)
			pause(); /* the first one asks this one, too, and ends the process */
	snprintf(line, sizeof(line), "CRASHED by signal %d\n", number);
	say(line);
	say_where("crashed");
	ask_all_others();
	signal(number, SIG_DFL);
	raise(number);
}

void tell_of_crashes(void)
{
	struct sigaction crash = {.sa_handler = on_crash, .sa_flags = SA_NODEFER};
	struct sigaction question = {.sa_handler = on_question, .sa_flags = SA_RESTART};
	void *first[1];

	backtrace(first, 1); /* it loads a library the first time */
	sigaction(SIGUSR2, &question, NULL);
	sigaction(SIGSEGV, &crash, NULL);
	sigaction(SIGBUS, &crash, NULL);
	sigaction(SIGABRT, &crash, NULL);
}
#endif
