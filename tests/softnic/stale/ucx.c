/* SPDX-License-Identifier: MIT */
/*
 * UCX's registration cache, as of cuDecomp#47 (NVIDIA/cuDecomp, pull request 47): its hook sees the
 * free, but only queues the invalidation. The registration is destroyed by the cache's next
 * operation, and until then the driver does not get the memory back. A peer that was given the
 * remote key earlier still uses it.
 */
#include "stale.h"

static struct cache cache;

static void process_queue(void)
{
	for (unsigned i = cache.count; i--;)
		if (cache.entries[i].invalid)
			stale_remove(&cache, &cache.entries[i]);
}

static bool find(const struct road *road, CUdeviceptr addr, size_t length, struct keys *keys)
{
	struct entry *entry;

	process_queue();
	entry = stale_find(&cache, addr, length);
	return stale_give(entry ? entry : stale_add(&cache, road, addr, length), keys);
}

static void freed(CUdeviceptr addr, size_t length)
{
	for (unsigned i = 0; i < cache.count; i++) {
		struct entry *entry = &cache.entries[i];

		if (entry->addr < addr + length && addr < entry->addr + entry->length)
			entry->invalid = true;
	}
}

static unsigned finish(void)
{
	return stale_remove_all(&cache);
}

const struct middleware *stale_middleware(void)
{
	static const struct middleware this = {"ucx", 1, true, true, find, freed, finish};

	return &this;
}
