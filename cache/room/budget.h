/* SPDX-License-Identifier: MIT */
/* The budgets of bytes, regions and descriptors, and making room under them. */
#ifndef PDN_BUDGET_H
#define PDN_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/end/work.h"

/* Lock held. If there is room for this many bytes under the budgets, reserve it for the flight. */
void pdn_reserve_budget(struct pdn_flight *flight, uint64_t bytes);

/*
 * Lock not held. Make room for this many bytes under the budgets and reserve it for the flight.
 * PINDOWN_ERR_NO_SPACE when too much else is in use; then nothing was evicted.
 */
int pdn_evict_and_reserve_budget(struct pdn_flight *flight, uint64_t bytes);

/* Lock not held. Would the budgets have room for this many bytes if all idle regions went? */
bool pdn_idle_is_enough_for(uint64_t bytes);

/* The count budget in force. */
uint64_t pdn_max_regions(void);

#endif
