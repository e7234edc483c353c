/* SPDX-License-Identifier: MIT */
/*
 * NCCL's buffer registration (ncclCommRegister): the program says when a registration begins and
 * ends, and NCCL relies on that. A program that frees the buffer without ncclCommDeregister leaves
 * the registration behind, and later operations on addresses inside of it use it.
 */
#include "stale.h"

static struct cache cache;

/* Operations register the buffer at its first use, as NCCL does for a registered handle. */
static bool find(const struct road *road, CUdeviceptr addr, size_t length, struct keys *keys)
{
	struct entry *entry = stale_find(&cache, addr, length);

	return stale_give(entry ? entry : stale_add(&cache, road, addr, length), keys);
}

/* ncclCommDeregister, which comes after the free. */
static unsigned finish(void)
{
	return stale_remove_all(&cache);
}

const struct middleware *stale_middleware(void)
{
	static const struct middleware this = {"nccl", 1, false, false, find, NULL, finish};

	return &this;
}
