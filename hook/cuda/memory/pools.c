/* SPDX-License-Identifier: MIT */
/*
 * Memory that is freed in stream order.
 *
 * Knows which pools keep their memory when it is freed: those with a release threshold that they
 * never exceed. The next allocation at an address is then the same memory, and a registration that
 * the program still holds is right. The driver could be asked, but not about a pool that another
 * thread may destroy.
 */
#include <errno.h>

#include "hook/hook.h"
#include "hook/cuda/memory/records.h"

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

/*
 * A pool's memory is gone when cuMemFreeAsync returns. Other memory, which is cuMemAlloc's, is the
 * driver's, with its buffer id, until the stream's turn. It is asked before the call, while the
 * program owns the memory; it answers zeroes where there is none.
 */
uint64_t __attribute__((cold)) pdn_stays_until_turn(uint64_t addr)
{
	typeof(cuPointerGetAttributes) *ask = PDN_DRIVER(cuPointerGetAttributes);
	CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
				       CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
				       CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	uint64_t pool = 0, base = 0, size = 0;
	void *values[] = {&pool, &base, &size};
	int error = errno;
	bool told = ask && ask(3, names, values, addr) == CUDA_SUCCESS;

	errno = error;
	return told && !pool && base == addr ? size : 0;
}
