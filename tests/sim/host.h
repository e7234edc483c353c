/* SPDX-License-Identifier: MIT */
/* Host memory that the simulated driver knows. */
#ifndef SIM_HOST_H
#define SIM_HOST_H

#include "memory.h"

/* Ends the registration of host memory; the memory still belongs to the program. */
void sim_unregister(struct sim_alloc *alloc);

#endif
