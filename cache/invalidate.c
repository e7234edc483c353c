/* SPDX-License-Identifier: MIT */
/* Ending regions: they are unlinked at once and unpinned when nobody holds them. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cache/account.h"
#include "cache/backend/backend.h"
#include "cache/base/barrier.h"
#include "cache/base/cancel.h"
#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/notify.h"
#include "cache/base/log.h"
#include "cache/base/process.h"
#include "cache/base/test_point.h"
#include "cache/base/thread.h"
#include "cache/base/visible.h"
#include "cache/driver/driver.h"
#include "cache/evict.h"
#include "cache/index.h"
#include "cache/invalidate.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/race.h"
#include "cache/region.h"
#include "cache/region_trace.h"
#include "cache/subscribe.h"
#include "cache/trace/writer.h"
#include "cache/trust.h"
#include "cache/windows.h"

static struct pdn_queue dying;	  /* regions that are being unpinned; under the lock */
static struct pdn_queue awaiting; /* the list of pdn_first_awaiting(); under the lock */
static uint32_t awaiting_count;	  /* changed under the lock */

/*
 * Store, barrier, load: pairs with hits, which announce the region and then load its state (get.c,
 * hold_if()), and with puts, which drop their hold and then load it.
 */
static void set_state(uint32_t number, enum pdn_state state)
{
	__atomic_store_n(&pdn_briefs[number].state, state, PDN_BEFORE_BARRIER);
}

/*
 * Unsettled goes up before the region leaves the index: a free that no longer finds it there,
 * without the lock, has then seen that something is under way (see pdn_end_range() in
 * hook_events.c).
 */
void pdn_victims_add(struct pdn_victims *victims, uint32_t number, enum pindown_reason reason)
{
	struct pindown_region *region = &pdn_regions[number];
	struct pindown_region *details = region;
	bool missed = victims->missed && !pdn_region_is_volatile(region);

	pdn_pending_add(1);
	details->reason = (uint8_t)reason;
	details->killer = pdn_my_tid();
	pdn_region_set_flags(region, details->flags | (missed ? PDN_REGION_MISSED : 0) |
					     (victims->are_replaced ? PDN_REGION_REPLACED : 0));
	set_state(number, PDN_DYING);
	pdn_objects_unlink(number, reason);
	PDN_POINT(END_DYING, region->base);
	pdn_index_remove(number, region->base, region->end);
	pdn_queues_remove(number);
	pdn_queue_append(&dying, number);
	pdn_occupied_add(-1u);
	pdn_account_out(details, missed);
	if (missed)
		pdn_trust_ends();
	details->victim = victims->first;
	victims->first = number;
	PDN_POINT(END_UNLINKED, region->base);
}

/* Lock held, and as exact as pdn_region_in_use(): is it held, or one of its objects? */
static bool is_used(uint32_t number)
{
	return pdn_region_in_use(number) || pdn_objects_hold(number, pdn_details[number].reason);
}

/* Lock held. */
static bool is_kept_for_nobody(uint32_t number)
{
	return pdn_briefs[number].state == PDN_KEPT && !is_used(number);
}

/*
 * Relaxed: a thread that gets the memory again has it from the driver, which has it from the thread
 * that freed it.
 */
bool pdn_awaits_reuse(void)
{
	return __atomic_load_n(&awaiting_count, __ATOMIC_RELAXED) != 0;
}

uint32_t pdn_first_awaiting(void)
{
	return awaiting.oldest;
}

/* Lock held. It counts as occupied, so that allocations look here. */
static void count_awaiting(uint32_t change)
{
	__atomic_store_n(&awaiting_count, awaiting_count + change, __ATOMIC_RELAXED);
	pdn_occupied_add(change);
}

/* Lock held. */
static void await_reuse(uint32_t number)
{
	pdn_queue_append(&awaiting, number);
	pdn_region_set_flags(&pdn_regions[number], pdn_details[number].flags | PDN_REGION_AWAITS);
	count_awaiting(1);
}

void pdn_stop_awaiting(uint32_t number)
{
	if (!(pdn_details[number].flags & PDN_REGION_AWAITS))
		return;
	pdn_queue_remove(&awaiting, number);
	pdn_region_set_flags(&pdn_regions[number], pdn_details[number].flags & ~PDN_REGION_AWAITS);
	count_awaiting(-1u);
}

/*
 * From here on it is this thread's, as after pdn_victims_add(). At once, and not only just before
 * the unpin: its last holder may now free the memory, and that free has to wait.
 */
bool pdn_region_take_kept(uint32_t number)
{
	if (!is_kept_for_nobody(number))
		return false;
	pdn_pending_add(1); /* first: frees look at it without the lock */
	pdn_stop_awaiting(number);
	pdn_details[number].killer = pdn_my_tid();
	pdn_queue_append(&dying, number);
	set_state(number, PDN_DYING);
	return true;
}

/*
 * In a child that a signal handler forked just here the other threads are gone; so are their
 * announcements, once this thread has let go of the lock.
 */
void pdn_wait_for_reader(const struct pdn_thread *thread, uint32_t number)
{
	struct pdn_backoff rest = {0};

	while (__atomic_load_n(&thread->probing, __ATOMIC_ACQUIRE) == number &&
	       pdn_process_is_known())
		pdn_backoff(&rest);
}

/*
 * After the barrier, each hit that has loaded a live state is announced. The acquire pairs with the
 * release at the end of hold_if(): a hit that has ended has counted its hold. The state is this
 * thread's own store.
 */
static void let_probes_pass(void)
{
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t;

	while ((t = pdn_walk_next(&walk))) {
		uint32_t number = __atomic_load_n(&t->probing, __ATOMIC_SEQ_CST);

		if (!number ||
		    __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) != PDN_DYING)
			continue;
		/* A few instructions, unless that thread has lost its processor in between. */
		pdn_wait_for_reader(t, number);
	}
}

/*
 * It is still in use. A hold of our own keeps it from going away before everyone is notified. That
 * may be the last hold by then, so a free still waits for the region.
 */
static void keep(uint32_t number)
{
	pdn_hold(pdn_self_or_anonymous(), number);
	pdn_account_kept(&pdn_details[number]);
	set_state(number, PDN_KEPT);
}

/*
 * After the barrier and with all announcements over, nobody can take a new hold, and every hold
 * that was taken is counted. A put that is missing in the sum will find the region KEPT and take
 * the lock.
 */
void pdn_victims_split_some(const struct pdn_victims *victims)
{
	pdn_heavy_barrier();
	PDN_POINT(END_BARRIER, pdn_regions[victims->first].base);
	let_probes_pass();
	PDN_POINT(END_COUNTING, pdn_regions[victims->first].base);
	for (uint32_t n = victims->first; n; n = pdn_details[n].victim)
		if (is_used(n))
			keep(n);
}

/*
 * For eviction, which must leave regions in use alone. No get takes a candidate meanwhile, and a
 * put of one takes the lock; candidates that are held get their state back.
 */
void pdn_victims_add_idle(struct pdn_victims *victims, uint32_t candidates,
			  enum pindown_reason reason)
{
	for (uint32_t n = candidates; n; n = pdn_details[n].victim)
		set_state(n, PDN_DYING);
	PDN_POINT(EVICT_MARKED, pdn_region_base_now(candidates));
	pdn_heavy_barrier();
	let_probes_pass();
	PDN_POINT(EVICT_COUNTING, pdn_region_base_now(candidates));
	for (uint32_t n = candidates, next; n; n = next) {
		next = pdn_details[n].victim;
		if (is_used(n))
			set_state(n, pdn_state_for(pdn_details[n].flags & PDN_REGION_VOLATILE));
		else
			pdn_victims_add(victims, n, reason);
	}
}

/*
 * The region is DYING and this thread's: unpin it, without the lock. To others it is dying until
 * give_back().
 */
static void unpin(uint32_t number, bool was_kept)
{
	struct pdn_pin pin = pdn_region_pin(&pdn_regions[number]);
	uint64_t begin = pdn_tracing(PDN_EV_UNPIN) ? pdn_ticks() : 0;
	const struct pdn_backend *backend = pdn_backend_of(&pin);

	PDN_POINT(END_UNPINNING, pdn_region_base_now(number));
	if (backend)
		backend->unpin(&pin);
	pdn_region_drop_dmabuf(&pdn_regions[number]);
	PDN_POINT(END_UNPINNED, pdn_region_base_now(number));
	if (pdn_tracing(PDN_EV_UNPIN))
		pdn_trace_about(PDN_EV_UNPIN, &pdn_regions[number], 0,
				was_kept ? PDN_TRACE_IN_USE : 0, begin, pdn_ticks());
}

/* A subscriber has forked, and this is the child: the regions are its parent's. */
static bool is_abandoned(uint32_t number)
{
	return __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) == PDN_ABANDONED;
}

/* Regions that have been unpinned: several are given back under one taking of the lock. */
struct unpinned {
	uint32_t count;
	uint32_t
		number[16]; /* few, as other threads' frees of the memory may be waiting for them */
};

/* Records of unpinned regions are free again. Lock not held. */
static void give_back(struct unpinned *unpinned, bool were_kept)
{
	if (!unpinned->count)
		return;
	pdn_lock();
	for (uint32_t i = 0; i < unpinned->count; i++) {
		uint32_t number = unpinned->number[i];

		if (is_abandoned(number))
			continue;
		pdn_account_unpin(&pdn_details[number], were_kept);
		pdn_queue_remove(&dying, number);
		pdn_region_free(number);
		pdn_pending_add(-1u);
	}
	pdn_wake_waiters();
	pdn_unlock();
	unpinned->count = 0;
}

void pdn_unpin_kept(uint32_t number)
{
	struct unpinned one;

	one.count = 1;
	one.number[0] = number;
	unpin(number, true);
	give_back(&one, true);
}

static unsigned trace_flags(const struct pindown_region *region, bool in_use)
{
	return (in_use ? PDN_TRACE_IN_USE : 0) |
	       (pdn_region_flags(region) & PDN_REGION_MISSED ? PDN_TRACE_MISSED : 0) |
	       (pdn_region_flags(region) & PDN_REGION_REPLACED ? PDN_TRACE_REPLACED : 0);
}

static void tell(const struct pindown_region *region, bool in_use)
{
	enum pdn_event event = pdn_details_of(region)->reason == PINDOWN_REASON_EVICTED
				       ? PDN_EV_EVICT
				       : PDN_EV_INVALIDATE;

	if (pdn_tracing(event)) {
		uint64_t now = pdn_ticks();

		pdn_trace_about(event, region, 0, trace_flags(region, in_use), now, now);
	}
	pdn_tell_subscribers(region, in_use);
}

/* Everyone has been notified: drop keep()'s hold. */
static void let_go(uint32_t number)
{
	bool last;

	PDN_POINT(END_LETTING_GO, pdn_region_base_now(number));
	pdn_lock();
	pdn_unhold(pdn_self_or_anonymous(), number);
	last = is_kept_for_nobody(number);
	if (last) {
		set_state(number, PDN_DYING); /* this thread's still */
	} else {
		pdn_queue_remove(&dying, number);
		if (pdn_objects_await_reuse(number))
			await_reuse(number);
		pdn_pending_add(-1u);
		pdn_wake_waiters();
	}
	pdn_unlock();
	if (last)
		pdn_unpin_kept(number);
}

/*
 * Notify everyone who built something on the region or asked to hear of its end. They may call
 * back.
 */
static void tell_all(uint32_t number, const char *missed, bool in_use)
{
	if (pdn_region_flags(&pdn_regions[number]) & PDN_REGION_MISSED)
		pdn_tell_of_miss(&pdn_regions[number], missed);
	if (!is_abandoned(number))
		tell(&pdn_regions[number], in_use);
	if (pdn_objects_any(number) && !is_abandoned(number))
		pdn_objects_end(number);
}

/* Nobody but a trace can want to hear of the end of any region that this thread has ended. */
static bool is_quiet(void)
{
	return !pdn_tracing(PDN_EV_EVICT) && !pdn_tracing(PDN_EV_INVALIDATE) &&
	       !pdn_has_subscribers() && !pdn_creations_any();
}

/* The same of this one: it is idle, and has only to be unpinned. */
static bool has_only_a_pin(uint32_t number)
{
	return __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) == PDN_DYING &&
	       !pdn_first_object(number) &&
	       !(pdn_region_flags(&pdn_regions[number]) & PDN_REGION_MISSED);
}

/* Tell everyone, and let go of the region if it is in use. false: it is idle and to be unpinned. */
static bool ends_in_company(uint32_t number, const char *missed, struct unpinned *unpinned)
{
	bool in_use = __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) == PDN_KEPT;

	/* A callback may wait for a free in another thread, which may wait for a dying region. */
	if (in_use || pdn_has_subscribers() || pdn_objects_any(number))
		give_back(unpinned, false);
	tell_all(number, missed, in_use);
	if (is_abandoned(number))
		return true;
	if (in_use)
		let_go(number);
	return in_use;
}

int pdn_victims_dispatch_some(struct pdn_victims *victims)
{
	struct unpinned unpinned;
	bool quiet = is_quiet();
	int count = 0;

	pdn_barrier_report();
	unpinned.count = 0;
	for (uint32_t number = victims->first, next; number; number = next, count++) {
		next = pdn_details[number].victim;
		if (unpinned.count == sizeof(unpinned.number) / sizeof(unpinned.number[0]))
			give_back(&unpinned, false);
		PDN_POINT(END_TELLING, pdn_region_base_now(number));
		if (!(quiet && has_only_a_pin(number)) &&
		    ends_in_company(number, victims->missed, &unpinned))
			continue;
		unpin(number, false);
		unpinned.number[unpinned.count++] = number;
	}
	give_back(&unpinned, false);
	victims->first = 0;
	return count;
}

/* ---- by scope ----------------------------------------------------------------------------- */

struct pdn_memory pdn_memory_of(const struct pindown_region *region)
{
	void *context = pdn_region_context(region);
	bool whole = context && pdn_region_flags(region) & PDN_REGION_WINDOW;

	return (struct pdn_memory){.base = whole ? pdn_rest_of(region)->whole_base : region->base,
				   .end = whole ? pdn_rest_of(region)->whole_end : region->end,
				   .context = context,
				   .device = region->device};
}

/* Of the allocation that holds scope->begin: the first region there or behind is its, or none. */
static void collect_windows(const struct pdn_scope *scope, struct pdn_victims *victims,
			    enum pindown_reason reason)
{
	uint64_t at = scope->begin, before = 0;
	uint32_t number;

	while ((number = pdn_index_next(&at, PDN_ADDRESS_LIMIT)) != 0) {
		struct pdn_memory memory = pdn_memory_of(&pdn_regions[number]);

		if (!pdn_scope_covers(scope, &memory))
			return;
		if (!before) {
			before = at = memory.base;
			continue;
		}
		pdn_victims_add(victims, number, reason);
	}
}

static void collect_at(const struct pdn_scope *scope, struct pdn_victims *victims,
		       enum pindown_reason reason)
{
	uint32_t number = pdn_index_find(scope->begin);

	if (pdn_windows_may_hold(scope->begin))
		collect_windows(scope, victims, reason);
	else if (number && pdn_region_holds(&pdn_regions[number], scope->begin, 1))
		pdn_victims_add(victims, number, reason);
}

/* As pdn_index_next(). Regions often lie side by side: then the tree is not walked again. */
static uint32_t next_in_range(uint64_t *at, uint64_t end)
{
	uint32_t number = *at < end ? pdn_index_peek(*at) : 0;

	if ((int32_t)number > 0 && pdn_region_holds(&pdn_regions[number], *at, 1))
		return number;
	return pdn_index_next(at, end);
}

static void collect_range(uint64_t begin, uint64_t end, struct pdn_victims *victims,
			  enum pindown_reason reason)
{
	uint64_t at = begin;
	uint32_t number;

	while ((number = next_in_range(&at, end)) != 0) {
		at = pdn_regions[number].end;
		pdn_victims_add(victims, number, reason);
	}
}

static void collect_matching(const struct pdn_scope *scope, struct pdn_victims *victims,
			     enum pindown_reason reason)
{
	for (uint32_t number = pdn_queues_first(), next; number; number = next) {
		struct pdn_memory memory = pdn_memory_of(&pdn_regions[number]);

		next = pdn_queues_next(number);
		if (pdn_scope_covers(scope, &memory))
			pdn_victims_add(victims, number, reason);
	}
}

static void collect(const struct pdn_scope *scope, struct pdn_victims *victims,
		    enum pindown_reason reason)
{
	if (scope->kind != PDN_GUARD_RANGE)
		collect_matching(scope, victims, reason);
	else if (scope->end <= scope->begin)
		collect_at(scope, victims, reason);
	else
		collect_range(scope->begin, scope->end, victims, reason);
}

/* 0: nobody unpins it any more, as its thread has ended in a callback. */
static bool is_anothers(uint32_t number, uint32_t me)
{
	return pdn_details[number].killer && pdn_details[number].killer != me;
}

bool pdn_dying_under(const struct pdn_scope *scope)
{
	uint32_t me = pdn_my_tid();

	for (uint32_t number = dying.oldest; number; number = pdn_regions[number].newer) {
		struct pdn_memory memory = pdn_memory_of(&pdn_regions[number]);

		if (is_anothers(number, me) && pdn_scope_covers(scope, &memory))
			return true;
	}
	return false;
}

bool pdn_dying_any(void)
{
	uint32_t me = pdn_my_tid();

	for (uint32_t number = dying.oldest; number; number = pdn_regions[number].newer)
		if (is_anothers(number, me))
			return true;
	return false;
}

void pdn_dying_drop_own(void)
{
	uint32_t me = pdn_my_tid();

	for (uint32_t number = dying.oldest; number; number = pdn_regions[number].newer)
		if (pdn_details[number].killer == me)
			pdn_details[number].killer = 0;
}

/*
 * Other threads may be pinning this memory, and have been told to give up, or be unpinning it for
 * another reason. The free waits for both, so that no pin keeps the memory when it returns. The
 * wait ends at a deadline: two threads that free inside subscribers' callbacks could wait for each
 * other.
 */
static void wait_for_others(const struct pdn_scope *scope)
{
	static bool said;
	uint64_t deadline = pdn_race_deadline();
	bool in_time = true;

	PDN_POINT(END_WAITING, scope->begin);
	pdn_lock();
	while (in_time && (pdn_flights_under(scope) || pdn_dying_under(scope)))
		in_time = pdn_wait_pending(deadline);
	pdn_unlock();
	if (!in_time)
		pdn_log_once(&said, PDN_LOG_WARN,
			     "a free has waited two seconds for another thread's pin or unpin of "
			     "the same "
			     "memory and proceeds; the memory may come back late");
}

/*
 * Fetch everything that the end of one region looks at, so that the processor waits for all of it
 * at once: under the lock each load would begin only after the one before.
 */
static void fetch(uint64_t addr)
{
	const struct pdn_thread *self = pdn_self_tls;
	uint32_t number = pdn_index_peek(addr);

	if ((int32_t)number <= 0 || !self ||
	    !self->holds) /* none; shared by several; no hold counts */
		return;
	__builtin_prefetch(&self->holds[number]);
	__builtin_prefetch(&pdn_briefs[number], 1);
	__builtin_prefetch(&pdn_details[number], 1);
	/*
	 * Its neighbours in the queue. Relaxed: pairs with set_link() in evict.c; any value will
	 * do.
	 */
	__builtin_prefetch(
		&pdn_regions[__atomic_load_n(&pdn_regions[number].older, __ATOMIC_RELAXED)], 1);
	__builtin_prefetch(
		&pdn_regions[__atomic_load_n(&pdn_regions[number].newer, __ATOMIC_RELAXED)], 1);
}

/*
 * Lock held. Is it this thread's to end, now that its memory ends? In the queue of dying regions:
 * only if a callback that notifies of the replacement frees the memory.
 */
static bool is_replaced_here(uint32_t number, const struct pdn_scope *scope)
{
	struct pdn_memory memory = pdn_memory_of(&pdn_regions[number]);

	return pdn_region_is_replaced(number) && pdn_briefs[number].state == PDN_KEPT &&
	       (pdn_details[number].flags & PDN_REGION_AWAITS ||
		pdn_details[number].killer == pdn_my_tid()) &&
	       pdn_scope_covers(scope, &memory);
}

/* Lock held. 0: there is none. */
static uint32_t next_replaced(const struct pdn_queue *queue, const struct pdn_scope *scope)
{
	uint32_t number = queue->oldest;

	while (number && !is_replaced_here(number, scope))
		number = pdn_regions[number].newer;
	return number;
}

/* Lock held. As after keep(): its holders' last put leaves it to let_go(), and a free waits. */
static void keep_again(uint32_t number)
{
	pdn_stop_awaiting(number);
	pdn_pending_add(1);
	pdn_hold(pdn_self_or_anonymous(), number);
	pdn_details[number].killer = pdn_my_tid();
	pdn_queue_append(&dying, number);
}

/* Of a region that was dying already, the caller that this is nested in lets go. */
void pdn_end_replaced(const struct pdn_scope *scope, enum pindown_reason reason)
{
	uint32_t number;
	bool awaits;

	do {
		pdn_lock();
		number = next_replaced(&awaiting, scope);
		awaits = number != 0;
		if (awaits)
			keep_again(number);
		else
			number = next_replaced(&dying, scope);
		if (number) {
			/* Relaxed: an object may just be made on it (discard() in attach.c). */
			__atomic_store_n(&pdn_details[number].reason, (uint8_t)reason,
					 __ATOMIC_RELAXED);
			pdn_objects_unlink(number, reason);
		}
		pdn_unlock();
		if (number && !is_abandoned(number))
			pdn_objects_end(number);
		if (awaits && !is_abandoned(number))
			let_go(number);
	} while (number);
}

int pdn_end_scope(const struct pdn_scope *scope, enum pindown_reason reason)
{
	struct pdn_victims victims = {0};
	bool wait, may_be_replaced;
	int count;

	if (scope->kind == PDN_GUARD_RANGE)
		fetch(scope->begin);
	pdn_lock();
	may_be_replaced = reason != PINDOWN_REASON_FLUSHED && (awaiting.oldest || dying.oldest);
	/* Look for other threads' unpins before adding our own. */
	wait = pdn_dying_under(scope);
	collect(scope, &victims, reason);
	pdn_victims_split_idle_and_held(&victims);
	if (pdn_flights_mark_lost(scope)) {
		pdn_wake_waiters(); /* one of them may wait for room: make_some_room() */
		wait = true;
	}
	pdn_unlock();
	count = pdn_victims_dispatch(&victims);
	if (wait)
		wait_for_others(scope);
	/* After that wait: another thread may just have replaced some. */
	if (may_be_replaced)
		pdn_end_replaced(scope, reason);
	return count;
}

PDN_EXPORT int pindown_invalidate(uint64_t addr, size_t length)
{
	PDN_UNCANCELLED;
	struct pdn_scope scope = {.kind = PDN_GUARD_RANGE, .begin = addr, .end = addr + length};

	if (addr + length < addr)
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

/* See thread_quits in base/thread.h. */
static void __attribute__((cold)) forsake(void)
{
	pdn_lock();
	pdn_flights_drop_own();
	pdn_creations_drop_own();
	pdn_dying_drop_own();
	pdn_objects_drop_own();
	pdn_wake_waiters();
	pdn_unlock();
}

PDN_NOTIFIED(thread_quits, forsake);

void pdn_end_fork_child(void)
{
	dying = awaiting = (struct pdn_queue){0};
	awaiting_count = 0;
}
