// SPDX-License-Identifier: MIT
/*
 * events N: makes N watched calls in four threads, and a pin for every hundred: a trace with which
 * to measure the command.
 */
#include "calls.h"

#include <pthread.h>
#include <string.h>

#include "cache/pindown.h"

enum { THREADS = 4, BUFFERS = 50 };

static unsigned long each;

static void allocate_and_free(CUdeviceptr *at)
{
	pindown_region *region;

	for (unsigned i = 0; i < BUFFERS; i++)
		must(cuMemAlloc_v2(&at[i], 65536), "cuMemAlloc");
	if (pindown_get(at[0], 4096, 0, &region) == PINDOWN_OK)
		pindown_put(region);
	for (unsigned i = 0; i < BUFFERS; i++)
		must(cuMemFree_v2(at[i]), "cuMemFree");
}

static void *work(void *nothing)
{
	CUdeviceptr at[BUFFERS];

	(void)nothing;
	use_context();
	for (unsigned long i = 0; i < each; i += 2 * BUFFERS)
		allocate_and_free(at);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];

	if (argc != 2)
		stop("usage: events NUMBER", argc);
	each = strtoul(argv[1], NULL, 10) / THREADS;
	open_driver();
	for (unsigned i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, NULL) != 0)
			stop("pthread_create", (int)i);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
