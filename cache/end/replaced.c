/* SPDX-License-Identifier: MIT */
/* The end of memory whose regions others have replaced, while objects on them are held. */
#include "cache/base/thread/lock.h"
#include "cache/base/thread/thread.h"
#include "cache/end/kept.h"
#include "cache/end/work.h"
#include "cache/objects/end_with.h"
#include "cache/hit/region.h"
#include "cache/end/replaced.h"

/* Lock held. Was it replaced, does its memory end now, and do holders keep it? */
static bool was_replaced(uint32_t number, const struct pdn_scope *scope)
{
	return pdn_region_is_replaced(number) && pdn_state_of(number) == PDN_KEPT &&
	       pdn_region_is_under(number, scope);
}

/*
 * Lock held. Those that have waited for it, from now on this thread's. As after pdn_keep(): their
 * holders' last put leaves them to pdn_let_go(), and a free waits.
 */
static void take_awaiting(struct pdn_ending *ending, const struct pdn_scope *scope)
{
	for (uint32_t number = pdn_first_awaiting(), next; number; number = next) {
		next = pdn_regions[number].newer;
		if (!was_replaced(number, scope))
			continue;
		pdn_take_over(ending, number);
		pdn_hold(pdn_self_or_anonymous(), number);
	}
}

/* Lock held, and dropped. A callback may have freed the memory of this one, too. */
static void end_objects_on(uint32_t number, const struct pdn_scope *scope,
			   enum pindown_reason reason)
{
	bool mine = number && pdn_region_is_replaced(number);

	if (mine) {
		/* Relaxed: an object may just be made on it (discard() in attach.c). */
		__atomic_store_n(&pdn_regions[number].reason, (uint8_t)reason, __ATOMIC_RELAXED);
		pdn_objects_unlink(number, reason, scope);
	}
	pdn_unlock();
	if (mine && !pdn_process_is_off())
		pdn_objects_end(number, scope);
}

/*
 * A callback that notifies of a replacement may free the memory: of a region that this thread is
 * ending already, the caller that this is nested in lets go.
 */
void pdn_end_replaced(const struct pdn_scope *scope, enum pindown_reason reason)
{
	struct pdn_ending ending = {.scope = scope};
	uint32_t number;

	pdn_lock();
	take_awaiting(&ending, scope);
	pdn_unlock();
	while (ending.first && !pdn_process_is_off()) {
		pdn_lock();
		end_objects_on(ending.first, scope, reason);
		if (!pdn_process_is_off())
			pdn_let_go(&ending);
	}
	do {
		pdn_lock();
		number = pdn_find_own_ending(was_replaced, scope);
		end_objects_on(number, scope, reason);
	} while (number);
}
