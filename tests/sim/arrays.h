/* SPDX-License-Identifier: MIT */
/* Arrays of the simulated driver. */
#ifndef SIM_ARRAYS_H
#define SIM_ARRAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"

struct sim_context;
struct sim_extent;

/* An array: memory without an address that the program may know. Here it has one. */
struct sim_array {
	struct sim_context *context;
	CUDA_ARRAY3D_DESCRIPTOR shape;
	uint64_t addr, pitch, size;
	bool level; /* a level of a mipmapped array, and ends with it */
};

/* NULL: no live array. */
struct sim_array *sim_array_of(CUarray handle);

#endif
