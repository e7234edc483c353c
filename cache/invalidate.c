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

static struct pd_queue dying;	 /* regions that are being unpinned; under the lock */
static struct pd_queue awaiting; /* the list of pd_first_awaiting(); under the lock */
static uint32_t awaiting_count;	 /* changed under the lock */

/*
 * Store, barrier, load: pairs with hits, which announce the region and then load its state (get.c,
 * hold_if()), and with puts, which drop their hold and then load it.
 */
static void set_state(uint32_t number, enum pd_state state)
{
	__atomic_store_n(&pd_briefs[number].state, state, PD_BEFORE_BARRIER);
}

/*
 * Unsettled goes up before the region leaves the index: a free that no longer finds it there,
 * without the lock, has then seen that something is under way (see pd_end_range() in
 * hook_events.c).
 */
void pd_victims_add(struct pd_victims *victims, uint32_t number, enum pindown_reason reason)
{
	struct pindown_region *region = &pd_regions[number];
	struct pd_details *details = &pd_details[number];
	bool missed = victims->missed && !pd_region_is_volatile(region);

	pd_unsettled_add(1);
	details->reason = (uint16_t)reason;
	details->killer = pd_my_tid();
	if (missed)
		pd_region_set_flags(region, details->flags | PD_REGION_MISSED);
	set_state(number, PD_DYING);
	pd_objects_unlink(number, reason);
	PD_POINT(END_DYING, region->base);
	pd_index_remove(number, region->base, region->end);
	pd_queues_remove(number);
	pd_queue_append(&dying, number);
	pd_occupied_add(-1u);
	pd_account_out(details, missed);
	if (missed)
		pd_trust_ends();
	details->victim = victims->first;
	victims->first = number;
	PD_POINT(END_UNLINKED, region->base);
}

/* Lock held, and as exact as pd_region_in_use(): is it held, or one of its objects? */
static bool is_used(uint32_t number)
{
	return pd_region_in_use(number) || pd_objects_hold(number, pd_details[number].reason);
}

/* Lock held. */
static bool is_kept_for_nobody(uint32_t number)
{
	return pd_briefs[number].state == PD_KEPT && !is_used(number);
}

/*
 * Relaxed: a thread that gets the memory again has it from the driver, which has it from the thread
 * that freed it.
 */
bool pd_awaits_reuse(void)
{
	return __atomic_load_n(&awaiting_count, __ATOMIC_RELAXED) != 0;
}

uint32_t pd_first_awaiting(void)
{
	return awaiting.oldest;
}

/* Lock held. It counts as occupied, so that allocations look here. */
static void count_awaiting(uint32_t change)
{
	__atomic_store_n(&awaiting_count, awaiting_count + change, __ATOMIC_RELAXED);
	pd_occupied_add(change);
}

/* Lock held. */
static void await_reuse(uint32_t number)
{
	pd_queue_append(&awaiting, number);
	pd_region_set_flags(&pd_regions[number], pd_details[number].flags | PD_REGION_AWAITS);
	count_awaiting(1);
}

void pd_stop_awaiting(uint32_t number)
{
	if (!(pd_details[number].flags & PD_REGION_AWAITS))
		return;
	pd_queue_remove(&awaiting, number);
	pd_region_set_flags(&pd_regions[number], pd_details[number].flags & ~PD_REGION_AWAITS);
	count_awaiting(-1u);
}

/*
 * From here on it is this thread's, as after pd_victims_add(). At once, and not only just before
 * the unpin: its last holder may now free the memory, and that free has to wait.
 */
bool pd_region_take_kept(uint32_t number)
{
	if (!is_kept_for_nobody(number))
		return false;
	pd_unsettled_add(1); /* first: frees look at it without the lock */
	pd_stop_awaiting(number);
	pd_details[number].killer = pd_my_tid();
	pd_queue_append(&dying, number);
	set_state(number, PD_DYING);
	return true;
}

/*
 * In a child that a signal handler forked just here the other threads are gone; so are their
 * announcements, once this thread has let go of the lock.
 */
void pd_wait_for_reader(const struct pd_thread *thread, uint32_t number)
{
	struct pd_rest rest = {0};

	while (__atomic_load_n(&thread->probing, __ATOMIC_ACQUIRE) == number &&
	       pd_process_is_known())
		pd_rest(&rest);
}

/*
 * After the barrier, each hit that has loaded a live state is announced. The acquire pairs with the
 * release at the end of hold_if(): a hit that has ended has counted its hold. The state is this
 * thread's own store.
 */
static void let_probes_pass(void)
{
	for (struct pd_thread *t = pd_threads(); t; t = t->next) {
		uint32_t number = __atomic_load_n(&t->probing, __ATOMIC_SEQ_CST);

		if (!number ||
		    __atomic_load_n(&pd_briefs[number].state, __ATOMIC_RELAXED) != PD_DYING)
			continue;
		/* A few instructions, unless that thread has lost its processor in between. */
		pd_wait_for_reader(t, number);
	}
}

/*
 * It is still in use. A hold of our own keeps it from going away before everyone is notified. That
 * may be the last hold by then, so a free still waits for the region.
 */
static void keep(uint32_t number)
{
	pd_hold(pd_self_or_anonymous(), number, 1);
	pd_account_kept(&pd_details[number]);
	set_state(number, PD_KEPT);
}

/*
 * After the barrier and with all announcements over, nobody can take a new hold, and every hold
 * that was taken is counted. A put that is missing in the sum will find the region KEPT and take
 * the lock.
 */
void pd_victims_sort_some(const struct pd_victims *victims)
{
	pd_heavy_barrier();
	PD_POINT(END_BARRIER, pd_regions[victims->first].base);
	let_probes_pass();
	PD_POINT(END_COUNTING, pd_regions[victims->first].base);
	for (uint32_t n = victims->first; n; n = pd_details[n].victim)
		if (is_used(n))
			keep(n);
}

/*
 * For eviction, which must leave regions in use alone. No get takes a candidate meanwhile, and a
 * put of one takes the lock; candidates that are held get their state back.
 */
void pd_victims_add_idle(struct pd_victims *victims, uint32_t candidates,
			 enum pindown_reason reason)
{
	for (uint32_t n = candidates; n; n = pd_details[n].victim)
		set_state(n, PD_DYING);
	PD_POINT(EVICT_MARKED, pd_region_base_now(candidates));
	pd_heavy_barrier();
	let_probes_pass();
	PD_POINT(EVICT_COUNTING, pd_region_base_now(candidates));
	for (uint32_t n = candidates, next; n; n = next) {
		next = pd_details[n].victim;
		if (is_used(n))
			set_state(n, pd_state_for(pd_details[n].flags & PD_REGION_VOLATILE));
		else
			pd_victims_add(victims, n, reason);
	}
}

/*
 * The region is DYING and this thread's: unpin it, without the lock. To others it is dying until
 * give_back().
 */
static void unpin(uint32_t number, bool was_kept)
{
	struct pd_pin *pin = &pd_details[number].pin;
	uint64_t begin = pd_tracing(PD_EV_UNPIN) ? pd_ticks() : 0;
	const struct pd_backend *backend = pd_backend_of(pin);

	PD_POINT(END_UNPINNING, pd_region_base_now(number));
	if (backend)
		backend->unpin(pin);
	PD_POINT(END_UNPINNED, pd_region_base_now(number));
	if (pd_tracing(PD_EV_UNPIN))
		pd_trace_about(PD_EV_UNPIN, &pd_regions[number], 0, was_kept ? PD_TRACE_IN_USE : 0,
			       begin, pd_ticks());
}

/* A subscriber has forked, and this is the child: the regions are its parent's. */
static bool is_abandoned(uint32_t number)
{
	return __atomic_load_n(&pd_briefs[number].state, __ATOMIC_RELAXED) == PD_ABANDONED;
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
	pd_lock();
	for (uint32_t i = 0; i < unpinned->count; i++) {
		uint32_t number = unpinned->number[i];

		if (is_abandoned(number))
			continue;
		pd_account_unpin(&pd_details[number], were_kept);
		pd_queue_remove(&dying, number);
		pd_region_free(number);
		pd_unsettled_add(-1u);
	}
	pd_wake_waiters();
	pd_unlock();
	unpinned->count = 0;
}

void pd_unpin_kept(uint32_t number)
{
	struct unpinned one;

	one.count = 1;
	one.number[0] = number;
	unpin(number, true);
	give_back(&one, true);
}

static unsigned trace_flags(const struct pindown_region *region, bool in_use)
{
	return (in_use ? PD_TRACE_IN_USE : 0) |
	       (pd_region_flags(region) & PD_REGION_MISSED ? PD_TRACE_MISSED : 0);
}

static void tell(const struct pindown_region *region, bool in_use)
{
	enum pd_event event = pd_details_of(region)->reason == PINDOWN_REASON_EVICTED
				      ? PD_EV_EVICT
				      : PD_EV_INVALIDATE;

	if (pd_tracing(event)) {
		uint64_t now = pd_ticks();

		pd_trace_about(event, region, 0, trace_flags(region, in_use), now, now);
	}
	pd_tell_subscribers(region, in_use);
}

/* Everyone has been notified: drop keep()'s hold. */
static void let_go(uint32_t number)
{
	bool last;

	PD_POINT(END_LETTING_GO, pd_region_base_now(number));
	pd_lock();
	pd_hold(pd_self_or_anonymous(), number, -1u);
	last = is_kept_for_nobody(number);
	if (last) {
		set_state(number, PD_DYING); /* this thread's still */
	} else {
		pd_queue_remove(&dying, number);
		if (pd_objects_await_reuse(number))
			await_reuse(number);
		pd_unsettled_add(-1u);
		pd_wake_waiters();
	}
	pd_unlock();
	if (last)
		pd_unpin_kept(number);
}

/*
 * Notify everyone who built something on the region or asked to hear of its end. They may call
 * back.
 */
static void tell_all(uint32_t number, const char *missed, bool in_use)
{
	PD_POINT(END_TELLING, pd_region_base_now(number));
	if (pd_region_flags(&pd_regions[number]) & PD_REGION_MISSED)
		pd_tell_of_miss(&pd_regions[number], missed);
	if (!is_abandoned(number))
		tell(&pd_regions[number], in_use);
	if (pd_objects_any(number) && !is_abandoned(number))
		pd_objects_end(number);
}

int pd_victims_dispatch_some(struct pd_victims *victims)
{
	struct unpinned unpinned;
	int count = 0;

	pd_asym_tell();
	unpinned.count = 0;
	for (uint32_t number = victims->first, next; number; number = next, count++) {
		bool in_use =
			__atomic_load_n(&pd_briefs[number].state, __ATOMIC_RELAXED) == PD_KEPT;

		next = pd_details[number].victim;
		/*
		 * A callback may wait for a free in another thread, which may wait for a dying
		 * region.
		 */
		if (unpinned.count == sizeof(unpinned.number) / sizeof(unpinned.number[0]) ||
		    in_use || pd_has_subscribers() || pd_objects_any(number))
			give_back(&unpinned, false);
		tell_all(number, victims->missed, in_use);
		if (is_abandoned(number))
			continue;
		if (in_use) {
			let_go(number);
		} else {
			unpin(number, false);
			unpinned.number[unpinned.count++] = number;
		}
	}
	give_back(&unpinned, false);
	victims->first = 0;
	return count;
}

/* ---- by scope ----------------------------------------------------------------------------- */

struct pd_memory pd_memory_of(const struct pindown_region *region)
{
	return (struct pd_memory){.base = region->base,
				  .end = region->end,
				  .context = pd_details_of(region)->context,
				  .device = pd_details_of(region)->pin.device};
}

static void collect_at(uint64_t addr, struct pd_victims *victims, enum pindown_reason reason)
{
	uint32_t number = pd_index_find(addr);

	if (number && pd_region_holds(&pd_regions[number], addr, 1))
		pd_victims_add(victims, number, reason);
}

static void collect_range(uint64_t begin, uint64_t end, struct pd_victims *victims,
			  enum pindown_reason reason)
{
	uint64_t at = begin;
	uint32_t number;

	while ((number = pd_index_next(&at, end)) != 0)
		pd_victims_add(victims, number, reason);
}

static void collect_matching(const struct pd_scope *scope, struct pd_victims *victims,
			     enum pindown_reason reason)
{
	for (uint32_t number = pd_queues_first(), next; number; number = next) {
		struct pd_memory memory = pd_memory_of(&pd_regions[number]);

		next = pd_queues_next(number);
		if (pd_scope_covers(scope, &memory))
			pd_victims_add(victims, number, reason);
	}
}

static void collect(const struct pd_scope *scope, struct pd_victims *victims,
		    enum pindown_reason reason)
{
	if (scope->kind != PD_GUARD_RANGE)
		collect_matching(scope, victims, reason);
	else if (scope->end <= scope->begin)
		collect_at(scope->begin, victims, reason);
	else
		collect_range(scope->begin, scope->end, victims, reason);
}

/* 0: nobody unpins it any more, as its thread has ended in a callback. */
static bool is_anothers(uint32_t number, uint32_t me)
{
	return pd_details[number].killer && pd_details[number].killer != me;
}

bool pd_dying_under(const struct pd_scope *scope)
{
	uint32_t me = pd_my_tid();

	for (uint32_t number = dying.oldest; number; number = pd_regions[number].newer) {
		struct pd_memory memory = pd_memory_of(&pd_regions[number]);

		if (is_anothers(number, me) && pd_scope_covers(scope, &memory))
			return true;
	}
	return false;
}

bool pd_dying_any(void)
{
	uint32_t me = pd_my_tid();

	for (uint32_t number = dying.oldest; number; number = pd_regions[number].newer)
		if (is_anothers(number, me))
			return true;
	return false;
}

void pd_dying_forsake(void)
{
	uint32_t me = pd_my_tid();

	for (uint32_t number = dying.oldest; number; number = pd_regions[number].newer)
		if (pd_details[number].killer == me)
			pd_details[number].killer = 0;
}

/*
 * Other threads may be pinning this memory, and have been told to give up, or be unpinning it for
 * another reason. The free waits for both, so that no pin keeps the memory when it returns. The
 * wait ends at a deadline: two threads that free inside subscribers' callbacks could wait for each
 * other.
 */
static void wait_for_others(const struct pd_scope *scope)
{
	static bool said;
	uint64_t deadline = pd_race_deadline();
	bool in_time = true;

	PD_POINT(END_WAITING, scope->begin);
	pd_lock();
	while (in_time && (pd_flights_under(scope) || pd_dying_under(scope)))
		in_time = pd_wait_settled(deadline);
	pd_unlock();
	if (!in_time)
		pd_log_once(&said, PD_LOG_WARN,
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
	const struct pd_thread *self = pd_self_tls;
	uint32_t number = pd_index_peek(addr);

	if ((int32_t)number <= 0 || !self ||
	    !self->holds) /* none; shared by several; no hold counts */
		return;
	__builtin_prefetch(&self->holds[number]);
	__builtin_prefetch(&pd_briefs[number], 1);
	__builtin_prefetch(&pd_details[number], 1);
	/*
	 * Its neighbours in the queue. Relaxed: pairs with set_link() in evict.c; any value will
	 * do.
	 */
	__builtin_prefetch(
		&pd_regions[__atomic_load_n(&pd_regions[number].older, __ATOMIC_RELAXED)], 1);
	__builtin_prefetch(
		&pd_regions[__atomic_load_n(&pd_regions[number].newer, __ATOMIC_RELAXED)], 1);
}

int pd_end_scope(const struct pd_scope *scope, enum pindown_reason reason)
{
	struct pd_victims victims = {0};
	bool wait;
	int count;

	if (scope->kind == PD_GUARD_RANGE)
		fetch(scope->begin);
	pd_lock();
	/* Look for other threads' unpins before adding our own. */
	wait = pd_dying_under(scope);
	collect(scope, &victims, reason);
	pd_victims_sort(&victims);
	if (pd_flights_lose(scope)) {
		pd_wake_waiters(); /* one of them may wait for room: make_some_room() */
		wait = true;
	}
	pd_unlock();
	count = pd_victims_dispatch(&victims);
	if (wait)
		wait_for_others(scope);
	return count;
}

PD_EXPORT int pindown_invalidate(uint64_t addr, size_t length)
{
	PD_UNCANCELLED;
	struct pd_scope scope = {.kind = PD_GUARD_RANGE, .begin = addr, .end = addr + length};

	if (addr + length < addr)
		return PINDOWN_ERR_INVALID;
	return pd_end_scope(&scope, PINDOWN_REASON_FLUSHED);
}

PD_EXPORT int pindown_invalidate_context(void *context)
{
	PD_UNCANCELLED;
	struct pd_scope scope = {.kind = PD_GUARD_CONTEXT, .context = context};

	if (!context)
		return PINDOWN_ERR_INVALID;
	return pd_end_scope(&scope, PINDOWN_REASON_FLUSHED);
}

/* See thread_quits in base/thread.h. */
static void __attribute__((cold)) forsake(void)
{
	pd_lock();
	pd_flights_forsake();
	pd_creations_forsake();
	pd_dying_forsake();
	pd_objects_forsake();
	pd_wake_waiters();
	pd_unlock();
}

PD_NOTIFIED(thread_quits, forsake);

void pd_end_fork_child(void)
{
	dying = awaiting = (struct pd_queue){0};
	awaiting_count = 0;
}
