/* SPDX-License-Identifier: MIT */
/*
 * Ending regions: unlinked at once, unpinned when nobody holds them. The steps, in order:
 *	pdn_victims_add()	lock held: unlink each region; no lookup finds it from here on
 *	pdn_victims_split_idle_and_held()	lock held: find out which of them are in use
 *	pdn_victims_dispatch()	lock not held: notify subscribers, unpin the idle ones
 */
#ifndef PDN_INVALIDATE_H
#define PDN_INVALIDATE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/thread.h"
#include "cache/pindown.h"
#include "cache/race.h"

/*
 * Regions that are being ended by one thread, on whose stack this is; linked through ->victim, in
 * the order in which they were added. From the first pdn_victims_add() up to the end of
 * pdn_victims_dispatch() other threads find it. A region leaves it when it is unpinned, or is kept
 * for its holders; they leave it in order.
 */
struct pdn_victims {
	uint32_t first, last;
	uint32_t killer; /* the thread's tid */
	bool need_more;	 /* some are in use or were missed: not all have only to be unpinned */
	struct pdn_victims *next; /* other lists, of any thread; under the lock */
	/*
	 * How it is known that their frees were noticed only after the driver had made them, as the
	 * end of a sentence; NULL: they were noticed in time. Volatile regions are not counted so.
	 */
	const char *missed;
	bool are_replaced; /* by a region that reaches over them: no eviction for lack of room */
};

/*
 * Lock held. Unlink a live region. pdn_victims_split_idle_and_held() finds out whether it is idle.
 */
void pdn_victims_add(struct pdn_victims *victims, uint32_t number, enum pindown_reason reason);

/* Lock held. One heavy barrier for all of them; then the idle ones are this thread's to unpin. */
void pdn_victims_split_some(struct pdn_victims *victims);
static inline void pdn_victims_split_idle_and_held(struct pdn_victims *victims)
{
	if (victims->first)
		pdn_victims_split_some(victims);
}

/* Lock held. Of a list of live regions (linked through ->victim), add those that nobody holds. */
void pdn_victims_add_idle(struct pdn_victims *victims, uint32_t candidates,
			  enum pindown_reason reason);

/*
 * Lock not held. Notify the subscribers, unpin the idle regions, let go of the others. Returns how
 * many regions there were.
 */
int pdn_victims_dispatch_some(struct pdn_victims *victims);
static inline int pdn_victims_dispatch(struct pdn_victims *victims)
{
	return victims->first ? pdn_victims_dispatch_some(victims) : 0;
}

/*
 * Lock not held. End all regions that the scope covers, and wait for other threads that are pinning
 * or unpinning some. Returns how many regions were ended here.
 */
int pdn_end_scope(const struct pdn_scope *scope, enum pindown_reason reason);

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
uint32_t pdn_first_awaiting(void);
void pdn_stop_awaiting(uint32_t number);

/*
 * Lock not held. The memory is about to end. For the objects that are held on regions which others
 * have replaced it ends only now: they are named, revoked or kept.
 */
void pdn_end_replaced(const struct pdn_scope *scope, enum pindown_reason reason);

/*
 * Lock held, after a heavy barrier. Wait until that thread no longer announces this region.
 * Acquire: pairs with the release that ends the announcement (get.c, objects/attach.c).
 */
void pdn_wait_for_reader(const struct pdn_thread *thread, uint32_t number);

/* Lock held. Is another thread unpinning a region that the scope covers? Any region? */
bool pdn_dying_under(const struct pdn_scope *scope);
bool pdn_dying_any(void);

/* Lock held. This thread is about to end, and does not unpin the regions that it was to. */
void pdn_dying_drop_own(void);

/*
 * The region's memory, to be compared with a scope: it stands until the record is free. Of a window
 * it is the allocation, whose end ends the window.
 */
struct pdn_memory pdn_memory_of(const struct pindown_region *region);

void pdn_end_fork_child(void);

#endif
