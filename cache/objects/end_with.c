/* SPDX-License-Identifier: MIT */
/* Objects end: with their region, with their owner, or with their consumer. */
#define _GNU_SOURCE
#include "cache/base/thread/cancel.h"
#include "cache/base/environment/config.h"
#include "cache/base/thread/lock.h"
#include "cache/base/thread/thread.h"
#include "cache/base/visible.h"
#include "cache/end/kept.h"
#include "cache/hit/region.h"
#include "cache/objects/end.h"
#include "cache/objects/end_with.h"
#include "cache/objects/held.h"
#include "cache/objects/lookup.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/retire/retired.h"
#include "cache/show/account.h"

/*
 * Lock held. The tid of another thread that is making one of the objects, or is about to destroy
 * one; 0: there is none.
 */
static uint32_t other_worker(const struct pdn_selection *selection)
{
	for (uint32_t n = 0; (n = pdn_next_selected(selection, n));)
		if (pdn_object_other_worker(&pdn_objects[n]))
			return pdn_objects[n].worker;
	return 0;
}

/* Lock held, and dropped while destroying. */
static void destroy_unlocked(uint32_t chain)
{
	if (!chain)
		return;
	pdn_unlock();
	pdn_objects_destroy_claimed(chain);
	pdn_lock();
}

/* ---- with their region ---------------------------------------------------------------------- */

/* Does all of the region's memory end with the scope? */
static bool is_whole(uint32_t region, const struct pdn_scope *scope)
{
	return !scope || scope->kind != PDN_GUARD_RANGE ||
	       (scope->begin <= pdn_regions[region].base && pdn_regions[region].end <= scope->end);
}

/* An object that a hit takes just now counts or not: the program frees and registers at once. */
static bool is_held_and_may_retire(const struct pindown_object *object)
{
	return object->may_retire && pdn_object_is_held(pdn_object_number(object));
}

static bool names_holders(const struct pindown_object *object)
{
	return pdn_consumer(object->consumer)->holders;
}

/*
 * Lock held. Where a part ends, it is asked first who holds the objects, if their consumers know
 * (pdn_objects_ask_holders()); else they end with any part.
 */
static bool ends_held(uint32_t region, enum pindown_reason reason, const struct pdn_scope *scope)
{
	switch (pdn_config()->held) {
	case PDN_HELD_REVOKE:
		return pdn_reason_ends_memory(reason) &&
		       (is_whole(region, scope) || !pdn_objects_any(region, names_holders));
	case PDN_HELD_RETIRE:
		return scope && scope->retires && pdn_objects_any(region, is_held_and_may_retire) &&
		       pdn_region_may_retire(region, scope->begin) &&
		       pdn_retire_begin(region) == PDN_RETIRES_BEFORE;
	default:
		return false;
	}
}

/*
 * On a region that was live until now, an object is KEPT if its owner ended earlier. ENDING: this
 * thread is ending it already, and in a callback for that its memory ends.
 */
void pdn_objects_unlink(uint32_t region, enum pindown_reason reason, const struct pdn_scope *scope)
{
	unsigned flags = pdn_regions[region].flags & ~PDN_REGION_ENDS_HELD;

	if (!pdn_first_object(region))
		return;
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_objects[n].state == PDN_OBJECT_LIVE ||
		    pdn_objects[n].state == PDN_OBJECT_ENDING ||
		    pdn_objects[n].state == PDN_OBJECT_KEPT) {
			pdn_object_begin_end(&pdn_objects[n], reason);
			pdn_objects[n].is_touched = true;
			pdn_objects[n].outlives = false;
		}
	if (ends_held(region, reason, scope))
		flags |= PDN_REGION_ENDS_HELD;
	pdn_region_set_flags(&pdn_regions[region], flags);
}

/* Its consumer may be leaving, and have given up waiting for this thread. */
static bool must_go(const struct pindown_object *object, const struct pdn_scope *part)
{
	return pdn_object_ends_held(object) || pdn_object_is_revoked_in_part(object, part) ||
	       pdn_consumer(object->consumer)->leaving;
}

/*
 * Lock held. This thread claims idle objects, and those to be revoked; the others are kept. Returns
 * the claimed ones.
 */
static uint32_t claim_or_keep(uint32_t region, const struct pdn_scope *part,
			      struct pdn_held_objects *held)
{
	enum pindown_reason reason = pdn_regions[region].reason;
	bool any_held = false;
	uint32_t chain = 0;

	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next) {
		bool is_held = pdn_object_is_held(n);

		if (pdn_objects[n].state != PDN_OBJECT_ENDING)
			continue;
		any_held |= is_held && pdn_objects[n].may_retire;
		if (!is_held || must_go(&pdn_objects[n], part)) {
			pdn_object_claim(n, &chain);
			continue;
		}
		pdn_object_set_state(&pdn_objects[n], PDN_OBJECT_KEPT);
		if (!pdn_objects[n].is_touched || pdn_objects[n].was_counted)
			continue;
		pdn_objects[n].was_counted =
			reason != PINDOWN_REASON_EVICTED && reason != PINDOWN_REASON_FLUSHED;
		pdn_held_count(pdn_objects[n].consumer, held);
		held->outlast |= !pdn_objects[n].may_retire;
	}
	if (!any_held)
		pdn_retire_cancel(region);
	pdn_account_objects(&pdn_regions[region]);
	return chain;
}

static void wait_for_others_on(uint32_t region)
{
	const struct pdn_selection selection = {.region = region};
	uint32_t other;

	do {
		uint64_t deadline = pdn_race_deadline();

		pdn_lock();
		while ((other = other_worker(&selection)) && pdn_wait_for_work(deadline))
			;
		pdn_unlock();
	} while (other && pdn_free_waits_on(other, "registration"));
}

/* Lock held. */
static void claim_kept(uint32_t region, bool retired, uint32_t *chain)
{
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_objects[n].state == PDN_OBJECT_KEPT &&
		    (!retired || pdn_objects[n].may_retire))
			pdn_object_claim(n, chain);
}

/* Lock held, and dropped. */
static void end_retired(uint32_t region)
{
	uint32_t chain = 0;

	claim_kept(region, true, &chain);
	destroy_unlocked(chain);
}

PDN_NOTIFIED(address_retired, end_retired);

void pdn_objects_end_reused(uint64_t begin, uint64_t end)
{
	uint32_t chain = 0;

	pdn_lock();
	for (uint32_t number = pdn_first_awaiting(), next; number; number = next) {
		next = pdn_regions[number].newer;
		if (pdn_regions[number].reason != PINDOWN_REASON_ORDERED ||
		    !pdn_region_overlaps(&pdn_regions[number], begin, end))
			continue;
		pdn_stop_awaiting(number);
		claim_kept(number, false, &chain);
	}
	pdn_unlock();
	pdn_objects_destroy_claimed(chain);
}

void pdn_objects_end(uint32_t region, const struct pdn_scope *scope)
{
	enum pindown_reason reason = pdn_regions[region].reason; /* set by this thread */
	bool whole = reason == PINDOWN_REASON_FLUSHED || is_whole(region, scope);
	const struct pdn_scope *part = whole ? NULL : scope;
	struct pdn_held_objects held = {0};
	uint64_t made_at = 0;
	uint32_t chain;

	if (pdn_first_object(region)) {
		if (part)
			pdn_objects_ask_holders(region, part);
		made_at = pdn_objects_name_holders(region, reason, part);
	}
	pdn_lock();
	chain = claim_or_keep(region, part, &held);
	pdn_unlock();
	if (held.all)
		pdn_held_report(&pdn_regions[region], &held, made_at);
	pdn_objects_destroy_claimed(chain);
	/*
	 * A get that ends the region need not wait: its memory has ended, or lives on. Relaxed:
	 * only this thread changes the state before the region's end is complete.
	 */
	if (reason != PINDOWN_REASON_STALE && reason != PINDOWN_REASON_EVICTED &&
	    __atomic_load_n(&pdn_briefs[region].state, __ATOMIC_RELAXED) == PDN_KEPT)
		wait_for_others_on(region);
}

/* ---- with their owner, or their consumer ---------------------------------------------------- */

/* The fate of held objects. */
enum held_ones {
	HELD_STAY,   /* they stay as they are */
	HELD_HIDDEN, /* they stay up to the last detach, but no attach finds them any more */
	HELD_REVOKED,
};

/* Lock held. The region lives on. */
static void leave_held(uint32_t number, enum held_ones held)
{
	pdn_object_set_state(&pdn_objects[number],
			     held == HELD_STAY ? PDN_OBJECT_LIVE : PDN_OBJECT_KEPT);
	if (held == HELD_STAY)
		pdn_object_serve(number);
	else
		pdn_object_hide(number);
}

/*
 * Lock held. Returns the objects that this thread has claimed: those that were LIVE, or that it is
 * ending already, as in a subscriber's callback; also KEPT ones whose last hold has just been
 * dropped: that detach is waiting for the lock, and will find them claimed.
 */
static uint32_t claim(const struct pdn_selection *selection, enum held_ones held)
{
	uint32_t chain = 0;
	bool any = false;

	for (uint32_t n = 0; (n = pdn_next_selected(selection, n));)
		if (pdn_objects[n].state == PDN_OBJECT_LIVE) {
			pdn_object_begin_end(&pdn_objects[n], PINDOWN_REASON_OWNER);
			any = true;
		}
	if (any)
		pdn_objects_let_readers_pass();
	for (uint32_t n = 0; (n = pdn_next_selected(selection, n));) {
		struct pindown_object *object = &pdn_objects[n];
		bool kept = object->state == PDN_OBJECT_KEPT;

		if (!kept && (object->state != PDN_OBJECT_ENDING || object->worker != pdn_my_tid()))
			continue;
		if (kept && held == HELD_REVOKED)
			object->reason = PINDOWN_REASON_OWNER;
		if (held == HELD_REVOKED || !pdn_object_is_held(n))
			pdn_object_claim(n, &chain);
		else if (!kept && pdn_state_is_linked(pdn_state_of(object->region)))
			leave_held(n, held);
	}
	return chain;
}

/* Lock held. */
static int count_held(const struct pdn_selection *selection)
{
	int count = 0;

	for (uint32_t n = 0; (n = pdn_next_selected(selection, n));)
		count += pdn_objects[n].state != PDN_OBJECT_DYING && pdn_object_is_held(n);
	return count;
}

/*
 * Ends them, and waits until no other thread makes or destroys any, unless this thread and another
 * may be waiting for each other. Of the threads in such a circle the last one to look finds that
 * the next one waits. It looks twice, because a thread may also wait for just a moment. A thread
 * that nobody can be waiting for waits as long as it takes.
 */
static int end_owner(int consumer, uint64_t owner, enum held_ones held)
{
	PDN_UNCANCELLED;
	const struct pdn_selection selection = {.consumer = (uint32_t)consumer, .owner = &owner};
	const uint64_t look_ns = 10000000;
	bool careful = pdn_may_be_awaited();
	int result = PINDOWN_ERR_INVALID;
	unsigned stuck = 0;
	uint32_t other;

	pdn_lock();
	if (!pdn_client(PDN_CONSUMER, consumer))
		goto out;
	while (true) {
		destroy_unlocked(claim(&selection, held));
		other = other_worker(&selection);
		stuck = careful && other && pdn_thread_waits(other) ? stuck + 1 : 0;
		if (!other || stuck > 1)
			break;
		pdn_wait_for_work(careful ? pdn_deadline(look_ns) : UINT64_MAX);
	}
	result = other ? PINDOWN_ERR_DEADLOCK : count_held(&selection);
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

void pdn_drop_idle_of(int consumer, uint64_t owner)
{
	end_owner(consumer, owner, HELD_STAY);
}

/* Nobody ends an object whose thread has quit. */
static bool has_objects(uint32_t consumer)
{
	const struct pdn_selection all = {.consumer = consumer};

	for (uint32_t n = 0; (n = pdn_next_selected(&all, n));)
		if (pdn_objects[n].state == PDN_OBJECT_KEPT || pdn_object_worker(&pdn_objects[n]))
			return true;
	return false;
}

PDN_EXPORT int pindown_consumer_remove(int id)
{
	PDN_UNCANCELLED;
	const struct pdn_selection selection = {.consumer = (uint32_t)id};
	uint64_t deadline = pdn_race_deadline();
	struct pdn_client *consumer;
	int result = PINDOWN_ERR_INVALID;
	uint32_t chain;

	pdn_lock();
	consumer = pdn_client(PDN_CONSUMER, id);
	if (!consumer || consumer->leaving)
		goto out;
	result = PINDOWN_OK;
	consumer->has_objects = has_objects;
	consumer->leaving = true; /* from here on attach makes no object for it */
	consumer->running++;	  /* keeps the record meanwhile */
	while ((chain = claim(&selection, HELD_REVOKED)) || other_worker(&selection) ||
	       consumer->running > 1 + pdn_client_runs_here(consumer)) {
		if (!chain && !pdn_client_wait(&deadline)) {
			result = PINDOWN_ERR_DEADLOCK;
			break;
		}
		destroy_unlocked(chain);
	}
	pdn_client_leave(consumer);
out:
	pdn_unlock();
	return result;
}
