/* SPDX-License-Identifier: MIT */
/*
 * Unpinning a region, without the lock, by the thread that ends it; then its record is free again.
 */
#ifndef PDN_UNPIN_H
#define PDN_UNPIN_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/ending.h"

/* Lock not held. The region is DYING and this thread's; its record stays. */
void pdn_unpin(uint32_t number, bool was_kept);

/*
 * The first regions of a list, up to `last`, have been unpinned: several leave it under one taking
 * of the lock. But few, as other threads' frees of the memory may be waiting for them.
 */
struct pdn_unpinned {
	uint32_t count, last;
};
#define PDN_MOST_UNPINNED 16u

/* Lock not held. Their records are free again. */
void pdn_unpinned_give_back(struct pdn_victims *victims, struct pdn_unpinned *unpinned);

/* Lock not held. A kept region, which nobody uses any more. `victims` as in pdn_ending_leave(). */
void pdn_unpin_after_last_put(struct pdn_victims *victims, uint32_t number);

/* Lock not held. Unpin the next idle region of a list. */
void pdn_unpin_next(struct pdn_unpinned *unpinned, uint32_t number);

/*
 * Lock not held. Unpin the only region of a list, the usual case, of whose end nobody is to be
 * notified. Returns the number of regions that were unpinned: 1.
 */
int pdn_unpin_one(struct pdn_victims *victims);

#endif
