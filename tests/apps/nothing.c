/* SPDX-License-Identifier: MIT */
/*
 * A program that never uses CUDA. It looks for effects of a preload in its own process:
 * descriptors, threads, signal handlers and masks, libraries, output, environment.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int count_in(const char *folder)
{
	DIR *entries = opendir(folder);
	int count = 0;

	while (entries != NULL && readdir(entries) != NULL)
		count++;
	if (entries != NULL)
		closedir(entries);
	return count;
}

static int lines_with(const char *file, const char *word)
{
	FILE *lines = fopen(file, "re");
	char line[4096];
	int count = 0;

	while (lines != NULL && fgets(line, sizeof(line), lines) != NULL)
		count += strstr(line, word) != NULL;
	if (lines != NULL)
		fclose(lines);
	return count;
}

static int handlers_set(void)
{
	struct sigaction action;
	int number, count = 0;

	for (number = 1; number < 32; number++)
		if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
			count++;
	return count;
}

static void *idle(void *argument)
{
	return argument;
}

int main(void)
{
	pthread_t thread;
	sigset_t mask;
	pid_t child;
	int status = 0, fd;

	printf("descriptors: %d\n", count_in("/proc/self/fd"));
	printf("threads: %d\n", count_in("/proc/self/task") - 2);
	printf("maps of libcuda: %d\n", lines_with("/proc/self/maps", "libcuda"));
	printf("maps of traces: %d\n", lines_with("/proc/self/maps", ".pdt"));
	printf("signal handlers: %d\n", handlers_set());
	sigprocmask(SIG_BLOCK, NULL, &mask);
	printf("SIGUSR1 blocked: %d\n", sigismember(&mask, SIGUSR1));
	fd = open("/dev/null", O_RDONLY);
	printf("lowest descriptor: %d\n", fd);
	close(fd);
	pthread_create(&thread, NULL, idle, NULL);
	pthread_join(thread, NULL);
	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(count_in("/proc/self/fd"));
	waitpid(child, &status, 0);
	printf("descriptors in a child: %d\n", WEXITSTATUS(status));
	return 17;
}
