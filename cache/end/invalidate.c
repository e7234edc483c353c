/* SPDX-License-Identifier: MIT */
/*
 * Ends by scope: a free's, or those that the program asks for. Other threads that are pinning or
 * unpinning memory of the scope are waited for.
 */
#include "cache/end/kept.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/thread/lock.h"
#include "cache/base/notify.h"
#include "cache/base/test_point.h"
#include "cache/base/visible.h"
#include "cache/end/collect.h"
#include "cache/end/invalidate.h"
#include "cache/objects/end.h"
#include "cache/pindown.h"
#include "cache/end/work.h"
#include "cache/hit/region.h"
#include "cache/end/replaced.h"
#include "cache/retire/retired.h"
#include "cache/retire/turns.h"

/*
 * Other threads may be asking the driver about this memory, or be pinning it, and have been told to
 * give up, or be unpinning it for another reason. The free waits for all of them, so that the
 * driver is not asked during the free, and no pin keeps the memory when it returns. The wait ends
 * at a deadline: two threads that free inside subscribers' callbacks could wait for each other.
 */
static void wait_for_others(const struct pdn_scope *scope)
{
	PDN_UNCANCELLED;
	uint64_t deadline;
	uint32_t other;
	bool in_time;

	PDN_POINT(END_WAITING, scope->begin);
	do {
		deadline = pdn_race_deadline();
		in_time = true;
		pdn_lock();
		while (in_time && (other = pdn_work_under(scope)) != 0)
			in_time = pdn_wait_for_work(deadline);
		pdn_unlock();
	} while (!in_time && pdn_free_waits_on(other, "pin or unpin"));
}

int pdn_end_scope(const struct pdn_scope *scope, enum pindown_reason reason)
{
	PDN_UNCANCELLED;
	struct pdn_ending ending = {.scope = scope};
	bool wait, may_be_replaced;
	int count;

	pdn_lock();
	may_be_replaced =
		reason != PINDOWN_REASON_FLUSHED && (pdn_first_awaiting() || pdn_endings_any());
	pdn_collect(scope, &ending, reason);
	pdn_ending_split_idle_and_held(&ending);
	pdn_flights_mark_lost(scope);
	wait = pdn_work_under(scope);
	if (wait)
		pdn_wake_waiters(); /* a pin may wait for room: make_some_room() */
	pdn_unlock();
	count = pdn_ending_dispatch(&ending);
	if (wait)
		wait_for_others(scope);
	/* After that wait: another thread may just have replaced some. */
	if (may_be_replaced)
		pdn_end_replaced(scope, reason);
	return count;
}

PDN_EXPORT int pindown_invalidate(uint64_t addr, size_t length)
{
	uint64_t end = addr + (length ? length : addr != UINT64_MAX);
	struct pdn_scope scope = {.kind = PDN_GUARD_RANGE, .begin = addr, .end = end};

	if (end < addr)
		return PINDOWN_ERR_INVALID;
	return pdn_end_scope(&scope, PINDOWN_REASON_FLUSHED);
}

PDN_EXPORT int pindown_invalidate_context(void *context)
{
	PDN_UNCANCELLED;
	struct pdn_scope scope = {.kind = PDN_GUARD_CONTEXT, .context = context};

	if (!context)
		return PINDOWN_ERR_INVALID;
	return pdn_end_scope(&scope, PINDOWN_REASON_FLUSHED);
}

/* See thread_quits in base/thread/thread.h. */
static void drop_own_work(void)
{
	pdn_lock();
	pdn_retired_drop_own();
	pdn_turns_drop_own();
	pdn_work_drop_own();
	pdn_objects_drop_own();
	pdn_wake_waiters();
	pdn_unlock();
}

PDN_NOTIFIED(thread_quits, drop_own_work);
