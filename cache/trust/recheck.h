/* SPDX-License-Identifier: MIT */
/* Comparing live regions with the driver, and ending those whose memory was freed unseen. */
#ifndef PDN_RECHECK_H
#define PDN_RECHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/driver/driver.h"

/*
 * Lock not held. End each live region that overlaps [begin, end) and is no longer what the driver
 * has at its address. `how` it is known, as in struct pdn_ending.
 */
void pdn_drop_changed(uint64_t begin, uint64_t end, const char *how);

/* The same for all regions of a pool, or all; and pins under way ask the driver again. */
void pdn_recheck_some(void *pool);

#endif
