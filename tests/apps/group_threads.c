/* SPDX-License-Identifier: MIT */
/* Several generations of threads allocate and free at once, and end at different times. */
#include "app.h"

#include <pthread.h>

#define THREADS	    8
#define GENERATIONS 3
#define ROUNDS	    40

static CUcontext context;
static CUdeviceptr handed_over[THREADS]; /* another thread frees it */

static void *work(void *argument)
{
	intptr_t self = (intptr_t)argument;
	CUdeviceptr at = 0;
	int i, bad = 0;

	app_quiet = true;
	bad += PLAIN(cuCtxSetCurrent, context) != 0;
	for (i = 0; i < ROUNDS; i++) {
		bad += WATCHED(at, cuMemAlloc_v2, &at, 1000u * (i + 1)) != 0;
		if (i % 4 == 3)
			bad += WATCHED(at, cuMemFree_v2, at + 512) == 0; /* not its address */
		bad += WATCHED(at, cuMemFree_v2, at) != 0;
		bad += WATCHED(at, cuMemAllocAsync, &at, 70000, NULL) != 0;
		bad += WATCHED(at, cuMemFreeAsync, at, NULL) != 0;
	}
	bad += WATCHED(handed_over[self], cuMemAlloc_v2, &handed_over[self], 5000) != 0;
	return (void *)(intptr_t)bad;
}

int app_threads(int argc, char **argv)
{
	CUdevice device = app_begin();
	pthread_t thread[THREADS];
	int generation, bad = 0;
	void *result;
	intptr_t i;

	(void)argc, (void)argv;
	PLAIN(cuCtxGetCurrent, &context);
	for (generation = 0; generation < GENERATIONS; generation++) {
		for (i = 0; i < THREADS; i++)
			if (pthread_create(&thread[i], NULL, work, (void *)i) != 0)
				return 1;
		for (i = 0; i < THREADS; i++) {
			pthread_join(thread[i], &result);
			bad += (int)(intptr_t)result;
		}
		app_quiet = true;
		for (i = 0; i < THREADS; i++)
			bad += WATCHED(handed_over[i], cuMemFree_v2, handed_over[i]) != 0;
		app_quiet = false;
		app_say("generation %d: %d unexpected results", generation, bad);
	}
	app_end(device);
	return 0;
}
