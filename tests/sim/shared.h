/* SPDX-License-Identifier: MIT */
/* Memory that came from elsewhere. */
#ifndef SIM_SHARED_H
#define SIM_SHARED_H

#include "memory.h"

/* A pointer into an imported pool. */
void sim_forget_import(struct sim_alloc *alloc);

#endif
