/* SPDX-License-Identifier: MIT */
/* Memory pools. All functions need the API lock. */
#ifndef SIM_POOLS_H
#define SIM_POOLS_H

#include "memory.h"

struct sim_stream;

void sim_pool_free(struct sim_alloc *alloc);
/* Work up to here is done: pools give back what is above their threshold. */
void sim_pools_synchronized(int device);

#endif
