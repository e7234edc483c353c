/* SPDX-License-Identifier: MIT */
/*
 * Kept regions: they have ended while they were in use, themselves or objects on them, and stay
 * pinned for their holders. The last holder to let go unpins the region.
 */
#ifndef PDN_KEPT_H
#define PDN_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/end/ending.h"

/*
 * Lock not held, and shielded from cancellation. Unpin a region that is DYING and this thread's;
 * then its record is free again. `victims` as in pdn_ending_leave().
 */
void pdn_unpin_idle(struct pdn_victims *victims, uint32_t number);

/*
 * Lock held. An ending region is still in use: it is kept. A hold of our own keeps it from going
 * away before everyone is notified. That may be the last hold by then, so a free still waits for
 * the region.
 */
void pdn_keep(uint32_t number);

/*
 * Lock not held. Everyone has been notified: drop pdn_keep()'s hold. If it was the last one, unpin
 * the region. `victims` as in pdn_ending_leave().
 */
void pdn_let_go(struct pdn_victims *victims, uint32_t number);

/* Lock held. A kept region is this thread's from here on: a free of its memory waits. */
void pdn_take_over(uint32_t number);

/*
 * Lock held. If a kept region is no longer in use, neither held itself nor by its objects, it
 * becomes DYING and is the caller's to unpin. A free of its memory waits for that.
 */
bool pdn_region_take_kept(uint32_t number);

/* Lock not held. Unpin a region that pdn_region_take_kept() has given to the caller. */
void pdn_unpin_kept(uint32_t number);

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
