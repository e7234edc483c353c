/* SPDX-License-Identifier: MIT */
/*
 * Random operations against an oracle, on the simulated driver, which chooses the addresses and
 * reuses them at once. A region is stale if its buffer id had died before the get that returned the
 * region began. STRESS_SEED repeats the choices of a run.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>

#include "tests/unit/support/sim_test.h"

#define THREADS 4
#define MAX_IDS (1u << 20)

static struct {
	uint64_t random;
	struct worker worker;
} players[THREADS];

static uint64_t clock_now = 1, died_at[MAX_IDS], last_address, compared;

static uint32_t roll(unsigned player, uint32_t sides)
{
	uint64_t *r = &players[player].random;

	*r ^= *r << 13;
	*r ^= *r >> 7;
	*r ^= *r << 17;
	return (uint32_t)(*r >> 33) % sides;
}

static uint64_t tick(void)
{
	return __atomic_add_fetch(&clock_now, 1, __ATOMIC_SEQ_CST);
}

static void compare(CUdeviceptr addr)
{
	uint64_t began = tick();
	pindown_region *region;

	if (pindown_get(addr, 1, 0, &region) != PINDOWN_OK)
		return;
	uint64_t id = pindown_region_buffer_id(region);
	uint64_t died = __atomic_load_n(&died_at[id % MAX_IDS], __ATOMIC_SEQ_CST);
	ck_assert_msg(!died || died > began,
		      "stale: 0x%llx, buffer id %" PRIu64 " died at %" PRIu64
		      ", get began %" PRIu64,
		      addr, id, died, began);
	__atomic_add_fetch(&compared, 1, __ATOMIC_RELAXED);
	pindown_put(region);
}

static void die(CUdeviceptr p, bool async)
{
	unsigned long long id = 0;

	OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
	pdn_guard guard = pdn_end_range(p, 0);
	__atomic_store_n(&died_at[id % MAX_IDS], tick(), __ATOMIC_SEQ_CST);
	OK(async ? cuMemFreeAsync(p, NULL) : cuMemFree_v2(p));
	pdn_ended(guard);
}

static void play(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;

	OK(cuCtxSetCurrent(context));
	for (unsigned i = 0; i < 1500; i++) {
		bool async = roll(me, 3) == 0;
		size_t size = 100u << roll(me, 16);
		CUdeviceptr p = async ? alloc_async(size) : alloc(size);
		__atomic_store_n(&last_address, p, __ATOMIC_RELAXED);
		for (unsigned gets = roll(me, 4); gets > 0; gets--) {
			compare(p + roll(me, (uint32_t)size));
			/* allocated by another thread, which may be freeing it just now */
			compare(__atomic_load_n(&last_address, __ATOMIC_RELAXED));
		}
		die(p, async);
		if (roll(me, 50) == 0)
			pindown_flush();
	}
}

START_TEST(threads_against_an_oracle)
{
	uint64_t seed = stress_seed(THREADS);

	start_cuda();
	for (uintptr_t i = 0; i < THREADS; i++) {
		players[i].random = (seed ^ (0x9e3779b97f4a7c15u * (i + 1))) | 1;
		worker_start(&players[i].worker, play, (void *)i);
	}
	for (unsigned i = 0; i < THREADS; i++)
		worker_join(&players[i].worker);
	ck_assert_uint_gt(compared, 0);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
	ck_assert_uint_eq(sim_open_exports(0), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races on the simulated driver");
	TCase *tc = sim_case(suite, "random");

	tcase_add_test(tc, threads_against_an_oracle);
	return run_suite(suite);
}
