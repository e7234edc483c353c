/* SPDX-License-Identifier: MIT */
/* Children of a process that uses CUDA: they can't use it themselves until they exec. */
#define _GNU_SOURCE
#include "app.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

extern char **environ;

/* A child without exec: the driver refuses, and the parent's memory is not affected. */
static void plain_child(CUdeviceptr at)
{
	pid_t child = fork();

	if (child == 0) {
		CUdeviceptr own = 0;

		app_say("in the child, libc is %s", dlsym(RTLD_DEFAULT, "fork") ? "found" : "lost");
		WATCHED(0, cuMemFree_v2, at);
		WATCHED(own, cuMemAlloc_v2, &own, 4096);
		_exit(3);
	}
	app_wait(child);
	app_say("the parent's: %s", app_write_and_read(at, 4096, 27));
}

/* A child that ends by exit(), through every exit handler that it inherited. */
static void exiting_child(void)
{
	pid_t child = fork();

	if (child == 0)
		exit(4);
	app_wait(child);
}

static void exec_child(void)
{
	pid_t child = fork();

	if (child == 0) {
		app_wait(app_spawn("linear", NULL));
		_exit(5);
	}
	app_wait(child);
}

static void vfork_child(void)
{
	static char *const arguments[] = {"sh", "-c", "exit 6", NULL};
	pid_t child = vfork();

	if (child == 0) {
		execve("/bin/sh", arguments, environ);
		_exit(126);
	}
	app_wait(child);
}

static void *fork_in_thread(void *argument)
{
	CUcontext context = argument;

	PLAIN(cuCtxSetCurrent, context);
	exec_child();
	return NULL;
}

/* As a shell does it: a grandchild does the work. */
static void popen_child(void)
{
	FILE *pipe = popen("echo from a shell", "r");
	char line[64] = "";

	if (pipe != NULL && fgets(line, sizeof(line), pipe) != NULL)
		line[strcspn(line, "\n")] = '\0';
	app_say("%s; %d", line, pipe != NULL ? pclose(pipe) : -1);
	app_say("system: %d", WEXITSTATUS(system("exit 7")));
}

int app_fork(int argc, char **argv)
{
	CUdevice device = app_begin();
	CUcontext context = NULL;
	CUdeviceptr at = 0;
	pthread_t thread;

	(void)argc, (void)argv;
	WATCHED(at, cuMemAlloc_v2, &at, 1 << 20);
	plain_child(at);
	exiting_child();
	exec_child();
	vfork_child();
	popen_child();
	PLAIN(cuCtxGetCurrent, &context);
	if (pthread_create(&thread, NULL, fork_in_thread, context) == 0)
		pthread_join(thread, NULL);
	app_say("the parent's: %s", app_write_and_read(at, 4096, 28));
	WATCHED(at, cuMemFree_v2, at);
	app_end(device);
	return 0;
}
