/* SPDX-License-Identifier: MIT */
/*
 * asked [SECONDS]: two threads free and allocate memory while six get and put at addresses in it,
 * hits and misses. asked --driver [SECONDS]: the six ask the driver itself, in which libcuda 580
 * crashes. With pindown it must not: a question and a free wait for each other.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "hook/cuda/abi.h"
#include "cache/pindown.h"

#define FREERS	 2
#define ASKERS	 6
#define SLOTS	 32 /* for each thread that frees */
#define PAUSE_US 20000

static struct {
	__typeof__(&pindown_get) get;
	__typeof__(&pindown_put) put;
} pindown;

static CUcontext context;
static CUdeviceptr slots[FREERS][SLOTS];
static bool is_over, asks_driver;
static unsigned long asked, freed;

static void must(int result, const char *what)
{
	if (result != 0)
		stop(what, result);
}

static bool goes_on(void)
{
	return !__atomic_load_n(&is_over, __ATOMIC_RELAXED);
}

static void *free_and_allocate(void *arg)
{
	CUdeviceptr *mine = arg;
	unsigned seed = (unsigned)(mine - slots[0]) + 1;

	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	while (goes_on()) {
		CUdeviceptr *slot = &mine[rand_r(&seed) % SLOTS], now = *slot;

		/* Others still have its address as often as not. */
		if (rand_r(&seed) % 2)
			__atomic_store_n(slot, 0, __ATOMIC_RELAXED);
		if (now)
			must(cuMemFree_v2(now), "cuMemFree");
		must(cuMemAlloc_v2(&now, (size_t)4096 << rand_r(&seed) % 10), "cuMemAlloc");
		__atomic_store_n(slot, now, __ATOMIC_RELAXED);
		__atomic_fetch_add(&freed, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void ask_driver(CUdeviceptr addr)
{
	CUdeviceptr base;
	size_t size;

	cuMemGetAddressRange_v2(&base, &size, addr);
}

static void get_and_put(CUdeviceptr addr)
{
	pindown_region *region;

	if (pindown.get(addr, 1, 0, &region) == PINDOWN_OK)
		pindown.put(region);
}

static void *ask(void *arg)
{
	unsigned seed = *(unsigned *)arg;

	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	while (goes_on()) {
		CUdeviceptr *slot = &slots[rand_r(&seed) % FREERS][rand_r(&seed) % SLOTS];
		CUdeviceptr addr = __atomic_load_n(slot, __ATOMIC_RELAXED);

		if (!addr)
			continue;
		addr += rand_r(&seed) % 4 ? 0 : 512;
		if (asks_driver)
			ask_driver(addr);
		else
			get_and_put(addr);
		__atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void make_context(void)
{
	CUdevice device;

	must(cuInit(0), "cuInit");
	must(cuDeviceGet(&device, 0), "cuDeviceGet");
	must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
}

static void find_pindown(void)
{
	pindown.get = (__typeof__(pindown.get))dlsym(RTLD_DEFAULT, "pindown_get");
	pindown.put = (__typeof__(pindown.put))dlsym(RTLD_DEFAULT, "pindown_put");
	if (!pindown.get || !pindown.put)
		stop("libpindown.so is not preloaded", 0);
}

int main(int argc, char **argv)
{
	pthread_t threads[FREERS + ASKERS];
	unsigned seeds[ASKERS];
	unsigned seconds;

	asks_driver = argc > 1 && !strcmp(argv[1], "--driver");
	seconds = argc > 1 + asks_driver ? (unsigned)atoi(argv[1 + asks_driver]) : 8;
	if (!asks_driver)
		find_pindown();
	make_context();
	for (unsigned i = 0; i < FREERS; i++)
		must(pthread_create(&threads[i], NULL, free_and_allocate, slots[i]), "a thread");
	for (unsigned i = 0; i < ASKERS; i++) {
		seeds[i] = i + 1000;
		must(pthread_create(&threads[FREERS + i], NULL, ask, &seeds[i]), "a thread");
	}
	for (unsigned i = 0; i < seconds * (1000000 / PAUSE_US); i++)
		usleep(PAUSE_US);
	__atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < FREERS + ASKERS; i++)
		pthread_join(threads[i], NULL);
	printf("%lu %s, %lu frees, no crash\n", asked, asks_driver ? "questions" : "gets", freed);
	return 0;
}
