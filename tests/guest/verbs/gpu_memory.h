/* SPDX-License-Identifier: MIT */
/* GPU memory for the tests of RDMA, by ordinary calls of the driver. */
#ifndef GPU_MEMORY_H
#define GPU_MEMORY_H

#include <infiniband/verbs.h>

#include "connection.h"
#include "hook/cuda/abi.h"
#include "tests/guest/guest.h"

#define SIZE  4096u	/* size of a transfer: the device takes half a second for it */
#define BLOCK (2 * MIB) /* the driver's smallest block of memory, which small allocations share */

void start_cuda(void);
/* Allocates memory with a pattern in its first SIZE bytes. */
CUdeviceptr gpu_buffer(size_t size, uint64_t seed);
/* Maps two handles of BLOCK bytes side by side, with the pattern across their border. */
CUdeviceptr gpu_mappings(uint64_t seed);
/* The first difference from the pattern; SIZE: none. */
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
