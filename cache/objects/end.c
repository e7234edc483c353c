/* SPDX-License-Identifier: MIT */
/* How consumer objects come to their end: with their region, their owner, or their consumer. */
#define _GNU_SOURCE
#include <string.h>

#include "cache/account.h"
#include "cache/base/barrier.h"
#include "cache/base/cancel.h"
#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/log.h"
#include "cache/base/thread.h"
#include "cache/base/visible.h"
#include "cache/invalidate.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/region.h"
#include "cache/subscribe.h"
#include "cache/trace/writer.h"

/*
 * Store, barrier, load: pairs with hold_object() in attach.c, within an announcement, and with
 * pindown_detach(), which count and then load the state.
 */
static void set_state(struct pindown_object *object, enum pd_object_state state)
{
	__atomic_store_n(&object->state, state, __ATOMIC_SEQ_CST);
}

/*
 * In this process everything was the parent's: a callback of ours has forked, and this is the
 * child. Relaxed: the child has this one thread, which has stored it.
 */
static bool is_abandoned(const struct pindown_object *object)
{
	return __atomic_load_n(&object->state, __ATOMIC_RELAXED) == PD_OBJECT_ABANDONED;
}

/* Lock held. From here on every detach of it comes for the lock. */
static void begin_end(struct pindown_object *object, enum pindown_reason reason)
{
	object->reason = (uint16_t)reason;
	object->worker = pd_my_tid();
	set_state(object, PD_OBJECT_ENDING);
}

/* Lock held. This thread destroys it, once the lock is let go. */
static void take(uint32_t number, uint32_t *chain)
{
	struct pindown_object *object = &pd_objects[number];

	object->worker = pd_my_tid();
	object->revoked = pd_object_is_held(number);
	object->called = false;
	set_state(object, PD_OBJECT_DYING);
	pd_consumer_enter(pd_consumer(object->consumer));
	object->victim = *chain;
	*chain = number;
}

/* It is DYING and ours. Lock not held. */
static void destroy(uint32_t number)
{
	struct pindown_object *object = &pd_objects[number];
	struct pindown_object_end what = {
		.key = object->key,
		.data = object->data,
		.region = &pd_regions[object->region],
		.reason = object->reason,
		.in_use = object->revoked,
	};
	struct pd_object_event told = {
		.region = object->region,
		.number = number,
		.key = &what.key,
		.reason = object->reason,
		.flags = object->revoked ? PD_TRACE_IN_USE : 0,
	};
	struct pd_consumer *consumer;

	pd_lock();
	consumer = pd_consumer(object->consumer);
	object->called = true;
	pd_unlock();
	if (what.in_use) /* its holder may be looking: pairs with pindown_object_data() */
		__atomic_store_n(&object->data, NULL, __ATOMIC_RELAXED);
	told.begin = pd_tracing(PD_EV_DEREGISTER) ? pd_ticks() : 0;
	told.result = pd_consumer_destroy(consumer, &what);
	pd_trace_object(PD_EV_DEREGISTER, consumer->name, &told);
	pd_lock();
	pd_consumer_leave(consumer);
	pd_unlock();
}

/* Lock held. Release: pairs with pd_object_find(), which goes on to the next one by this link. */
static void remove_from_region(uint32_t number)
{
	uint32_t *at = &pd_objects_of[pd_objects[number].region];

	while (*at != number)
		at = &pd_objects[*at].next;
	__atomic_store_n(at, pd_objects[number].next, __ATOMIC_RELEASE);
}

/*
 * Lock held. Who has announced a region before this, and so may walk its objects, has ended. The
 * loads pair with the announcement across the barrier, as let_probes_pass() in invalidate.c;
 * acquire with the release that ends it.
 */
static void let_readers_pass(void)
{
	pd_heavy_barrier();
	for (struct pd_thread *t = pd_threads(); t; t = t->next) {
		uint32_t number = __atomic_load_n(&t->probing, __ATOMIC_SEQ_CST);

		if (number)
			pd_wait_for_reader(t, number);
	}
}

/* Lock held. No reader walks over it any more. Who holds it still is waited for with the record. */
static void retire(uint32_t number)
{
	struct pindown_object *object = &pd_objects[number];

	pd_account_object_gone(object->revoked);
	pd_account_objects(&pd_regions[object->region]);
	if (pd_object_is_held(number))
		set_state(object, PD_OBJECT_REVOKED);
	else
		pd_object_free(number);
}

/* Lock held. Nobody but its objects may have kept the region: then it is this thread's to unpin. */
static void take_region(uint32_t region, uint32_t *regions)
{
	if (!pd_region_take_kept(region))
		return;
	pd_details[region].victim = *regions;
	*regions = region;
}

/* Lock held. They have been destroyed. Returns regions to be unpinned. */
static uint32_t retire_all(uint32_t chain)
{
	uint32_t regions = 0;
	bool has_readers = false;

	for (uint32_t n = chain; n; n = pd_objects[n].victim) {
		if (is_abandoned(&pd_objects[n]))
			return 0;
		remove_from_region(n);
		has_readers |= pd_state_is_live(pd_briefs[pd_objects[n].region].state);
	}
	if (has_readers)
		let_readers_pass();
	for (uint32_t n = chain, next; n; n = next) {
		uint32_t region = pd_objects[n].region;

		next = pd_objects[n].victim;
		retire(n);
		take_region(region, &regions);
	}
	pd_wake_waiters();
	return regions;
}

/* Lock not held. Destroy what was taken, and unpin regions that nothing else has kept. */
static void finish(uint32_t chain)
{
	uint32_t regions;

	for (uint32_t n = chain; n; n = pd_objects[n].victim)
		if (!is_abandoned(&pd_objects[n]))
			destroy(n);
	pd_lock();
	regions = retire_all(chain);
	pd_unlock();
	for (uint32_t next; regions; regions = next) {
		next = pd_details[regions].victim;
		pd_unpin_kept(regions);
	}
}

void pd_object_let_go(uint32_t number)
{
	PD_UNCANCELLED;
	struct pindown_object *object = &pd_objects[number];
	uint32_t chain = 0;

	pd_lock();
	if (!pd_object_is_held(number)) {
		if (object->state == PD_OBJECT_KEPT)
			take(number, &chain);
		else if (object->state == PD_OBJECT_REVOKED)
			pd_object_free(number);
	}
	pd_unlock();
	if (chain)
		finish(chain);
}

/* ---- with the region ---------------------------------------------------------------------- */

/* The memory of a region that is only evicted, or flushed by request, lives on. */
static bool is_revoked_for(enum pindown_reason reason)
{
	return pd_config()->held == PD_HELD_REVOKE &&
	       (reason == PINDOWN_REASON_FREED || reason == PINDOWN_REASON_CONTEXT ||
		reason == PINDOWN_REASON_STALE);
}

/* KEPT on a region that was live until now: the object's owner has ended before. */
void pd_objects_unlink_some(uint32_t region, enum pindown_reason reason)
{
	for (uint32_t n = pd_objects_of[region]; n; n = pd_objects[n].next)
		if (pd_objects[n].state == PD_OBJECT_LIVE || pd_objects[n].state == PD_OBJECT_KEPT)
			begin_end(&pd_objects[n], reason);
}

static bool holds_region(uint32_t number, enum pindown_reason reason)
{
	switch ((enum pd_object_state)pd_objects[number].state) {
	case PD_OBJECT_LIVE:
		return pd_object_is_held(number);
	case PD_OBJECT_ENDING:
		return pd_object_is_held(number) && !is_revoked_for(reason);
	default: /* kept, or some thread is about to destroy it */
		return true;
	}
}

bool pd_objects_some_hold(uint32_t region, enum pindown_reason reason)
{
	for (uint32_t n = pd_objects_of[region]; n; n = pd_objects[n].next)
		if (holds_region(n, reason))
			return true;
	return false;
}

/* How many objects of each consumer are kept on a region. */
struct held {
	uint32_t all;
	struct {
		char name[PD_CONSUMER_NAME];
		uint32_t count;
	} of[PD_CONSUMERS];
};

static void count_held_by(uint32_t consumer, struct held *held)
{
	unsigned place = (consumer - 1) % PD_CONSUMERS;

	held->all++;
	if (held->of[place].count++ == 0)
		memcpy(held->of[place].name, pd_consumer(consumer)->name, PD_CONSUMER_NAME);
}

/*
 * Lock held. Idle objects, and those to be revoked, are this thread's to destroy; others are kept.
 */
static uint32_t settle(uint32_t region, struct held *held)
{
	enum pindown_reason reason = pd_details[region].reason;
	uint32_t chain = 0;

	for (uint32_t n = pd_objects_of[region]; n; n = pd_objects[n].next) {
		if (pd_objects[n].state != PD_OBJECT_ENDING)
			continue;
		if (!pd_object_is_held(n) || is_revoked_for(reason)) {
			take(n, &chain);
		} else {
			set_state(&pd_objects[n], PD_OBJECT_KEPT);
			count_held_by(pd_objects[n].consumer, held);
		}
	}
	pd_account_objects(&pd_regions[region]);
	return chain;
}

/* 0: nobody sees to it any more, as its thread has ended in a callback. */
static bool is_anothers(const struct pindown_object *object, uint32_t me)
{
	return object->worker && object->worker != me;
}

void pd_objects_forsake(void)
{
	uint32_t me = pd_my_tid();

	for (uint32_t n = 1; n <= pd_object_high_water(); n++) {
		struct pindown_object *object = &pd_objects[n];

		if (object->worker != me)
			continue;
		object->worker = 0;
		if (object->state == PD_OBJECT_DYING && !object->called)
			pd_consumer_leave(pd_consumer(object->consumer));
	}
}

/* Lock held. Is another thread destroying or making an object on the region? */
static bool others_are_at(uint32_t region)
{
	uint32_t me = pd_my_tid();

	if (pd_creations_on(region))
		return true;
	for (uint32_t n = pd_objects_of[region]; n; n = pd_objects[n].next)
		if (pd_objects[n].state == PD_OBJECT_DYING && is_anothers(&pd_objects[n], me))
			return true;
	return false;
}

static void wait_for_others(uint32_t region)
{
	static bool said;
	uint64_t deadline = pd_race_deadline();
	bool in_time = true;

	pd_lock();
	while (in_time && others_are_at(region))
		in_time = pd_wait_settled(deadline);
	pd_unlock();
	if (!in_time)
		pd_log_once(
			&said, PD_LOG_WARN,
			"a free has waited two seconds for another thread that makes or destroys "
			"a registration of the same memory and goes on; the memory may come back "
			"late");
}

static void tell_held(const struct pindown_region *region, const struct held *held)
{
	for (unsigned i = 0; i < PD_CONSUMERS; i++)
		if (held->of[i].count)
			pd_trace_held(region, held->of[i].name, held->of[i].count);
	if (pd_config()->held != PD_HELD_WARN ||
	    pd_details_of(region)->reason == PINDOWN_REASON_EVICTED ||
	    pd_details_of(region)->reason == PINDOWN_REASON_FLUSHED)
		return;
	pd_log(PD_LOG_WARN,
	       "%llu bytes of GPU memory at 0x%llx were freed%s while the program holds %u "
	       "registration%s of them: they stay pinned until it lets go",
	       (unsigned long long)(region->end - region->base), (unsigned long long)region->base,
	       pd_details_of(region)->reason == PINDOWN_REASON_ORDERED ? " in stream order" : "",
	       held->all, held->all == 1 ? "" : "s");
}

bool pd_objects_await_reuse(uint32_t region)
{
	return pd_config()->held == PD_HELD_REVOKE &&
	       pd_details[region].reason == PINDOWN_REASON_ORDERED && pd_first_object(region);
}

/* Lock held. */
static void take_kept_on(uint32_t region, uint32_t *chain)
{
	for (uint32_t n = pd_objects_of[region]; n; n = pd_objects[n].next)
		if (pd_objects[n].state == PD_OBJECT_KEPT)
			take(n, chain);
}

void pd_objects_end_reused(uint64_t begin, uint64_t end)
{
	uint32_t chain = 0;

	pd_lock();
	for (uint32_t number = pd_first_awaiting(), next; number; number = next) {
		next = pd_regions[number].newer;
		if (!pd_region_overlaps(&pd_regions[number], begin, end))
			continue;
		pd_stop_awaiting(number);
		take_kept_on(number, &chain);
	}
	pd_unlock();
	if (chain)
		finish(chain);
}

void pd_objects_end(uint32_t region)
{
	struct held held = {0};
	uint32_t chain;

	pd_lock();
	chain = settle(region, &held);
	pd_unlock();
	if (held.all)
		tell_held(&pd_regions[region], &held);
	if (chain)
		finish(chain);
	/* Relaxed: until it is let go, only this thread changes it. */
	if (__atomic_load_n(&pd_briefs[region].state, __ATOMIC_RELAXED) == PD_KEPT)
		wait_for_others(region);
}

/* ---- with the owner or the consumer ------------------------------------------------------- */

/* Which objects: all of a consumer, or of one owner of its. */
struct whose {
	uint32_t consumer;
	const uint64_t *owner;
};

static bool is_theirs(const struct pindown_object *object, const struct whose *whose)
{
	return object->consumer == whose->consumer &&
	       (!whose->owner || object->key.owner == *whose->owner);
}

/* Lock held. */
static uint32_t begin_ends(const struct whose *whose)
{
	uint32_t chain = 0;

	for (uint32_t n = 1; n <= pd_object_high_water(); n++) {
		struct pindown_object *object = &pd_objects[n];

		if (!is_theirs(object, whose))
			continue;
		if (object->state == PD_OBJECT_LIVE)
			begin_end(object, PINDOWN_REASON_OWNER);
		else if (object->state != PD_OBJECT_ENDING || object->worker != pd_my_tid())
			continue; /* (ours: we are in a subscriber's callback) */
		object->victim = chain;
		chain = n;
	}
	return chain;
}

/* What becomes of those that are held. */
enum held_ones {
	HELD_STAY,   /* they stay as they are */
	HELD_HIDDEN, /* they stay to the last detach, and no attach finds them any more */
	HELD_TAKEN,
};

/* Lock held. Returns those that are this thread's to destroy. */
static uint32_t settle_ends(uint32_t ending, enum held_ones held)
{
	uint32_t chain = 0;

	if (ending)
		let_readers_pass();
	for (uint32_t n = ending, next; n; n = next) {
		next = pd_objects[n].victim;
		if (held == HELD_TAKEN || !pd_object_is_held(n))
			take(n, &chain);
		else if (pd_state_is_live(pd_briefs[pd_objects[n].region].state))
			set_state(&pd_objects[n],
				  held == HELD_STAY ? PD_OBJECT_LIVE : PD_OBJECT_KEPT);
	}
	return chain;
}

/*
 * Lock held. The thread that is making one, or is about to destroy one; 0: there is none but this.
 */
static uint32_t other_at_theirs(const struct whose *whose)
{
	uint32_t me = pd_my_tid(), maker = pd_creations_of(whose->consumer, whose->owner);

	for (uint32_t n = 1; !maker && n <= pd_object_high_water(); n++) {
		uint32_t state = pd_objects[n].state;

		if ((state == PD_OBJECT_ENDING || state == PD_OBJECT_DYING) &&
		    is_theirs(&pd_objects[n], whose) && is_anothers(&pd_objects[n], me))
			return pd_objects[n].worker;
	}
	return maker;
}

/* Lock held. */
static int count_held(const struct whose *whose)
{
	int count = 0;

	for (uint32_t n = 1; n <= pd_object_high_water(); n++) {
		uint32_t state = pd_objects[n].state;

		if ((state == PD_OBJECT_LIVE || state == PD_OBJECT_KEPT ||
		     state == PD_OBJECT_ENDING) &&
		    is_theirs(&pd_objects[n], whose) && pd_object_is_held(n))
			count++;
	}
	return count;
}

/*
 * Lock held. Those that were kept for their holders, of whom the last has just let go: the detach
 * that comes for the lock finds that we were faster.
 */
static void take_dropped(const struct whose *whose, uint32_t *chain)
{
	for (uint32_t n = 1; n <= pd_object_high_water(); n++)
		if (pd_objects[n].state == PD_OBJECT_KEPT && is_theirs(&pd_objects[n], whose) &&
		    !pd_object_is_held(n))
			take(n, chain);
}

/* Lock held, and let go to destroy. */
static void end_theirs(const struct whose *whose, enum held_ones held)
{
	uint32_t chain = settle_ends(begin_ends(whose), held);

	take_dropped(whose, &chain);
	if (!chain)
		return;
	pd_unlock();
	finish(chain);
	pd_lock();
}

/*
 * May another thread be waiting for this one? It is in a callback, or in the middle of a free.
 * Nobody waits for any other thread, so that such a one can wait for as long as it takes.
 */
static bool is_awaited(void)
{
	const struct pd_thread *self = pd_self();

	return !self || self->guard_depth || pd_subscriber_runs_here() ||
	       pd_any_consumer_runs_here();
}

/*
 * Lock held, and let go while waiting. Until no other thread makes or destroys any of them; false:
 * this one and that may be waiting for each other. Of two or more that do, one looks last, and
 * finds that the next one waits. It looks twice, as a thread may have to wait for a moment.
 */
static bool wait_for_others_at_theirs(const struct whose *whose, enum held_ones held)
{
	const uint64_t look_ns = 10000000;
	bool careful = is_awaited();
	unsigned stuck = 0;
	uint32_t other;

	while ((other = other_at_theirs(whose)) != 0) {
		if (careful)
			stuck = pd_thread_waits(other) ? stuck + 1 : 0;
		if (stuck > 1)
			return false;
		pd_wait_settled(careful ? pd_deadline(look_ns) : UINT64_MAX);
		end_theirs(whose, held); /* what the other one has made */
	}
	return true;
}

static int end_owner(int consumer, uint64_t owner, enum held_ones held)
{
	PD_UNCANCELLED;
	const struct whose whose = {(uint32_t)consumer, &owner};
	int result = PINDOWN_ERR_INVALID;

	pd_lock();
	if (consumer < 1 || !pd_consumer(whose.consumer))
		goto out;
	end_theirs(&whose, held);
	result =
		wait_for_others_at_theirs(&whose, held) ? count_held(&whose) : PINDOWN_ERR_DEADLOCK;
out:
	pd_unlock();
	return result;
}

/*
 * The owner's number, a pointer mostly, may be another's as soon as it has ended. So what is held
 * is hidden from attach now and not after that end.
 */
PD_EXPORT int pindown_end_owner(int consumer, uint64_t owner)
{
	return end_owner(consumer, owner, HELD_HIDDEN);
}

void pd_objects_drop_idle(int consumer, uint64_t owner)
{
	end_owner(consumer, owner, HELD_STAY);
}

/* Lock held. One whose memory has ended already, and whose holder has not let go. */
static uint32_t take_kept(const struct whose *whose)
{
	uint32_t chain = 0;

	for (uint32_t n = 1; n <= pd_object_high_water(); n++)
		if (pd_objects[n].state == PD_OBJECT_KEPT && is_theirs(&pd_objects[n], whose)) {
			pd_objects[n].reason = PINDOWN_REASON_OWNER;
			take(n, &chain);
		}
	return chain;
}

/* Lock held. Callbacks that this thread is in the middle of, or is about to make: it can't wait. */
static uint32_t callbacks_of_mine(const struct pd_consumer *consumer, const struct whose *whose)
{
	uint32_t count = pd_consumer_runs_here(consumer);
	uint32_t me = pd_my_tid();

	for (uint32_t n = 1; n <= pd_object_high_water(); n++)
		if (pd_objects[n].state == PD_OBJECT_DYING && pd_objects[n].worker == me &&
		    !pd_objects[n].called && is_theirs(&pd_objects[n], whose))
			count++;
	return count;
}

PD_EXPORT int pindown_consumer_remove(int id)
{
	PD_UNCANCELLED;
	const struct whose whose = {(uint32_t)id, NULL};
	struct pd_consumer *consumer;
	int result = PINDOWN_ERR_INVALID;
	uint32_t chain;

	pd_lock();
	consumer = id < 1 ? NULL : pd_consumer(whose.consumer);
	if (!consumer || consumer->leaving)
		goto out;
	result = PINDOWN_OK;
	consumer->leaving = true; /* nothing new is made for it */
	pd_consumer_enter(consumer);
	while ((chain = settle_ends(begin_ends(&whose), HELD_TAKEN)) ||
	       (chain = take_kept(&whose)) || other_at_theirs(&whose) ||
	       consumer->running > 1 + callbacks_of_mine(consumer, &whose)) {
		if (!chain) {
			pd_wait_settled(pd_race_deadline());
			continue;
		}
		pd_unlock();
		finish(chain);
		pd_lock();
	}
	pd_consumer_leave(consumer);
out:
	pd_unlock();
	return result;
}
