// SPDX-License-Identifier: MIT
/* pindown's cache through pindown.h, for hits.c. Run with the preload and PINDOWN_BACKEND=none. */
#include "calls.h"
#include "hits.h"
#include "cache/pindown.h"

#include <string.h>

const char hits_name[] = "pindown";

static CUdeviceptr *allocations;

void hits_open(uint64_t *addrs, size_t count)
{
	pindown_region *region;
	size_t i;
	int result;

	open_driver();
	allocations = calloc(count, sizeof(*allocations));
	if (!allocations)
		stop("no memory", 0);
	for (i = 0; i < count; i++) {
		must(cuMemAlloc_v2(&allocations[i], HITS_REGION_BYTES), "cuMemAlloc");
		addrs[i] = allocations[i];
		result = pindown_get(addrs[i], HITS_REGION_BYTES, 0, &region);
		if (result != PINDOWN_OK)
			stop(pindown_strerror(result), result);
		pindown_put(region);
	}
}

void hits_thread(void)
{
	use_context();
}

void hits_loop(const uint64_t *addrs, size_t count)
{
	pindown_region *region;
	size_t i;
	int result;

	for (i = 0; i < count; i++) {
		result = pindown_get(addrs[i], 4096, 0, &region);
		if (result != PINDOWN_OK)
			stop(pindown_strerror(result), result);
		pindown_put(region);
	}
}

void hits_close(size_t regions, size_t gets)
{
	struct pindown_stats stats;
	size_t i;

	if (pindown_stats(&stats, sizeof(stats), -1) != PINDOWN_OK)
		stop("pindown_stats", 0);
	if (!stats.intercepting)
		stop("frees are not watched: is libpindown.so preloaded?", 0);
	if (stats.hits != gets || stats.pins != regions)
		stop("some gets were no hits: pins", (int)stats.pins);
	for (i = 0; i < regions; i++)
		must(cuMemFree_v2(allocations[i]), "cuMemFree");
	free(allocations);
}
