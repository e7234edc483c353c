/* SPDX-License-Identifier: MIT */
/* The end of memory whose regions others have replaced, while objects on them are held. */
#include "cache/base/lock.h"
#include "cache/base/thread.h"
#include "cache/end/ending.h"
#include "cache/end/kept.h"
#include "cache/objects/object.h"
#include "cache/hit/region.h"
#include "cache/end/replaced.h"

/*
 * Lock held. Is it this thread's to end, now that its memory ends? In the queue of dying regions:
 * only if a callback that notifies of the replacement frees the memory.
 */
static bool is_replaced_here(uint32_t number, const struct pdn_scope *scope)
{
	return pdn_region_is_replaced(number) && pdn_state_of(number) == PDN_KEPT &&
	       (pdn_regions[number].flags & PDN_REGION_AWAITS ||
		pdn_regions[number].ender == pdn_my_tid()) &&
	       pdn_region_is_under(number, scope);
}

/* Lock held. From this one of a queue on; 0: there is none. */
static uint32_t next_replaced(uint32_t number, const struct pdn_scope *scope)
{
	while (number && !is_replaced_here(number, scope))
		number = pdn_regions[number].newer;
	return number;
}

/* Lock held. The same in the lists. */
static uint32_t next_replaced_ending(const struct pdn_scope *scope)
{
	for (const struct pdn_victims *v = pdn_first_ending(); v; v = v->next)
		for (uint32_t n = v->first; n; n = pdn_regions[n].victim)
			if (is_replaced_here(n, scope))
				return n;
	return next_replaced(pdn_first_dying(), scope);
}

/*
 * Lock held. As after pdn_keep(): its holders' last put leaves it to pdn_let_go(), and a free
 * waits.
 */
static void keep_again(uint32_t number)
{
	pdn_take_over(number);
	pdn_hold(pdn_self_or_anonymous(), number);
}

/* Lock held. Those that have waited for it, from now on this thread's: a list through ->victim. */
static uint32_t take_awaiting(const struct pdn_scope *scope)
{
	uint32_t list = 0, number;

	while ((number = next_replaced(pdn_first_awaiting(), scope)) != 0) {
		keep_again(number);
		pdn_regions[number].victim = list;
		list = number;
	}
	return list;
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

/* Of a region that was dying already, the caller that this is nested in lets go. */
void pdn_end_replaced(const struct pdn_scope *scope, enum pindown_reason reason)
{
	uint32_t number, next;

	pdn_lock();
	number = take_awaiting(scope);
	pdn_unlock();
	for (; number; number = next) {
		next = pdn_regions[number].victim;
		pdn_lock();
		end_objects_on(number, scope, reason);
		if (!pdn_process_is_off())
			pdn_let_go(NULL, number);
	}
	do {
		pdn_lock();
		number = next_replaced_ending(scope);
		end_objects_on(number, scope, reason);
	} while (number);
}
