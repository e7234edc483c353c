/* SPDX-License-Identifier: MIT */
/* Memory without an address, from cuMemCreate. All functions need the API lock. */
#ifndef SIM_PHYSICAL_H
#define SIM_PHYSICAL_H

#include <stdbool.h>
#include <stdint.h>

#include "memory.h"

struct sim_physical {
	struct sim_extent *extent;
	uint64_t size;
	CUmemAllocationProp prop;
	unsigned handles; /* how often the program may still release it */
	unsigned mappings;
	uint64_t record; /* the place of its struct sim_record, 0: never shared */
	int device;
};

/* The memory of a handle that has not been released; NULL: not such a handle. */
struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle);
struct sim_physical *sim_physical_new(struct sim_extent *extent, const CUmemAllocationProp *prop);
/* Frees it when neither handles nor mappings are left. */
void sim_physical_settle(struct sim_physical *physical);
/*
 * Multicast objects have the same type of handle. sim_multicast_extent: the memory bound at its
 * start.
 */
CUresult sim_multicast_release(CUmemGenericAllocationHandle handle);
struct sim_extent *sim_multicast_extent(CUmemGenericAllocationHandle handle, uint64_t size);

#endif
