// SPDX-License-Identifier: MIT
/*
 * inside REGIONS: the cache's own share of a watched free, without the wrapper and the driver: it
 * is linked with the cache's objects and makes the calls of a wrapper. The freed memory is not
 * registered. And the cost of a hit on a region that needs more checks than its brief: because the
 * kernel can revoke it, or because it covers only parts of its pages.
 */
#include "bench.h"
#include "calls.h"

#include "cache/hook_events.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"

#include <dlfcn.h>

#define BASE  UINT64_C(0x100000000000)
#define BYTES 65536u
#define FREES 262144u
#define TURNS 9u

static void *find_symbol(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

static void fill(size_t count)
{
	pindown_region *region;
	size_t i;

	for (i = 0; i < count; i++) {
		int result = pindown_get(BASE + i * BYTES, 1, 0, &region);

		if (result != PINDOWN_OK)
			stop(pindown_strerror(result), result);
		pindown_put(region);
	}
}

/* Frees at random in the 64 GiB below; or between registered ones. */
static double frees(uint64_t base, uint64_t step, size_t places)
{
	double values[TURNS];
	unsigned turn, i;

	for (turn = 0; turn < TURNS; turn++) {
		uint64_t state = 1;
		double begin = now_ns();

		for (i = 0; i < FREES; i++) {
			state = state * 6364136223846793005u + 1442695040888963407u;
			pdn_ended(pdn_end_range(base + (state >> 33) % places * step, 0));
		}
		values[turn] = (now_ns() - begin) / FREES;
	}
	return median(values, TURNS);
}

/* Chosen at random from all. */
static double hits(size_t count)
{
	double values[TURNS];
	unsigned turn, i;
	pindown_region *region;

	for (turn = 0; turn < TURNS; turn++) {
		uint64_t state = 1;
		double begin = now_ns();

		for (i = 0; i < FREES; i++) {
			state = state * 6364136223846793005u + 1442695040888963407u;
			if (pindown_get(BASE + (state >> 33) % count * BYTES, 4096, 0, &region) !=
			    PINDOWN_OK)
				stop("pindown_get", 0);
			pindown_put(region);
		}
		values[turn] = (now_ns() - begin) / FREES;
	}
	return median(values, TURNS);
}

/* As commit.c, set_pages(), sets it for such regions. */
static void forget_own_pages(size_t count)
{
	size_t i;

	for (i = 1; i <= count; i++)
		pdn_briefs[i].pages = 0;
}

static double no_frees(size_t places)
{
	double values[TURNS];
	unsigned turn, i;
	volatile uint64_t sink;

	for (turn = 0; turn < TURNS; turn++) {
		uint64_t state = 1;
		double begin = now_ns();

		for (i = 0; i < FREES; i++) {
			state = state * 6364136223846793005u + 1442695040888963407u;
			sink = BASE + (state >> 33) % places;
			(void)sink;
		}
		values[turn] = (now_ns() - begin) / FREES;
	}
	return median(values, TURNS);
}

int main(int argc, char **argv)
{
	size_t count = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
	const size_t places = 1 << 20;
	double empty;

	if (!count) {
		fprintf(stderr, "usage: %s REGIONS\n", argv[0]);
		return 2;
	}
	open_driver();
	pdn_find_driver_symbol = find_symbol;
	pdn_set_intercepting(true);
	fill(count);
	empty = no_frees(places);
	printf("free of what is not registered, inside\t%zu\tdense\t1\t%.2f\n", count,
	       frees(BASE - places * BYTES, BYTES, places) - empty);
	forget_own_pages(count);
	printf("hit, brief does not say all, inside\t%zu\tdense\t1\t%.2f\n", count, hits(count));
	return 0;
}
