/* SPDX-License-Identifier: MIT */
/* Host memory that the simulated driver knows. */
#ifndef SIM_HOST_H
#define SIM_HOST_H

#include "memory.h"

/* Ends the registration of host memory; the memory stays the program's. */
void sim_unregister(struct sim_alloc *alloc);

#endif
