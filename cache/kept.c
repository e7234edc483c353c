/* SPDX-License-Identifier: MIT */
/*
 * Regions that have ended while they were in use, or their objects were: they stay pinned for their
 * holders, and the last one to let go unpins them.
 */
#include "cache/account.h"
#include "cache/awaiting.h"
#include "cache/base/lock.h"
#include "cache/base/test_point.h"
#include "cache/base/thread.h"
#include "cache/ending.h"
#include "cache/kept.h"
#include "cache/objects/object.h"
#include "cache/probes.h"
#include "cache/region.h"
#include "cache/unpin.h"

static bool is_used(uint32_t number)
{
	return pdn_region_in_use(number) || pdn_objects_hold(number);
}

/* Lock held. */
static bool is_kept_for_nobody(uint32_t number)
{
	return pdn_state_of(number) == PDN_KEPT && !is_used(number);
}

void __attribute__((noinline, cold)) pdn_keep(uint32_t number)
{
	pdn_hold(pdn_self_or_anonymous(), number);
	pdn_account_kept(&pdn_regions[number]);
	pdn_region_set_state(number, PDN_KEPT);
}

void pdn_take_over(uint32_t number)
{
	pdn_pending_add(1); /* first: frees look at it without the lock */
	pdn_stop_awaiting(number);
	pdn_dying_append(number);
}

/* At once, and not only just before the unpin: its last holder may now free the memory. */
bool __attribute__((cold)) pdn_region_take_kept(uint32_t number)
{
	if (!is_kept_for_nobody(number))
		return false;
	pdn_take_over(number);
	pdn_region_set_state(number, PDN_DYING);
	return true;
}

void pdn_unpin_kept(uint32_t number)
{
	pdn_unpin_after_last_put(NULL, number);
}

void __attribute__((noinline, cold)) pdn_let_go(struct pdn_victims *victims, uint32_t number)
{
	bool last;

	PDN_POINT(END_LETTING_GO, pdn_region_base_now(number));
	pdn_comparisons_pass(number);
	pdn_lock();
	if (pdn_region_is_abandoned(
		    number)) { /* a signal handler has forked, and this is the child */
		pdn_unlock();
		return;
	}
	pdn_unhold(pdn_self_or_anonymous(), number);
	last = is_kept_for_nobody(number);
	if (last) {
		pdn_region_set_state(number, PDN_DYING); /* this thread's still */
	} else {
		pdn_ending_leave(victims, number);
		if (pdn_objects_await_reuse(number))
			pdn_await_reuse(number);
	}
	pdn_unlock();
	if (last)
		pdn_unpin_after_last_put(victims, number);
}
