/* SPDX-License-Identifier: MIT */
/*
 * Ends by scope: a free's, or those that the program asks for. Other threads that are pinning or
 * unpinning memory of the scope are waited for.
 */
#include "cache/awaiting.h"
#include "cache/base/cancel.h"
#include "cache/base/lock.h"
#include "cache/base/log.h"
#include "cache/base/notify.h"
#include "cache/base/test_point.h"
#include "cache/base/thread.h"
#include "cache/base/visible.h"
#include "cache/collect.h"
#include "cache/index.h"
#include "cache/invalidate.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/race.h"
#include "cache/region.h"
#include "cache/replaced.h"
#include "cache/retire/retired.h"
#include "cache/retire/turns.h"

/* Lock held. 0: no other thread. */
static uint32_t who_pins_or_unpins(const struct pdn_scope *scope)
{
	uint32_t other = pdn_flights_under(scope);

	return other ? other : pdn_dying_under(scope);
}

/*
 * Other threads may be asking the driver about this memory, or be pinning it, and have been told to
 * give up, or be unpinning it for another reason. The free waits for all of them, so that the
 * driver is not asked during the free, and no pin keeps the memory when it returns. The wait ends
 * at a deadline: two threads that free inside subscribers' callbacks could wait for each other.
 */
static void __attribute__((noinline, cold)) wait_for_others(const struct pdn_scope *scope)
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
		while (in_time && (other = who_pins_or_unpins(scope)) != 0)
			in_time = pdn_wait_pending(deadline);
		pdn_unlock();
	} while (!in_time && pdn_free_waits_on(other, "pin or unpin"));
}

/*
 * Fetch everything that the end of one region looks at, so that the processor waits for all of it
 * at once: under the lock each load would begin only after the one before.
 */
static inline void fetch(uint32_t number)
{
	const struct pdn_thread *self = pdn_self_tls;

	if (!number || !self || !self->holds) /* no hold counts */
		return;
	__builtin_prefetch(&self->holds[number]);
	__builtin_prefetch(&pdn_briefs[number], 1);
	__builtin_prefetch(&pdn_regions[number], 1);
	/*
	 * Its neighbours in the queue. Relaxed: pairs with set_link() in queues.c; any value will
	 * do.
	 */
	__builtin_prefetch(
		&pdn_regions[__atomic_load_n(&pdn_regions[number].older, __ATOMIC_RELAXED)], 1);
	__builtin_prefetch(
		&pdn_regions[__atomic_load_n(&pdn_regions[number].newer, __ATOMIC_RELAXED)], 1);
}

/*
 * Lock held. After a heavy barrier: pins of memory that the scope covers lose. true: wait for some.
 */
static bool mark_flights(const struct pdn_scope *scope)
{
	bool any = pdn_flights_any() && pdn_flights_mark_lost(scope);

	if (any)
		pdn_wake_waiters(); /* one of them may wait for room: make_some_room() */
	return any;
}

/* Lock held. Is this region, which the index has at scope->begin, all that the scope covers? */
static inline bool is_all(uint32_t number, const struct pdn_scope *scope)
{
	const struct pindown_region *region = &pdn_regions[number];

	return pdn_region_holds(region, scope->begin, scope->end - scope->begin);
}

/*
 * Lock held; it is let go. The usual case of pdn_end_scope(), in a straight line: where it passes
 * no cancellation point, it need not be shielded from more than PDN_CANCELLED_LATER does.
 */
static int __attribute__((noinline))
end_one(uint32_t number, const struct pdn_scope *scope, enum pindown_reason reason)
{
	struct pdn_victims victims = {.scope = scope};
	bool wait;

	pdn_unlink(&victims, number, reason);
	pdn_let_hits_pass(number);
	pdn_keep_if(pdn_region_in_use(number) || pdn_objects_hold(number), &victims, number);
	wait = mark_flights(scope);
	pdn_unlock();
	pdn_victims_dispatch_some(&victims);
	if (wait)
		wait_for_others(scope);
	return 1;
}

/* Lock held; it is let go. */
static int __attribute__((noinline))
end_several(const struct pdn_scope *scope, enum pindown_reason reason)
{
	PDN_UNCANCELLED;
	struct pdn_victims victims = {.scope = scope};
	bool wait, may_be_replaced;
	int count;

	may_be_replaced =
		reason != PINDOWN_REASON_FLUSHED && (pdn_first_awaiting() || pdn_ending_any());
	/* Look for other threads' unpins before adding our own. */
	wait = pdn_dying_under(scope);
	pdn_collect(scope, &victims, reason);
	pdn_victims_split_idle_and_held(&victims);
	wait |= mark_flights(scope);
	pdn_unlock();
	count = pdn_victims_dispatch(&victims);
	if (wait)
		wait_for_others(scope);
	/* After that wait: another thread may just have replaced some. */
	if (may_be_replaced)
		pdn_end_replaced(scope, reason);
	return count;
}

int pdn_end_scope(const struct pdn_scope *scope, struct pdn_hint hint, enum pindown_reason reason)
{
	uint32_t number = hint.number;

	fetch(number);
	pdn_lock();
	if (number && !pdn_index_unchanged(hint.seq))
		number = pdn_index_peek_alone(scope->begin);
	if (number && !pdn_first_awaiting() && !pdn_ending_concerns(scope) && is_all(number, scope))
		return end_one(number, scope, reason);
	return end_several(scope, reason);
}

PDN_EXPORT int pindown_invalidate(uint64_t addr, size_t length)
{
	PDN_CANCELLED_LATER;
	uint64_t end = addr + (length ? length : addr != UINT64_MAX);
	struct pdn_scope scope = {.kind = PDN_GUARD_RANGE, .begin = addr, .end = end};

	if (end < addr)
		return PINDOWN_ERR_INVALID;
	return pdn_end_scope(&scope, pdn_index_hint(addr), PINDOWN_REASON_FLUSHED);
}

PDN_EXPORT int pindown_invalidate_context(void *context)
{
	PDN_UNCANCELLED;
	struct pdn_scope scope = {.kind = PDN_GUARD_CONTEXT, .context = context};

	if (!context)
		return PINDOWN_ERR_INVALID;
	return pdn_end_scope(&scope, (struct pdn_hint){0}, PINDOWN_REASON_FLUSHED);
}

/* See thread_quits in base/thread.h. */
static void __attribute__((cold)) forsake(void)
{
	pdn_lock();
	pdn_flights_drop_own();
	pdn_retired_drop_own();
	pdn_turns_drop_own();
	pdn_creations_drop_own();
	pdn_dying_drop_own();
	pdn_objects_drop_own();
	pdn_wake_waiters();
	pdn_unlock();
}

PDN_NOTIFIED(thread_quits, forsake);

void __attribute__((cold)) pdn_end_fork_child(void)
{
	pdn_ending_fork_child();
	pdn_awaiting_fork_child();
}
