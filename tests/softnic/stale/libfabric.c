/* SPDX-License-Identifier: MIT */
/*
 * libfabric's registration cache with its CUDA monitor, as of ofiwg/libfabric#8081: it does not see
 * frees. It compares buffer ids when an address is registered again, and only then removes the
 * entry of the freed memory. A layer above that keeps a descriptor (open-mpi/ompi#11125) sends with
 * it until then.
 */
#include "stale.h"

static struct cache cache = {.limit = 1024};

static bool find(const struct road *road, CUdeviceptr addr, size_t length, struct keys *keys)
{
	return stale_give(stale_find_checked(&cache, road, addr, length), keys);
}

static unsigned finish(void)
{
	return stale_remove_all(&cache);
}

const struct middleware *stale_middleware(void)
{
	static const struct middleware this = {"libfabric", 1, true, false, find, NULL, finish};

	return &this;
}
