/* SPDX-License-Identifier: MIT */
/*
 * A library whose constructor waits for a thread that calls the driver. The loader's lock is held
 * meanwhile, so a call that needs this lock would never return.
 */
#include <pthread.h>

#include "hook/cuda/abi.h"
#include "tests/unit/hook/table_driver.h"

__attribute__((visibility("default"))) CUresult table_waited;

static void *call(void *unused)
{
	(void)unused;
	table_waited = cuMemFree_v2(1);
	return NULL;
}

__attribute__((constructor)) static void loaded(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, call, NULL))
		pthread_join(thread, NULL);
}
