/* SPDX-License-Identifier: MIT */
/*
 * Open MPI's grdma cache with accelerator memory: it registers whole allocations, and compares
 * buffer ids when an address is looked up again, as libfabric's does. It has no limit of its own:
 * the least recently used registration goes when the card refuses one. A peer that was given the
 * remote key, as for a window, uses it until then.
 */
#include <limits.h>

#include "stale.h"

static struct cache cache = {.limit = UINT_MAX};

static bool find(const struct road *road, CUdeviceptr addr, size_t length, struct keys *keys)
{
	CUdeviceptr base = addr;

	if (cuMemGetAddressRange_v2(&base, &length, addr) != CUDA_SUCCESS)
		return false;
	return stale_give(stale_find_checked(&cache, road, base, length), keys);
}

static unsigned finish(void)
{
	return stale_remove_all(&cache);
}

const struct middleware *stale_middleware(void)
{
	static const struct middleware this = {"grdma", 1, true, true, find, NULL, finish};

	return &this;
}
