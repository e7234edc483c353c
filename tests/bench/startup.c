// SPDX-License-Identifier: MIT
/*
 * startup LIBRARY [COUNT]: the time that a preload of LIBRARY adds to a process that does nothing:
 * /bin/true, started COUNT times with it and COUNT times without, by turns.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static double life_of(char *const envp[])
{
	char *const argv[] = {"/bin/true", NULL};
	double begin = now_ns();
	int status;
	pid_t pid;

	if (posix_spawn(&pid, argv[0], NULL, NULL, argv, envp) != 0)
		stop("can't start /bin/true", 0);
	if (waitpid(pid, &status, 0) != pid || status != 0)
		stop("/bin/true ended with status", status);
	return now_ns() - begin;
}

int main(int argc, char **argv)
{
	size_t count = argc == 3 ? strtoul(argv[2], NULL, 10) : 500, i;
	double *without = calloc(count, sizeof(*without)), *with = calloc(count, sizeof(*with));
	char preload[4096];
	char *const plain[] = {"PATH=/bin", NULL}, *const preloaded[] = {"PATH=/bin", preload,
									 NULL};

	if (argc < 2 || !count || !without || !with) {
		fprintf(stderr, "usage: %s LIBRARY [COUNT]\n", argv[0]);
		return 2;
	}
	if (access(argv[1], R_OK) != 0)
		stop("can't read the library to preload", 0);
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", argv[1]);
	for (i = 0; i < count; i++) {
		without[i] = life_of(plain);
		with[i] = life_of(preloaded);
	}
	print_measure("start-up direct, us", median(without, count) / 1e3);
	print_measure("start-up preloaded, us", median(with, count) / 1e3);
	free(without);
	free(with);
	return 0;
}
