/* SPDX-License-Identifier: MIT */
/* Ending consumer objects: with their region, their owner, or their consumer. */
#define _GNU_SOURCE
#include <string.h>

#include "cache/account.h"
#include "cache/awaiting.h"
#include "cache/base/barrier.h"
#include "cache/base/cancel.h"
#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/log.h"
#include "cache/base/thread.h"
#include "cache/base/visible.h"
#include "cache/kept.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/probes.h"
#include "cache/region.h"
#include "cache/subscribe.h"
#include "cache/trace/modules.h"
#include "cache/trace/stack.h"
#include "cache/trace/writer.h"

/*
 * First of store, barrier, load of the holds. Pairs with hold_object() in attach.c, which loads the
 * state and then holds within an announcement, and with pindown_detach(), which drops the hold and
 * then loads the state.
 */
static void set_state(struct pindown_object *object, enum pdn_object_state state)
{
	__atomic_store_n(&object->state, state, __ATOMIC_SEQ_CST);
}

/*
 * Does the object belong to the parent process? Then a callback that this thread was in has forked,
 * and this is the child. Relaxed: the child's only thread has stored the state itself.
 */
static bool is_abandoned(const struct pindown_object *object)
{
	return __atomic_load_n(&object->state, __ATOMIC_RELAXED) == PDN_OBJECT_ABANDONED;
}

/* Lock held. From here on each detach of it takes the lock. */
static void begin_end(struct pindown_object *object, enum pindown_reason reason)
{
	object->reason = (uint16_t)reason;
	object->worker = pdn_my_tid();
	set_state(object, PDN_OBJECT_ENDING);
}

/* Lock held. This thread will destroy the object after releasing the lock. */
static void claim(uint32_t number, uint32_t *chain)
{
	struct pindown_object *object = &pdn_objects[number];

	object->worker = pdn_my_tid();
	object->revoked = pdn_object_is_held(number);
	object->called = false;
	set_state(object, PDN_OBJECT_DYING);
	pdn_consumer_enter(pdn_consumer(object->consumer));
	object->victim = *chain;
	*chain = number;
}

/* Lock not held. The object is DYING, and this thread has claimed it. */
static void destroy(uint32_t number)
{
	struct pindown_object *object = &pdn_objects[number];
	struct pindown_object_end what = {
		.key = object->key,
		.data = object->data,
		.region = &pdn_regions[object->region],
		.reason = object->reason,
		.in_use = object->revoked,
	};
	struct pdn_object_event event = {
		.region = object->region,
		.number = number,
		.key = &what.key,
		.reason = object->reason,
		.flags = object->revoked ? PDN_TRACE_IN_USE : 0,
	};
	struct pdn_consumer *consumer;

	pdn_lock();
	consumer = pdn_consumer(object->consumer);
	object->called = true;
	pdn_unlock();
	if (what.in_use) /* its holder may be reading: pairs with pindown_object_data() */
		__atomic_store_n(&object->data, NULL, __ATOMIC_RELAXED);
	event.begin = pdn_tracing(PDN_EV_DEREGISTER) ? pdn_ticks() : 0;
	event.result = pdn_consumer_destroy(consumer, &what);
	pdn_trace_object(PDN_EV_DEREGISTER, consumer->name, &event);
	pdn_lock();
	pdn_consumer_leave(consumer);
	pdn_unlock();
}

/*
 * Lock held. Waits until every announcement of a region made before this has ended, and with it any
 * look at the region's objects. The loads pair with the announcement across the barrier, as in
 * pdn_probes_pass(); acquire pairs with the release that ends an announcement.
 */
static void let_readers_pass(void)
{
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t;

	pdn_heavy_barrier();
	while ((t = pdn_walk_next(&walk))) {
		uint32_t number = __atomic_load_n(&t->probing, __ATOMIC_SEQ_CST);

		if (number)
			pdn_wait_for_reader(t, number);
	}
}

/* Lock held. No reader walks over it any more. If it is still held, the record waits for that. */
static void retire(uint32_t number)
{
	struct pindown_object *object = &pdn_objects[number];
	struct pdn_consumer *consumer = pdn_consumer(object->consumer);

	pdn_account_object_gone(object->revoked);
	if (consumer)
		consumer->stats.objects_revoked += object->revoked;
	pdn_account_objects(&pdn_regions[object->region]);
	if (pdn_object_is_held(number))
		set_state(object, PDN_OBJECT_REVOKED);
	else
		pdn_object_free(number);
	if (consumer)
		pdn_consumer_may_go(consumer);
}

/* Lock held. If nothing but its objects has kept the region, this thread has to unpin it. */
static void claim_region(uint32_t region, uint32_t *regions)
{
	if (!pdn_region_take_kept(region))
		return;
	pdn_regions[region].victim = *regions;
	*regions = region;
}

/* Lock held. The objects have been destroyed. Returns a list of regions to be unpinned. */
static uint32_t retire_all(uint32_t chain)
{
	uint32_t regions = 0;
	bool has_readers = false;

	for (uint32_t n = chain; n; n = pdn_objects[n].victim) {
		if (is_abandoned(&pdn_objects[n]))
			return 0;
		pdn_object_unlink(n);
		has_readers |= pdn_state_is_live(pdn_briefs[pdn_objects[n].region].state);
	}
	if (has_readers)
		let_readers_pass();
	for (uint32_t n = chain, next; n; n = next) {
		uint32_t region = pdn_objects[n].region;

		next = pdn_objects[n].victim;
		retire(n);
		claim_region(region, &regions);
	}
	pdn_wake_waiters();
	return regions;
}

/* Lock not held. Destroy the claimed objects, and unpin the regions that nothing else keeps. */
static void destroy_claimed(uint32_t chain)
{
	uint32_t regions;

	for (uint32_t n = chain; n; n = pdn_objects[n].victim)
		if (!is_abandoned(&pdn_objects[n]))
			destroy(n);
	pdn_lock();
	regions = retire_all(chain);
	pdn_unlock();
	for (uint32_t next; regions; regions = next) {
		next = pdn_regions[regions].victim;
		pdn_unpin_kept(regions);
	}
}

void pdn_object_let_go(uint32_t number)
{
	PDN_UNCANCELLED;
	struct pindown_object *object = &pdn_objects[number];
	uint32_t chain = 0;

	pdn_lock();
	if (!pdn_object_is_held(number)) {
		if (object->state == PDN_OBJECT_KEPT)
			claim(number, &chain);
		else if (object->state == PDN_OBJECT_REVOKED)
			pdn_object_free(number);
	}
	pdn_unlock();
	if (chain)
		destroy_claimed(chain);
}

/* ---- with the region ---------------------------------------------------------------------- */

/* Only if their memory has ended: that of an evicted or flushed region is still allocated. */
static bool is_revoked_for(enum pindown_reason reason)
{
	return pdn_config()->held == PDN_HELD_REVOKE &&
	       (reason == PINDOWN_REASON_FREED || reason == PINDOWN_REASON_CONTEXT ||
		reason == PINDOWN_REASON_STALE);
}

/*
 * On a region that was live until now, an object is KEPT if its owner ended earlier. ENDING: this
 * thread is ending it already, and in a callback for that its memory ends.
 */
void pdn_objects_unlink_some(uint32_t region, enum pindown_reason reason)
{
	pdn_objects_serve_no_more(region);
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_objects[n].state == PDN_OBJECT_LIVE ||
		    pdn_objects[n].state == PDN_OBJECT_ENDING ||
		    pdn_objects[n].state == PDN_OBJECT_KEPT)
			begin_end(&pdn_objects[n], reason);
}

static bool holds_region(uint32_t number, enum pindown_reason reason)
{
	switch ((enum pdn_object_state)pdn_objects[number].state) {
	case PDN_OBJECT_LIVE:
		return pdn_object_is_held(number);
	case PDN_OBJECT_ENDING:
		return pdn_object_is_held(number) && !is_revoked_for(reason);
	default: /* kept, or a thread is about to destroy it */
		return true;
	}
}

bool pdn_objects_some_hold(uint32_t region, enum pindown_reason reason)
{
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (holds_region(n, reason))
			return true;
	return false;
}

/* How many objects of each consumer are kept on a region. */
struct held {
	uint32_t all;
	struct {
		char name[PDN_CONSUMER_NAME];
		uint32_t count;
	} of[PDN_CONSUMERS];
};

static void count_held_by(uint32_t consumer, struct held *held)
{
	unsigned place = (consumer - 1) % PDN_CONSUMERS;

	held->all++;
	if (held->of[place].count++ == 0)
		memcpy(held->of[place].name, pdn_consumer(consumer)->name, PDN_CONSUMER_NAME);
}

/* Its consumer may be leaving, and have given up waiting for this thread. */
static bool must_go(const struct pindown_object *object, enum pindown_reason reason)
{
	return is_revoked_for(reason) || pdn_consumer(object->consumer)->leaving;
}

/*
 * Lock held. This thread claims idle objects, and those to be revoked; the others are kept. Returns
 * the claimed ones.
 */
static uint32_t claim_or_keep(uint32_t region, struct held *held)
{
	enum pindown_reason reason = pdn_regions[region].reason;
	uint32_t chain = 0;

	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next) {
		if (pdn_objects[n].state != PDN_OBJECT_ENDING)
			continue;
		if (!pdn_object_is_held(n) || must_go(&pdn_objects[n], reason)) {
			claim(n, &chain);
		} else {
			set_state(&pdn_objects[n], PDN_OBJECT_KEPT);
			count_held_by(pdn_objects[n].consumer, held);
		}
	}
	pdn_account_objects(&pdn_regions[region]);
	return chain;
}

/* A worker of 0 means that the object's thread has ended in a callback. */
static bool is_another_threads(const struct pindown_object *object, uint32_t me)
{
	return object->worker && object->worker != me;
}

void pdn_objects_drop_own(void)
{
	uint32_t me = pdn_my_tid();

	for (uint32_t n = 1; n <= pdn_object_high_water(); n++) {
		struct pindown_object *object = &pdn_objects[n];

		if (object->worker != me)
			continue;
		object->worker = 0;
		if (object->state == PDN_OBJECT_DYING && !object->called)
			pdn_consumer_leave(pdn_consumer(object->consumer));
		else if (pdn_consumer(object->consumer))
			pdn_consumer_may_go(pdn_consumer(object->consumer));
	}
}

/* Lock held. Is another thread destroying or making an object on the region? */
static bool others_work_on(uint32_t region)
{
	uint32_t me = pdn_my_tid();

	if (pdn_creations_on(region))
		return true;
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_objects[n].state == PDN_OBJECT_DYING &&
		    is_another_threads(&pdn_objects[n], me))
			return true;
	return false;
}

static void wait_for_others_on(uint32_t region)
{
	static bool said;
	uint64_t deadline = pdn_race_deadline();
	bool in_time = true;

	pdn_lock();
	while (in_time && others_work_on(region))
		in_time = pdn_wait_pending(deadline);
	pdn_unlock();
	if (!in_time)
		pdn_log_once(&said, PDN_LOG_WARN, PDN_WAITED_FOR, "registration");
}

/* " by CODE", or nothing if it is not known. */
static void name_code(uint64_t pc, char *text, size_t capacity)
{
	memcpy(text, " by ", 5);
	if (!pdn_module_text(pc, text + 4, capacity - 4))
		text[0] = '\0';
}

static void warn_of_held(const struct pindown_region *region, const struct held *held,
			 uint64_t made_at)
{
	char made[160], freed[160];
	uint64_t freed_at = 0;

	if (!pdn_logging(PDN_LOG_WARN))
		return;
	pdn_stack_callers(&freed_at, 1);
	name_code(made_at, made, sizeof(made));
	name_code(freed_at, freed, sizeof(freed));
	pdn_log(PDN_LOG_WARN,
		"%llu bytes of GPU memory at 0x%llx were freed%s%s while the program holds %u "
		"registration%s of them%s%s: they stay pinned until it deregisters them",
		(unsigned long long)(region->end - region->base), (unsigned long long)region->base,
		region->reason == PINDOWN_REASON_ORDERED ? " in stream order" : "", freed,
		held->all, held->all == 1 ? "" : "s",
		!made[0]	 ? ""
		: held->all == 1 ? ", made"
				 : ", one made",
		made);
}

static void report_held(const struct pindown_region *region, const struct held *held,
			uint64_t made_at)
{
	enum pindown_reason reason = region->reason;

	/* Its memory lives on: see pdn_end_replaced(). */
	if (reason == PINDOWN_REASON_EVICTED)
		return;
	for (unsigned i = 0; i < PDN_CONSUMERS; i++)
		if (held->of[i].count)
			pdn_trace_held(region, held->of[i].name, held->of[i].count);
	if (pdn_config()->held != PDN_HELD_WARN || reason == PINDOWN_REASON_FLUSHED)
		return;
	warn_of_held(region, held, made_at);
}

/*
 * Lock held. Is any thread destroying an object of the region, or making one anywhere? The end of
 * its memory waits for both (wait_for_others_on()).
 */
static bool is_worked_on(uint32_t region)
{
	uint32_t n = pdn_objects_of[region];

	while (n && pdn_objects[n].state != PDN_OBJECT_DYING)
		n = pdn_objects[n].next;
	return n || pdn_creations_any();
}

bool pdn_objects_await_reuse(uint32_t region)
{
	bool revoke = pdn_config()->held == PDN_HELD_REVOKE;

	if (!pdn_objects_any(region))
		return false;
	if (pdn_regions[region].reason == PINDOWN_REASON_ORDERED)
		return revoke;
	return pdn_region_is_replaced(region) &&
	       (revoke || is_worked_on(region) || pdn_config()->held == PDN_HELD_WARN ||
		pdn_tracing(PDN_EV_HELD) || pdn_tracing(PDN_EV_HOLDER));
}

/* Lock held. */
static void claim_kept_on(uint32_t region, uint32_t *chain)
{
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_objects[n].state == PDN_OBJECT_KEPT)
			claim(n, chain);
}

void pdn_objects_end_reused(uint64_t begin, uint64_t end)
{
	uint32_t chain = 0;

	pdn_lock();
	for (uint32_t number = pdn_first_awaiting(), next; number; number = next) {
		next = pdn_regions[number].newer;
		if (!pdn_region_overlaps(&pdn_regions[number], begin, end))
			continue;
		pdn_stop_awaiting(number);
		claim_kept_on(number, &chain);
	}
	pdn_unlock();
	if (chain)
		destroy_claimed(chain);
}

void pdn_objects_end(uint32_t region)
{
	enum pindown_reason reason = pdn_regions[region].reason; /* set by this thread */
	struct held held = {0};
	uint64_t made_at = 0;
	uint32_t chain;

	if (pdn_first_object(region))
		made_at = pdn_objects_name_holders(region, reason, is_revoked_for(reason));
	pdn_lock();
	chain = claim_or_keep(region, &held);
	pdn_unlock();
	if (held.all)
		report_held(&pdn_regions[region], &held, made_at);
	if (chain)
		destroy_claimed(chain);
	/*
	 * A get that ends the region need not wait: its memory has ended, or lives on. Relaxed:
	 * only this thread changes the state before the region's end is complete.
	 */
	if (reason != PINDOWN_REASON_STALE && reason != PINDOWN_REASON_EVICTED &&
	    __atomic_load_n(&pdn_briefs[region].state, __ATOMIC_RELAXED) == PDN_KEPT)
		wait_for_others_on(region);
}

/* ---- with the owner or the consumer ------------------------------------------------------- */

/* Lock held. */
static uint32_t begin_ends(const struct pdn_selection *selection)
{
	uint32_t chain = 0;

	for (uint32_t n = pdn_first_selected(selection); n; n = pdn_next_selected(selection, n)) {
		struct pindown_object *object = &pdn_objects[n];

		if (object->state == PDN_OBJECT_LIVE) {
			begin_end(object, PINDOWN_REASON_OWNER);
			pdn_object_serve_no_more(n);
		} else if (object->state != PDN_OBJECT_ENDING || object->worker != pdn_my_tid()) {
			continue; /* (if this thread is ending it: in a subscriber's callback) */
		}
		object->victim = chain;
		chain = n;
	}
	return chain;
}

/* The fate of held objects. */
enum held_ones {
	HELD_STAY,   /* they stay as they are */
	HELD_HIDDEN, /* they stay up to the last detach, but no attach finds them any more */
	HELD_REVOKED,
};

/* Lock held. The region lives on. */
static void leave_held(uint32_t number, enum held_ones held)
{
	set_state(&pdn_objects[number], held == HELD_STAY ? PDN_OBJECT_LIVE : PDN_OBJECT_KEPT);
	if (held == HELD_STAY)
		pdn_object_serve(number);
	else
		pdn_object_hide(number);
}

/* Lock held. Returns the objects that this thread has claimed. */
static uint32_t claim_or_restore(uint32_t ending, enum held_ones held)
{
	uint32_t chain = 0;

	if (ending)
		let_readers_pass();
	for (uint32_t n = ending, next; n; n = next) {
		next = pdn_objects[n].victim;
		if (held == HELD_REVOKED || !pdn_object_is_held(n))
			claim(n, &chain);
		else if (pdn_state_is_live(pdn_briefs[pdn_objects[n].region].state))
			leave_held(n, held);
	}
	return chain;
}

/*
 * Lock held. The tid of another thread that is making one of the objects, or is about to destroy
 * one; 0: there is none.
 */
static uint32_t other_worker(const struct pdn_selection *selection)
{
	uint32_t me = pdn_my_tid(), maker = pdn_creations_of(selection->consumer, selection->owner);

	for (uint32_t n = pdn_first_selected(selection); n && !maker;
	     n = pdn_next_selected(selection, n)) {
		uint32_t state = pdn_objects[n].state;

		if ((state == PDN_OBJECT_ENDING || state == PDN_OBJECT_DYING) &&
		    is_another_threads(&pdn_objects[n], me))
			return pdn_objects[n].worker;
	}
	return maker;
}

/* Lock held. */
static int count_held(const struct pdn_selection *selection)
{
	int count = 0;

	for (uint32_t n = pdn_first_selected(selection); n; n = pdn_next_selected(selection, n)) {
		uint32_t state = pdn_objects[n].state;

		if ((state == PDN_OBJECT_LIVE || state == PDN_OBJECT_KEPT ||
		     state == PDN_OBJECT_ENDING) &&
		    pdn_object_is_held(n))
			count++;
	}
	return count;
}

/*
 * Lock held. Claims kept objects whose last hold has just been dropped: that detach is waiting for
 * the lock, and will find them claimed.
 */
static void claim_released(const struct pdn_selection *selection, uint32_t *chain)
{
	for (uint32_t n = pdn_first_selected(selection); n; n = pdn_next_selected(selection, n))
		if (pdn_objects[n].state == PDN_OBJECT_KEPT && !pdn_object_is_held(n))
			claim(n, chain);
}

/* Lock held, and dropped while destroying. */
static void end_selected(const struct pdn_selection *selection, enum held_ones held)
{
	uint32_t chain = claim_or_restore(begin_ends(selection), held);

	claim_released(selection, &chain);
	if (!chain)
		return;
	pdn_unlock();
	destroy_claimed(chain);
	pdn_lock();
}

/*
 * Can another thread be waiting for this one? Only if this one is in a callback or in the middle of
 * a free. No thread waits for any other, so any other can wait as long as it takes.
 */
static bool may_be_awaited(void)
{
	const struct pdn_thread *self = pdn_self();

	return !self || self->guard_depth > 0 || pdn_subscriber_runs_here() ||
	       pdn_any_consumer_runs_here();
}

/*
 * Lock held, and dropped while waiting. Waits until no other thread makes or destroys any of the
 * objects; false: this thread and another may be waiting for each other. Of the threads in such a
 * circle the last one to look finds that the next one waits. It looks twice, because a thread may
 * also wait for just a moment.
 */
static bool wait_for_other_workers(const struct pdn_selection *selection, enum held_ones held)
{
	const uint64_t look_ns = 10000000;
	bool careful = may_be_awaited();
	unsigned stuck = 0;
	uint32_t other;

	while ((other = other_worker(selection)) != 0) {
		if (careful)
			stuck = pdn_thread_waits(other) ? stuck + 1 : 0;
		if (stuck > 1)
			return false;
		pdn_wait_pending(careful ? pdn_deadline(look_ns) : UINT64_MAX);
		end_selected(selection, held); /* objects that the other thread has made */
	}
	return true;
}

static int end_owner(int consumer, uint64_t owner, enum held_ones held)
{
	PDN_UNCANCELLED;
	const struct pdn_selection selection = {(uint32_t)consumer, &owner};
	int result = PINDOWN_ERR_INVALID;

	pdn_lock();
	if (consumer < 1 || !pdn_consumer(selection.consumer))
		goto out;
	end_selected(&selection, held);
	result = wait_for_other_workers(&selection, held) ? count_held(&selection)
							  : PINDOWN_ERR_DEADLOCK;
out:
	pdn_unlock();
	return result;
}

/*
 * The owner's number is mostly a pointer, and can belong to another owner as soon as this one has
 * ended. So held objects are hidden from attach now, not after that end.
 */
PDN_EXPORT int pindown_end_owner(int consumer, uint64_t owner)
{
	return end_owner(consumer, owner, HELD_HIDDEN);
}

void pdn_objects_drop_idle(int consumer, uint64_t owner)
{
	end_owner(consumer, owner, HELD_STAY);
}

/* Lock held. Claims objects that are still held although their memory or owner has ended. */
static uint32_t claim_kept(const struct pdn_selection *selection)
{
	uint32_t chain = 0;

	for (uint32_t n = pdn_first_selected(selection); n; n = pdn_next_selected(selection, n))
		if (pdn_objects[n].state == PDN_OBJECT_KEPT) {
			pdn_objects[n].reason = PINDOWN_REASON_OWNER;
			claim(n, &chain);
		}
	return chain;
}

/* Lock held. Callbacks that this thread is in or is about to make: it can't wait for them. */
static uint32_t callbacks_of_this_thread(const struct pdn_consumer *consumer,
					 const struct pdn_selection *selection)
{
	uint32_t count = pdn_consumer_runs_here(consumer);
	uint32_t me = pdn_my_tid();

	for (uint32_t n = pdn_first_selected(selection); n; n = pdn_next_selected(selection, n))
		if (pdn_objects[n].state == PDN_OBJECT_DYING && pdn_objects[n].worker == me &&
		    !pdn_objects[n].called)
			count++;
	return count;
}

/* Lock held. Nobody ends an object whose thread has quit. */
static bool has_objects(uint32_t consumer)
{
	const struct pdn_selection all = {consumer, NULL};

	for (uint32_t n = pdn_first_selected(&all); n; n = pdn_next_selected(&all, n)) {
		const struct pindown_object *object = &pdn_objects[n];

		if (object->state == PDN_OBJECT_KEPT ||
		    (object->worker &&
		     (object->state == PDN_OBJECT_ENDING || object->state == PDN_OBJECT_DYING)))
			return true;
	}
	return false;
}

PDN_EXPORT int pindown_consumer_remove(int id)
{
	PDN_UNCANCELLED;
	const struct pdn_selection selection = {(uint32_t)id, NULL};
	uint64_t deadline = pdn_race_deadline();
	struct pdn_consumer *consumer;
	int result = PINDOWN_ERR_INVALID;
	uint32_t chain;

	pdn_lock();
	consumer = id < 1 ? NULL : pdn_consumer(selection.consumer);
	if (!consumer || consumer->leaving)
		goto out;
	result = PINDOWN_OK;
	consumer->has_objects = has_objects;
	consumer->leaving = true; /* from here on attach makes no object for it */
	pdn_consumer_enter(consumer);
	while ((chain = claim_or_restore(begin_ends(&selection), HELD_REVOKED)) ||
	       (chain = claim_kept(&selection)) || other_worker(&selection) ||
	       consumer->running > 1 + callbacks_of_this_thread(consumer, &selection)) {
		if (!chain && !pdn_wait_pending(deadline)) {
			deadline = pdn_race_deadline();
			if (may_be_awaited()) {
				result = PINDOWN_ERR_DEADLOCK;
				break;
			}
		}
		if (!chain)
			continue;
		pdn_unlock();
		destroy_claimed(chain);
		pdn_lock();
	}
	pdn_consumer_leave(consumer);
out:
	pdn_unlock();
	return result;
}
