// SPDX-License-Identifier: MIT
/*
 * Hits of 64 ranges at once: pindown_getv() and pindown_putv() beside 64 gets and puts, in ns for
 * all 64. Run with the preload and PINDOWN_BACKEND=none. Each line names its kind.
 */
#include "bench.h"
#include "calls.h"
#include "cache/pindown.h"

enum { RANGES = 64, TIMES = 2000, ROUNDS = 15, BYTES = 65536 };

static struct pindown_range ranges[RANGES];
static pindown_region *regions[RANGES];

static void must_get(int result)
{
	if (result != PINDOWN_OK)
		stop(pindown_strerror(result), result);
}

static void one_by_one(void)
{
	for (unsigned i = 0; i < RANGES; i++)
		must_get(pindown_get(ranges[i].addr, ranges[i].length, 0, &regions[i]));
	for (unsigned i = 0; i < RANGES; i++)
		pindown_put(regions[i]);
}

static void at_once(void)
{
	must_get(pindown_getv(ranges, RANGES, 0, regions, NULL));
	pindown_putv(regions, RANGES);
}

static double cost_of(void (*fn)(void))
{
	double rounds[ROUNDS], begin;

	for (unsigned r = 0; r < ROUNDS; r++) {
		begin = now_ns();
		for (unsigned i = 0; i < TIMES; i++)
			fn();
		rounds[r] = (now_ns() - begin) / TIMES;
	}
	return median(rounds, ROUNDS);
}

static void measure(unsigned count, const char *what)
{
	CUdeviceptr memory[RANGES];

	for (unsigned i = 0; i < count; i++)
		must(cuMemAlloc_v2(&memory[i], BYTES), "cuMemAlloc");
	for (unsigned i = 0; i < RANGES; i++)
		ranges[i] = (struct pindown_range){memory[i * count / RANGES] + i * 64, 64};
	one_by_one();
	printf("gets\t64 ranges of %s\t%.1f\n", what, cost_of(one_by_one));
	printf("getv\t64 ranges of %s\t%.1f\n", what, cost_of(at_once));
	for (unsigned i = 0; i < count; i++)
		must(cuMemFree_v2(memory[i]), "cuMemFree");
}

int main(void)
{
	open_driver();
	use_context();
	measure(1, "one region");
	measure(8, "eight regions");
	measure(RANGES, "64 regions");
	return 0;
}
