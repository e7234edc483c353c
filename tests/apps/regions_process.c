/* SPDX-License-Identifier: MIT */
/*
 * Children: none keeps a registration of its parent alive, whether it continues as a copy or starts
 * another program.
 */
#define _GNU_SOURCE
#include "regions.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB  (1024u * 1024u)
#define SIZE (64u * MIB)

/* The result of a child, as its exit status. */
enum {
	CHILD_FINE = 40,
	CHILD_HAS_DESCRIPTORS,
	CHILD_HOLDS_A_REGION,
	CHILD_CAN_PIN,
	CHILD_CAN_FREE,
};

static size_t free_memory(void)
{
	size_t available = 0, total = 0;

	cuMemGetInfo_v2(&available, &total);
	return available;
}

/* The child as a copy: the parent's region means nothing there, and its put is ignored. */
static int run_as_copy(pindown_region *held, int descriptors)
{
	pindown_region *region = NULL;

	if (regions_open_descriptors() > descriptors)
		return CHILD_HAS_DESCRIPTORS;
	pindown_api.put(held);
	if (regions_stats().regions != 0 || regions_stats().kept_regions != 0)
		return CHILD_HOLDS_A_REGION;
	if (pindown_api.get(s.at, SIZE, 0, &region) == PINDOWN_OK)
		return CHILD_CAN_PIN;
	return CHILD_FINE;
}

static int status_of(pid_t child)
{
	int status = -1;

	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const char *meaning(int status)
{
	switch (status) {
	case CHILD_FINE:
		return NULL;
	case CHILD_HAS_DESCRIPTORS:
		return "the child has more descriptors than its parent had before the pin";
	case CHILD_HOLDS_A_REGION:
		return "the child has a region";
	case CHILD_CAN_PIN:
		return "the child can pin without a CUDA driver of its own";
	case CHILD_CAN_FREE:
		return "the child can free the parent's memory";
	}
	return "the child crashed";
}

/*
 * The child is a copy and lives on while the parent frees: the memory must come back at once. With
 * `hold` the parent holds its region during the fork.
 */
static const char *run_fork(bool hold)
{
	int descriptors = regions_open_descriptors(), to_child[2], from_child[2];
	pindown_region *region = NULL;
	size_t before;
	char byte = 0;
	pid_t child;
	int status;

	if (!OK(cuMemAlloc_v2(&s.at, SIZE)) || pipe(to_child) != 0 || pipe(from_child) != 0)
		return "can't begin";
	descriptors += 4;
	if (pindown_api.get(s.at, SIZE, 0, &region) != PINDOWN_OK)
		return "it can't be registered";
	if (!hold)
		pindown_api.put(region);
	child = fork();
	if (child == 0) {
		status = run_as_copy(region, descriptors);
		/* Notifies the parent, and stays until the parent has freed. */
		if (write(from_child[1], "", 1) != 1 || close(to_child[1]) != 0 ||
		    read(to_child[0], &byte, 1) != 0)
			_exit(1);
		_exit(status);
	}
	if (read(from_child[0], &byte, 1) != 1)
		return "the child crashed";
	if (hold && !pindown_api.is_live(region))
		return "the parent's hold was lost";
	if (hold)
		pindown_api.put(region);
	before = free_memory();
	cuMemFree_v2(s.at);
	before = free_memory() - before;
	close(to_child[0]);
	close(to_child[1]);
	close(from_child[0]);
	close(from_child[1]);
	status = status_of(child);
	if (before < SIZE / 2)
		return "its memory did not come back while the child lived";
	return meaning(status);
}

/* ---- other libraries' handlers of fork() ---- */

/*
 * Registers memory of its own and frees it, as a library's handler may; in a child the driver
 * refuses.
 */
static bool handlers_call, alone; /* alone: no other code pins */
static const char *handlers_complaint;

static void complain(const char *what)
{
	if (!handlers_complaint)
		handlers_complaint = what;
}

static void in_parent_or_prepare(void)
{
	pindown_region *region = NULL;
	CUdeviceptr at = 0;
	int exports;

	if (!handlers_call)
		return;
	exports = regions_open_exports();
	if (!OK(cuMemAlloc_v2(&at, MIB)) || pindown_api.get(at, MIB, 0, &region) != PINDOWN_OK) {
		complain("a handler of fork() can't register memory");
		return;
	}
	pindown_api.put(region);
	cuMemFree_v2(at);
	if (alone && regions_open_exports() != exports)
		complain("a handler of fork() frees memory, and its registration stays");
}

static int child_handler_saw = CHILD_FINE;

/*
 * Before a real driver's own handler has run, the driver works in the child, and a free there frees
 * the parent's memory, with or without pindown. So this handler does not call it.
 */
static void in_child_before_the_driver(void)
{
	if (handlers_call && regions_stats().regions != 0)
		child_handler_saw = CHILD_HOLDS_A_REGION;
}

static void in_child_after_the_driver(void)
{
	pindown_region *region = NULL;

	if (!handlers_call)
		return;
	if (pindown_api.get(s.at, SIZE, 0, &region) == PINDOWN_OK)
		child_handler_saw = CHILD_CAN_PIN;
	if (OK(cuMemFree_v2(s.at)))
		child_handler_saw = CHILD_CAN_FREE;
}

static void register_first_handlers(void)
{
	pthread_atfork(in_parent_or_prepare, in_parent_or_prepare, in_child_before_the_driver);
}

/*
 * Runs before the constructor of any library: its prepare handler runs last, and its child handler
 * first.
 */
__attribute__((section(".preinit_array"),
	       used)) static void (*const before_all)(void) = register_first_handlers;

static bool enough;

/* Another thread often holds pindown's locks when the process forks. */
static void *churn(void *unused)
{
	pindown_region *region = NULL;
	CUdeviceptr at = 0;

	cuCtxSetCurrent(s.primary);
	while (!__atomic_load_n(&enough, __ATOMIC_RELAXED)) {
		if (!OK(cuMemAlloc_v2(&at, MIB)))
			break;
		if (pindown_api.get(at, MIB, 0, &region) == PINDOWN_OK)
			pindown_api.put(region);
		cuMemFree_v2(at);
	}
	return unused;
}

static const char *fork_and_wait(void)
{
	pindown_region *region = NULL;
	pid_t child;

	if (pindown_api.get(s.at, SIZE, 0, &region) != PINDOWN_OK)
		return "it can't be registered";
	child = fork();
	if (child == 0)
		_exit(child_handler_saw != CHILD_FINE
			      ? child_handler_saw
			      : run_as_copy(region, regions_open_descriptors()));
	pindown_api.put(region);
	if (handlers_complaint)
		return handlers_complaint;
	return meaning(status_of(child));
}

static const char *run_handlers(void)
{
	const char *wrong;
	pthread_t thread;

	if (!OK(cuMemAlloc_v2(&s.at, SIZE)))
		return "can't begin";
	/* Registered once more, now as the last handlers. */
	pthread_atfork(in_parent_or_prepare, in_parent_or_prepare, in_child_after_the_driver);
	handlers_call = true;
	handlers_complaint = NULL;
	alone = true;
	wrong = fork_and_wait();
	alone = false;
	if (!wrong && pthread_create(&thread, NULL, churn, NULL) == 0) {
		for (unsigned i = 0; i < 20 && !wrong; i++)
			wrong = fork_and_wait();
		__atomic_store_n(&enough, true, __ATOMIC_RELAXED);
		pthread_join(thread, NULL);
	}
	handlers_call = false;
	cuMemFree_v2(s.at);
	return wrong;
}

/* A new program inherits no descriptor that it should not have. */
static const char *run_exec(void)
{
	pindown_region *region = NULL;
	int status;
	pid_t child;

	if (!OK(cuMemAlloc_v2(&s.at, SIZE)) ||
	    pindown_api.get(s.at, SIZE, 0, &region) != PINDOWN_OK)
		return "it can't be registered";
	child = vfork();
	if (child == 0) {
		execl("/bin/sh", "sh", "-c",
		      "for f in /proc/$$/fd/*; do case $(readlink $f) in "
		      "/dmabuf:*|*simulated-gpu*) "
		      "exit 9;; "
		      "esac; done; exit 40",
		      (char *)NULL);
		_exit(1);
	}
	status = status_of(child);
	pindown_api.put(region);
	cuMemFree_v2(s.at);
	return status == 9	      ? "a registration's descriptor is open in the new program"
	       : status != CHILD_FINE ? "the new program did not run"
				      : NULL;
}

static const char *run_idle_fork(void)
{
	return run_fork(false);
}

static const char *run_held_fork(void)
{
	return run_fork(true);
}

const struct regions_process_case regions_process_cases[] = {
	{"fork, the child lives on, idle", run_idle_fork},
	{"fork, the child lives on, held", run_held_fork},
	{"fork, handlers before and after ours call the driver and the API", run_handlers},
	{"exec of another program, held", run_exec},
	{NULL, NULL},
};
