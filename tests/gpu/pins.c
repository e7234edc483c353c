/* SPDX-License-Identifier: MIT */
/*
 * Pins in parallel: 1 to 16 threads, each of which pins memory of its own again and again. First by
 * the driver's dma-buf export alone, then through pindown, if that is preloaded, while another
 * thread hits. So the first lines show the driver's own lock, and the second ones add pindown's.
 * Prints lines "NAME<tab>NANOSECONDS": how long a thread waits for one pin, the median of all.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "hook/cuda/abi.h"
#include "cache/pindown.h"

#define SIZE	    ((size_t)4 << 20)
#define MAX_THREADS 16u
#define ROUNDS	    101u
#define HITS	    1000u

static struct {
	__typeof__(&pindown_get) get;
	__typeof__(&pindown_put) put;
	__typeof__(&pindown_invalidate) invalidate;
} pindown;

static CUcontext context;
static pthread_barrier_t start_line;

struct worker {
	pthread_t thread;
	void (*pin)(CUdeviceptr at);
	CUdeviceptr at;
	double *times; /* ROUNDS of them */
};

static void must(int result, const char *what)
{
	if (result != 0)
		stop(what, result);
}

static void export_and_close(CUdeviceptr at)
{
	int fd = -1;

	must(cuMemGetHandleForAddressRange(&fd, at, SIZE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
	     "export");
	close(fd);
}

static void miss_and_unpin(CUdeviceptr at)
{
	pindown_region *region;

	must(pindown.get(at, SIZE, 0, &region), "pindown_get");
	pindown.put(region);
	if (pindown.invalidate(at, SIZE) != 1)
		stop("pindown_invalidate", 0);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	w->pin(w->at);
	pthread_barrier_wait(&start_line);
	for (unsigned i = 0; i < ROUNDS; i++) {
		double begin = now_ns();

		w->pin(w->at);
		w->times[i] = now_ns() - begin;
	}
	return NULL;
}

/* The threads have come to the start line: what is done from here on is done meanwhile. */
static void measure(const char *what, void (*pin)(CUdeviceptr), const CUdeviceptr *memory,
		    unsigned threads, void (*meanwhile)(unsigned))
{
	static double times[MAX_THREADS * ROUNDS];
	struct worker workers[MAX_THREADS];
	char name[80];

	pthread_barrier_init(&start_line, NULL, threads + 1);
	for (unsigned i = 0; i < threads; i++) {
		workers[i] =
			(struct worker){.pin = pin, .at = memory[i], .times = times + i * ROUNDS};
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			stop("no thread", 0);
	}
	pthread_barrier_wait(&start_line);
	if (meanwhile)
		meanwhile(threads);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	pthread_barrier_destroy(&start_line);
	snprintf(name, sizeof(name), "%s, %u threads", what, threads);
	print_measure(name, median(times, threads * ROUNDS));
}

static CUdeviceptr hit_memory;

static void hit(unsigned threads)
{
	static double times[HITS];
	pindown_region *region;
	char name[80];

	for (unsigned i = 0; i < HITS; i++) {
		double begin = now_ns();

		must(pindown.get(hit_memory, SIZE, 0, &region), "pindown_get");
		pindown.put(region);
		times[i] = now_ns() - begin;
	}
	snprintf(name, sizeof(name), "hit + put while %u threads pin, with the clock", threads);
	print_measure(name, median(times, HITS));
}

int main(void)
{
	CUdeviceptr memory[MAX_THREADS];

	must(cuInit(0), "cuInit");
	must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	pindown.put = dlsym(RTLD_DEFAULT, "pindown_put");
	pindown.invalidate = dlsym(RTLD_DEFAULT, "pindown_invalidate");
	pindown.get = dlsym(RTLD_DEFAULT, "pindown_get");
	must(cuMemAlloc_v2(&hit_memory, SIZE), "cuMemAlloc");
	for (unsigned i = 0; i < MAX_THREADS; i++)
		must(cuMemAlloc_v2(&memory[i], SIZE), "cuMemAlloc");
	for (unsigned threads = 1; threads <= MAX_THREADS; threads *= 2) {
		measure("export + close", export_and_close, memory, threads, NULL);
		if (pindown.get != NULL)
			measure("miss + unpin", miss_and_unpin, memory, threads, hit);
	}
	for (unsigned i = 0; i < MAX_THREADS; i++)
		must(cuMemFree_v2(memory[i]), "cuMemFree");
	must(cuMemFree_v2(hit_memory), "cuMemFree");
	return 0;
}
