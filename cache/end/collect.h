/* SPDX-License-Identifier: MIT */
/*
 * Unlinking regions: they are live no longer, are in a list of regions that are ending, and leave
 * the index, their queue and the accounts. No lookup finds them from here on. Lock held for all.
 */
#ifndef PDN_COLLECT_H
#define PDN_COLLECT_H

#include "cache/end/work.h"
#include "cache/pindown.h"

void pdn_ending_add(struct pdn_ending *ending, uint32_t number, enum pindown_reason reason);

/* All live regions that the scope covers. */
void pdn_collect(const struct pdn_scope *scope, struct pdn_ending *ending,
		 enum pindown_reason reason);

#endif
