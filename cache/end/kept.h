/* SPDX-License-Identifier: MIT */
/*
 * Kept regions: they have ended while they were in use, themselves or objects on them, and stay
 * pinned for their holders. The last holder to let go unpins the region.
 */
#ifndef PDN_KEPT_H
#define PDN_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/end/work.h"

/*
 * Lock not held, and shielded from cancellation. Unpin the first region of a list, which is DYING;
 * then its record is free again.
 */
void pdn_unpin_idle(struct pdn_ending *ending);

/*
 * Lock held. An ending region is still in use: it is kept. A hold of our own keeps it from going
 * away before everyone is notified. That may be the last hold by then, so a free still waits for
 * the region.
 */
void pdn_keep(uint32_t number);

/*
 * Lock not held. Everyone has been notified about the first region of a list: drop pdn_keep()'s
 * hold. If it was the last one, unpin the region.
 */
void pdn_let_go(struct pdn_ending *ending);

/* Lock held. A kept region is in this list from here on: a free of its memory waits. */
void pdn_take_over(struct pdn_ending *ending, uint32_t number);

/*
 * Lock held. If a kept region is no longer in use, neither held itself nor by its objects, it
 * becomes DYING, and is the caller's to unpin: a free of its memory waits for that.
 */
void pdn_region_take_kept(struct pdn_ending *ending, uint32_t number);

/* Lock not held. Unpin what pdn_region_take_kept() has given to the caller, if anything. */
void pdn_unpin_kept(struct pdn_ending *ending);

/*
 * Kept regions whose memory was freed in stream order, and on which objects are held that are to be
 * revoked: they wait until the driver hands the memory out again. Also those that were replaced
 * (growth.h) while objects on them are held and their memory lives: they wait for its end. Lock
 * held, but for the question whether there are any.
 */
bool pdn_awaits_reuse(void);
uint32_t pdn_first_awaiting(void); /* the others through ->newer */
void pdn_await_reuse(uint32_t number);
void pdn_stop_awaiting(uint32_t number); /* if it awaits it */

#endif
