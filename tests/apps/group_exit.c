/* SPDX-License-Identifier: MIT */
/*
 * Ways to exit with memory and contexts left, or with CUDA calls after CUDA has shut down. Each is
 * a process of its own; the first one waits for them and prints how they ended.
 */
#define _GNU_SOURCE
#include "app.h"

#include <pthread.h>
#include <signal.h>

static CUdeviceptr kept;
static bool free_in_destructor;

static void free_kept(void)
{
	app_say("an exit handler frees:");
	WATCHED(kept, cuMemFree_v2, kept);
}

__attribute__((destructor)) static void last_words(void)
{
	if (!free_in_destructor)
		return;
	app_say("a destructor frees:");
	WATCHED(kept, cuMemFree_v2, kept);
	WATCHED(0, cuDevicePrimaryCtxRelease_v2, 0);
}

static void *exit_in_thread(void *argument)
{
	(void)argument;
	exit(11);
}

/* The main thread has ended before; this one ends the process. */
static void *outlive_main(void *argument)
{
	pthread_join(*(pthread_t *)argument, NULL);
	exit(12);
}

static void *stay_for_ever(void *argument)
{
	CUdeviceptr at = 0;

	PLAIN(cuCtxSetCurrent, (CUcontext)argument);
	WATCHED(at, cuMemAlloc_v2, &at, 4096);
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
	return NULL;
}

static int end_by(const char *way)
{
	static pthread_t main_thread;
	CUcontext context = NULL;
	pthread_t thread;

	main_thread = pthread_self();
	if (strcmp(way, "early_handler") == 0)
		atexit(free_kept); /* runs after those that CUDA registers at cuInit */
	app_begin();
	WATCHED(kept, cuMemAlloc_v2, &kept, 1 << 20);
	PLAIN(cuCtxGetCurrent, &context);
	if (strcmp(way, "late_handler") == 0)
		atexit(free_kept);
	if (strcmp(way, "quick_exit") == 0) {
		at_quick_exit(free_kept);
		quick_exit(10);
	}
	if (strcmp(way, "_exit") == 0)
		_exit(9);
	if (strcmp(way, "thread") == 0 && pthread_create(&thread, NULL, exit_in_thread, NULL) == 0)
		pthread_join(thread, NULL);
	if (strcmp(way, "killed") == 0 &&
	    pthread_create(&thread, NULL, stay_for_ever, context) == 0)
		pthread_join(thread, NULL);
	if (strcmp(way, "last_thread") == 0 &&
	    pthread_create(&thread, NULL, outlive_main, &main_thread) == 0)
		pthread_exit(NULL);
	if (strcmp(way, "signal") == 0)
		raise(SIGTERM);
	free_in_destructor = strcmp(way, "destructor") == 0;
	return 8;
}

int app_exit(int argc, char **argv)
{
	static const char *const ways[] = {
		"return",     "_exit",	"quick_exit",  "early_handler", "late_handler",
		"destructor", "thread", "last_thread", "signal",	"killed"};
	unsigned i;

	if (argc > 1)
		return end_by(argv[1]);
	for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
#ifdef __SANITIZE_THREAD__ /* its pthread_join knows no main thread */
		if (strcmp(ways[i], "last_thread") == 0)
			continue;
#endif
		app_say("-- %s", ways[i]);
		app_wait(app_spawn("exit", ways[i]));
	}
	return 0;
}
