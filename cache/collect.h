/* SPDX-License-Identifier: MIT */
/*
 * Unlinking many regions at once: those that a scope covers, or any that the caller names in turn.
 * Lock held for all of these.
 */
#ifndef PDN_COLLECT_H
#define PDN_COLLECT_H

#include <stdint.h>

#include "cache/ending.h"
#include "cache/pindown.h"
#include "cache/queues.h"
#include "cache/race.h"

/* Unlink all live regions that the scope covers. */
void pdn_collect(const struct pdn_scope *scope, struct pdn_victims *victims,
		 enum pindown_reason reason);

/*
 * Regions that lie side by side, and were pinned one after the other, leave the index, the queues
 * and the accounts together. `base` and `end`: what is yet to leave the index.
 */
struct pdn_sweep {
	struct pdn_victims *victims;
	enum pindown_reason reason;
	int device;
	uint32_t outs; /* of that device, not in the accounts yet */
	uint64_t base, end;
	struct pdn_leaving leaving;
};

/* Unlink one more region; the last ones leave the index, the queues and the accounts at the end. */
void pdn_sweep_add(struct pdn_sweep *sweep, uint32_t number);
void pdn_sweep_end(struct pdn_sweep *sweep);

#endif
