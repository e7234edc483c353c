/* SPDX-License-Identifier: MIT */
/*
 * Frees memory under registrations that the program goes on to hold, as middleware with a cache by
 * address does, on the recording libibverbs in place of the card.
 *
 * held times: prints lines "NAME<tab>NANOSECONDS" (medians): an allocation, ibv_reg_mr, cuMemFree
 * and ibv_dereg_mr, where nothing is registered at the free, where the registration was dropped
 * before, and where it is held over the free and dropped 64 rounds later.
 *
 * held threads COUNT SECONDS: threads do that with blocks of 64 KiB to 16 MiB. A block that the
 * driver hands out while a registration of its address is held is counted. With PINDOWN_HELD=retire
 * there must be none among blocks of 2 MiB and more, no escape, and all memory comes back.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/pindown.h"
#include "hook/cuda/abi.h"
#include "tests/bench/bench.h"
#include "tests/verbs/recorder.h"

#define MIB    ((size_t)1 << 20)
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define HELD   64 /* rounds for which a registration is held after the free */
#define ROUNDS 1000

static struct ibv_pd *pd;
static CUcontext context;

static void must(int result, const char *what)
{
	if (result != 0)
		stop(what, result);
}

static CUdeviceptr allocate(size_t size)
{
	CUdeviceptr addr;

	must(cuMemAlloc_v2(&addr, size), "cuMemAlloc");
	return addr;
}

/* Without pindown and nvidia-peermem, a program has to export the memory itself. */
static struct ibv_mr *reg_by_hand(CUdeviceptr addr, size_t size)
{
	CUdeviceptr page = addr & -(CUdeviceptr)65536;
	size_t length = (addr + size + 65535 - page) & -(size_t)65536;
	struct ibv_mr *mr;
	int fd = -1;

	must(cuMemGetHandleForAddressRange(&fd, page, length, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					   0),
	     "export");
	mr = ibv_reg_dmabuf_mr(pd, addr - page, size, addr, fd, ACCESS);
	close(fd);
	return mr;
}

static struct ibv_mr *reg(CUdeviceptr addr, size_t size)
{
	struct ibv_mr *mr = dlsym(RTLD_DEFAULT, "pindown_get")
				    ? ibv_reg_mr(pd, (void *)addr, size, ACCESS)
				    : reg_by_hand(addr, size);

	if (!mr)
		stop("no registration", 0);
	return mr;
}

static void dereg(struct ibv_mr **mr)
{
	if (*mr)
		must(ibv_dereg_mr(*mr), "ibv_dereg_mr");
	*mr = NULL;
}

static size_t free_memory(void)
{
	size_t left, all;

	must(cuMemGetInfo_v2(&left, &all), "cuMemGetInfo");
	return left;
}

/* ---- times ---------------------------------------------------------------------------------- */

enum use { UNREGISTERED, DROPPED, HELD_OVER, USES };
static const char *const use_names[] = {"not registered", "dropped before", "held"};
enum step { ALLOCATE, REGISTER, FREE, DEREGISTER, STEPS };
static const char *const step_names[] = {"cuMemAlloc", "ibv_reg_mr", "cuMemFree", "ibv_dereg_mr"};

static double times[STEPS][ROUNDS];

static void time_round(enum use use, size_t size, unsigned round, struct ibv_mr **mr)
{
	double at[STEPS + 1];
	CUdeviceptr addr;

	at[0] = now_ns();
	addr = allocate(size);
	at[1] = now_ns();
	if (use == DROPPED || use == HELD_OVER) {
		struct ibv_mr *made = reg(addr, size);

		if (use == HELD_OVER) {
			times[REGISTER][round] = now_ns() - at[1];
			at[1] = now_ns();
			dereg(mr);
			times[DEREGISTER][round] = now_ns() - at[1];
		}
		*mr = made;
		if (use == DROPPED)
			dereg(mr);
	}
	at[2] = now_ns();
	must(cuMemFree_v2(addr), "cuMemFree");
	times[FREE][round] = now_ns() - at[2];
	times[ALLOCATE][round] = at[1] - at[0];
	if (use == HELD_OVER)
		times[ALLOCATE][round] -= times[REGISTER][round];
}

static void time_use(enum use use, size_t size)
{
	static struct ibv_mr *held[HELD];

	for (unsigned round = 0; round < ROUNDS; round++)
		time_round(use, size, round, &held[round % HELD]);
	for (unsigned i = 0; i < HELD; i++)
		dereg(&held[i]);
	for (enum step step = 0; step < STEPS; step++)
		if (use == HELD_OVER || step == ALLOCATE || step == FREE)
			printf("%s, %zu KiB, %s\t%.0f\n", step_names[step], size / 1024,
			       use_names[use], median(times[step], ROUNDS));
}

static void all_times(void)
{
	static const size_t sizes[] = {64 << 10, 4 << 20, 64 << 20};

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (enum use use = 0; use < USES; use++)
			time_use(use, sizes[i]);
}

/* ---- threads -------------------------------------------------------------------------------- */

#define SLOTS 16
#define MOST  (64 * SLOTS)

/* What is registered and freed; by any thread, under the lock. */
static struct {
	CUdeviceptr begin, end;
} held[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long rounds, again_large, again_small;
static bool over;

static void note_held(unsigned slot, CUdeviceptr begin, size_t size)
{
	pthread_mutex_lock(&lock);
	held[slot].begin = begin;
	held[slot].end = begin + size;
	pthread_mutex_unlock(&lock);
}

static void look_for_held(CUdeviceptr begin, size_t size)
{
	pthread_mutex_lock(&lock);
	rounds++;
	for (unsigned i = 0; i < MOST; i++)
		if (held[i].begin < begin + size && begin < held[i].end) {
			if (held[i].end - held[i].begin >= 2 * MIB)
				again_large++;
			else
				again_small++;
		}
	pthread_mutex_unlock(&lock);
}

static void *hold_and_free(void *number)
{
	unsigned first = SLOTS * (unsigned)(uintptr_t)number, seed = first + 7;
	struct ibv_mr *mr[SLOTS] = {0};

	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	for (unsigned i = 0; !__atomic_load_n(&over, __ATOMIC_RELAXED); i = (i + 1) % SLOTS) {
		size_t size = (size_t)65536 << rand_r(&seed) % 9;
		CUdeviceptr addr = allocate(size);
		bool registers = rand_r(&seed) % 4;

		look_for_held(addr, size);
		if (registers) {
			note_held(first + i, 0, 0);
			dereg(&mr[i]);
			mr[i] = reg(addr, size);
		}
		must(cuMemFree_v2(addr), "cuMemFree");
		/* Behind the free: until then it is this thread's own. */
		if (registers)
			note_held(first + i, addr, size);
	}
	for (unsigned i = 0; i < SLOTS; i++) {
		note_held(first + i, 0, 0);
		dereg(&mr[i]);
	}
	return NULL;
}

static struct pindown_stats statistics(void)
{
	int (*ask)(struct pindown_stats *, size_t, int) =
		(int (*)(struct pindown_stats *, size_t, int))dlsym(RTLD_DEFAULT, "pindown_stats");
	struct pindown_stats stats = {0};

	if (ask)
		ask(&stats, sizeof(stats), -1);
	return stats;
}

static int run_threads(unsigned count, unsigned seconds)
{
	size_t before = free_memory(), after;
	struct pindown_stats stats;
	pthread_t threads[64];

	for (uintptr_t i = 0; i < count; i++)
		must(pthread_create(&threads[i], NULL, hold_and_free, (void *)i), "a thread");
	sleep(seconds);
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	must(cuMemFree_v2(allocate(MIB)), "cuMemFree");
	after = free_memory();
	stats = statistics();
	printf("%u threads, %u s: %lu rounds; handed out again under a held registration: %lu "
	       "large, "
	       "%lu small; retired %llu, now %llu, escapes %llu, dropped %llu, unprotected %llu; "
	       "missing %lld MiB\n",
	       count, seconds, rounds, again_large, again_small, (unsigned long long)stats.retired,
	       (unsigned long long)stats.retired_ranges, (unsigned long long)stats.escapes,
	       (unsigned long long)stats.retired_dropped, (unsigned long long)stats.unprotected,
	       ((long long)before - (long long)after) / (long long)MIB);
	return stats.retired && (again_large || stats.escapes);
}

int main(int argc, char **argv)
{
	must(cuInit(0), "cuInit");
	must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	pd = ibv_alloc_pd(ibv_open_device(ibv_get_device_list(NULL)[0]));
	if (argc == 2 && !strcmp(argv[1], "times")) {
		all_times();
		return 0;
	}
	if (argc == 4 && !strcmp(argv[1], "threads") && atoi(argv[2]) > 0 && atoi(argv[2]) <= 64)
		return run_threads((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
	fprintf(stderr, "usage: held times | held threads COUNT SECONDS\n");
	return 2;
}
