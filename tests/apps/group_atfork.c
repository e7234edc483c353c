/* SPDX-License-Identifier: MIT */
/*
 * Handlers of pthread_atfork() that call the driver: those that main.c registers before all others,
 * and those registered last; meanwhile another thread allocates and frees.
 */
#define _GNU_SOURCE
#include "app.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

void (*app_at_fork)(const char *when);

/*
 * A child prints nothing before all handlers of its parent have printed, so that the order of lines
 * is fixed.
 */
static int parent_is_through[2];
static pid_t parent;

static void wait_for_the_parent(void)
{
	char byte;

	if (getpid() == parent)
		return;
	parent = getpid();
	if (read(parent_is_through[0], &byte, 1) != 1)
		app_say("the parent has gone");
}

static void allocate_and_free(const char *when)
{
	CUdeviceptr at = 0;

	wait_for_the_parent();
	app_say("%s", when);
	WATCHED(at, cuMemAlloc_v2, &at, 1 << 20);
	WATCHED(0, cuMemFree_v2, at);
}

/*
 * In a child of a real driver the parent's memory exists until the driver's own handler has run,
 * and a free there takes it from the parent. The simulated driver refuses at once.
 */
static void early(const char *when)
{
	const char *driver = getenv("DRIVER");

	if (getpid() == parent || !driver || strcmp(driver, "real") != 0) {
		allocate_and_free(when);
		return;
	}
	wait_for_the_parent();
	app_say("%s", when);
}

static void late_prepare(void)
{
	allocate_and_free("late prepare");
}

static void late_parent(void)
{
	allocate_and_free("late parent");
	if (write(parent_is_through[1], "", 1) != 1)
		app_say("a pipe is full");
}

static void late_child(void)
{
	allocate_and_free("late child");
}

static bool enough;

static void *churn(void *context)
{
	app_quiet = true;
	CU(cuCtxSetCurrent)(context);
	while (!__atomic_load_n(&enough, __ATOMIC_RELAXED)) {
		CUdeviceptr at = 0;

		WATCHED(at, cuMemAlloc_v2, &at, 1 << 20);
		WATCHED(0, cuMemFree_v2, at);
	}
	return NULL;
}

static void fork_once(void)
{
	pid_t child = fork();

	if (child == 0) {
		allocate_and_free("the child");
		_exit(3);
	}
	app_wait(child);
	allocate_and_free("the parent");
}

int app_atfork(int argc, char **argv)
{
	CUdevice device = app_begin();
	CUcontext context = NULL;
	pthread_t thread;

	(void)argc, (void)argv;
	parent = getpid();
	if (pipe(parent_is_through) != 0)
		return 1;
	app_at_fork = early;
	pthread_atfork(late_prepare, late_parent, late_child);
	fork_once();
	PLAIN(cuCtxGetCurrent, &context);
	app_quiet = true; /* from here on the addresses depend on the other thread */
	if (pthread_create(&thread, NULL, churn, context) == 0) {
		for (unsigned i = 0; i < 20; i++)
			fork_once();
		__atomic_store_n(&enough, true, __ATOMIC_RELAXED);
		pthread_join(thread, NULL);
	}
	app_quiet = false;
	allocate_and_free("the end");
	app_at_fork = NULL;
	app_end(device);
	return 0;
}
