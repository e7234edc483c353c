/* SPDX-License-Identifier: MIT */
/*
 * Knows which pools keep their memory when it is freed: those with a release threshold that they
 * never exceed. The next allocation at an address is then the same memory, and a registration that
 * the program still holds is right. The driver could be asked, but not about a pool that another
 * thread may destroy.
 */
#include "hook/hook.h"
#include "hook/cuda/records.h"

struct pool {
	uint64_t handle, keeps;
};
static PDN_TABLE(struct pool) pools;

void pdn_pool_set(void *pool, CUmemPool_attribute attribute, const void *value)
{
	struct pool one = {.handle = (uintptr_t)pool};

	if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD || !value)
		return;
	one.keeps = *(const uint64_t *)value == UINT64_MAX;
	pdn_record_replace(&pools, &one);
}

void pdn_pool_destroyed(void *pool)
{
	pdn_record_remove(&pools, (uintptr_t)pool);
}

bool pdn_pool_is_known_to_keep(void *pool)
{
	struct pool one;

	return pdn_record_get(&pools, (uintptr_t)pool, 0, &one, 1) && one.keeps;
}
