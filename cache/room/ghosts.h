/* SPDX-License-Identifier: MIT */
/* Regions that had to go soon after they came, and may come back. Lock held for all of these. */
#ifndef PDN_GHOSTS_H
#define PDN_GHOSTS_H

#include <stdbool.h>

#include "cache/hit/region.h"

void pdn_ghost_remember(const struct pindown_region *region);

/* Has it come back before it was forgotten? Then it is forgotten now. */
bool pdn_ghost_comes_back(const struct pindown_region *region);

#endif
