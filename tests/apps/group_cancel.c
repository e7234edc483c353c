/* SPDX-License-Identifier: MIT */
/*
 * A thread with a pending cancellation continues to the next cancellation point. The driver's calls
 * have none, and a preload must not add any.
 */
#define _GNU_SOURCE
#include "app.h"

#include <pthread.h>

static unsigned steps; /* the number of calls from which the thread has returned */

/* Like WATCHED, which writes to a file: cancellation is disabled only there. */
#define CALLED(addr, fn, ...)                                           \
	({                                                              \
		CUresult result_ = CU(fn)(__VA_ARGS__);                 \
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);   \
		app_after(#fn, result_, errno, (uint64_t)(addr), true); \
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);    \
		steps++;                                                \
		result_;                                                \
	})

static void *allocate_and_free(void *context)
{
	CUdeviceptr at = 0;

	app_quiet = true;
	pthread_cancel(pthread_self());
	CU(cuCtxSetCurrent)(context);
	CALLED(at, cuMemAlloc_v2, &at, 1 << 20);
	CALLED(0, cuMemFree_v2, at);
	if (APP_HAS(cuMemAllocAsync) &&
	    CALLED(at, cuMemAllocAsync, &at, 1 << 20, NULL) == CUDA_SUCCESS)
		CALLED(0, cuMemFreeAsync, at, NULL);
	pthread_testcancel();
	steps = 0;
	return NULL;
}

int app_cancel(int argc, char **argv)
{
	CUdevice device = app_begin();
	CUcontext context = NULL;
	CUdeviceptr at = 0;
	void *end = NULL;
	pthread_t thread;

	(void)argc, (void)argv;
	PLAIN(cuCtxGetCurrent, &context);
	if (pthread_create(&thread, NULL, allocate_and_free, context) == 0)
		pthread_join(thread, &end);
	app_say("%s after %u calls", end == PTHREAD_CANCELED ? "cancelled" : "not cancelled",
		steps);
	WATCHED(at, cuMemAlloc_v2, &at, 1 << 20);
	WATCHED(at, cuMemFree_v2, at);
	app_end(device);
	return 0;
}
