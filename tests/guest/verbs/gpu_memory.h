/* SPDX-License-Identifier: MIT */
/*
 * GPU memory, by ordinary calls of the driver, as the tests of RDMA with it need it.
 */
#ifndef GPU_MEMORY_H
#define GPU_MEMORY_H

#include <infiniband/verbs.h>

#include "connection.h"
#include "hook/cuda/abi.h"
#include "tests/guest/guest.h"

#define SIZE  4096u	/* what is moved: the device takes half a second for it */
#define BLOCK (2 * MIB) /* the driver's smallest piece of memory, which small allocations share */

void start_cuda(void);
/* Memory with a pattern in its first SIZE bytes. */
CUdeviceptr gpu_buffer(size_t size, uint64_t seed);
/*
 * Two mappings of BLOCK bytes side by side, with the pattern where the one ends and the other
 * begins.
 */
CUdeviceptr gpu_mappings(uint64_t seed);
/* Where that differs from the pattern; SIZE: nowhere. */
size_t gpu_differs(CUdeviceptr ptr, uint64_t seed);

static inline struct place local(const struct ibv_mr *mr)
{
	return (struct place){(uintptr_t)mr->addr, mr->lkey};
}

static inline struct place remote(const struct ibv_mr *mr)
{
	return (struct place){(uintptr_t)mr->addr, mr->rkey};
}

#endif
