// SPDX-License-Identifier: MIT
/*
 * startup LIBRARY [COUNT]: the time that a preload of LIBRARY adds to a process that does nothing,
 * the part of it in which a processor was busy, and its page faults: /bin/true, started COUNT times
 * with it and COUNT times without, by turns.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct lives {
	double *us, *busy_us, *faults;
	char *const *environment;
};

static double us_of(struct timeval time)
{
	return (double)time.tv_sec * 1e6 + (double)time.tv_usec;
}

static void live(const struct lives *lives, size_t i)
{
	char *const argv[] = {"/bin/true", NULL};
	double begin = now_ns();
	struct rusage usage;
	int status;
	pid_t pid;

	if (posix_spawn(&pid, argv[0], NULL, NULL, argv, lives->environment) != 0)
		stop("can't start /bin/true", 0);
	if (wait4(pid, &status, 0, &usage) != pid || status != 0)
		stop("/bin/true ended with status", status);
	lives->us[i] = (now_ns() - begin) / 1e3;
	lives->busy_us[i] = us_of(usage.ru_utime) + us_of(usage.ru_stime);
	lives->faults[i] = (double)usage.ru_minflt;
}

static struct lives room_for(size_t count, char *const *environment)
{
	struct lives lives = {calloc(count, sizeof(double)), calloc(count, sizeof(double)),
			      calloc(count, sizeof(double)), environment};

	if (!count || !lives.us || !lives.busy_us || !lives.faults)
		stop("no memory for the results", 0);
	return lives;
}

static void print(const struct lives *lives, size_t count, const char *how)
{
	char name[64];

	snprintf(name, sizeof(name), "start-up %s, us", how);
	print_measure(name, median(lives->us, count));
	snprintf(name, sizeof(name), "start-up %s, busy us", how);
	print_measure(name, median(lives->busy_us, count));
	snprintf(name, sizeof(name), "start-up %s, page faults", how);
	print_measure(name, median(lives->faults, count));
}

int main(int argc, char **argv)
{
	size_t count = argc == 3 ? strtoul(argv[2], NULL, 10) : 500;
	char preload[4096];
	char *const plain[] = {"PATH=/bin", NULL}, *const preloaded[] = {"PATH=/bin", preload,
									 NULL};
	struct lives without, with;

	if (argc < 2) {
		fprintf(stderr, "usage: %s LIBRARY [COUNT]\n", argv[0]);
		return 2;
	}
	if (access(argv[1], R_OK) != 0)
		stop("can't read the library to preload", 0);
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", argv[1]);
	without = room_for(count, plain);
	with = room_for(count, preloaded);
	for (size_t i = 0; i < count; i++) {
		live(&without, i);
		live(&with, i);
	}
	print(&without, count, "direct");
	print(&with, count, "preloaded");
	return 0;
}
