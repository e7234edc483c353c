/* SPDX-License-Identifier: MIT */
/* Memory without an address: what cuMemCreate makes. All functions need the API lock. */
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
	uint64_t record; /* where its struct sim_record is, 0: never shared */
	int device;
};

/* The memory of a handle that has not been released; NULL: it is none. */
struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle);
struct sim_physical *sim_physical_new(struct sim_extent *extent, const CUmemAllocationProp *prop);
/* The reservation that holds an address; unchanged when there is none. */
void sim_reservation_at(uint64_t addr, uint64_t *base, uint64_t *size);
/* Ends it when neither handles nor mappings are left. */
void sim_physical_settle(struct sim_physical *physical);
/*
 * The same type of handle names multicast objects. sim_multicast_extent: what is bound at its
 * start.
 */
CUresult sim_multicast_release(CUmemGenericAllocationHandle handle);
struct sim_extent *sim_multicast_extent(CUmemGenericAllocationHandle handle, uint64_t size);

#endif
