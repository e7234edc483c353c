/* SPDX-License-Identifier: MIT */
/* Memory pools. All functions need the API lock. */
#ifndef SIM_POOLS_H
#define SIM_POOLS_H

#include "memory.h"

struct sim_pool {
	struct sim_heap heap;
	bool is_default;
	bool destroyed; /* ends with its last allocation */
	int imported;	/* 0, or 1 + a descriptor of the exporter's memory file */
	CUmemAllocationHandleType handle_types;
	uint64_t threshold, max_size;
	int reuse[3];
	unsigned live;
	struct sim_pool *next;
};

/* NULL: no live pool. */
struct sim_pool *sim_pool_of(CUmemoryPool handle);
struct sim_pool *sim_pool_new(int device);
void sim_pool_free(struct sim_alloc *alloc);
/* Frees memory of cuMemAlloc that was freed in stream order. */
void sim_forget_pending(struct sim_alloc *alloc);
/* Work up to here is done: pools free what is above their threshold. */
void sim_pools_synchronized(int device);

#endif
