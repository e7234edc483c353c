/* SPDX-License-Identifier: MIT */
/* Ending consumer objects with their owner or their consumer. */
#define _GNU_SOURCE
#include <stddef.h>

#include "cache/base/cancel.h"
#include "cache/base/lock.h"
#include "cache/base/thread.h"
#include "cache/base/visible.h"
#include "cache/objects/end.h"
#include "cache/objects/lookup.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"

/* Lock held. */
static uint32_t begin_ends(const struct pdn_selection *selection)
{
	uint32_t chain = 0;

	for (uint32_t n = 0; (n = pdn_next_selected(selection, n));) {
		struct pindown_object *object = &pdn_objects[n];

		if (object->state == PDN_OBJECT_LIVE) {
			pdn_object_begin_end(object, PINDOWN_REASON_OWNER);
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
	pdn_object_set_state(&pdn_objects[number],
			     held == HELD_STAY ? PDN_OBJECT_LIVE : PDN_OBJECT_KEPT);
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
		pdn_objects_let_readers_pass();
	for (uint32_t n = ending, next; n; n = next) {
		next = pdn_objects[n].victim;
		if (held == HELD_REVOKED || !pdn_object_is_held(n))
			pdn_object_claim(n, &chain);
		else if (pdn_state_is_linked(pdn_state_of(pdn_objects[n].region)))
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
	for (uint32_t n = 0; (n = pdn_next_selected(selection, n));)
		if (pdn_object_other_worker(&pdn_objects[n]))
			return pdn_objects[n].worker;
	return 0;
}

/* Lock held. */
static int count_held(const struct pdn_selection *selection)
{
	int count = 0;

	for (uint32_t n = 0; (n = pdn_next_selected(selection, n));) {
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
	for (uint32_t n = 0; (n = pdn_next_selected(selection, n));)
		if (pdn_objects[n].state == PDN_OBJECT_KEPT && !pdn_object_is_held(n))
			pdn_object_claim(n, chain);
}

/* Lock held, and dropped while destroying. */
static void end_selected(const struct pdn_selection *selection, enum held_ones held)
{
	uint32_t chain = claim_or_restore(begin_ends(selection), held);

	claim_released(selection, &chain);
	if (!chain)
		return;
	pdn_unlock();
	pdn_objects_destroy_claimed(chain);
	pdn_lock();
}

/*
 * Lock held, and dropped while waiting. Waits until no other thread makes or destroys any of the
 * objects; false: this thread and another may be waiting for each other. Of the threads in such a
 * circle the last one to look finds that the next one waits. It looks twice, because a thread may
 * also wait for just a moment. A thread that nobody can be waiting for waits as long as it takes.
 */
static bool wait_for_other_workers(const struct pdn_selection *selection, enum held_ones held)
{
	const uint64_t look_ns = 10000000;
	bool careful = pdn_may_be_awaited();
	unsigned stuck = 0;
	uint32_t other;

	while ((other = other_worker(selection)) != 0) {
		if (careful)
			stuck = pdn_thread_waits(other) ? stuck + 1 : 0;
		if (stuck > 1)
			return false;
		pdn_wait_busy(careful ? pdn_deadline(look_ns) : UINT64_MAX);
		end_selected(selection, held); /* objects that the other thread has made */
	}
	return true;
}

static int end_owner(int consumer, uint64_t owner, enum held_ones held)
{
	PDN_UNCANCELLED;
	const struct pdn_selection selection = {.consumer = (uint32_t)consumer, .owner = &owner};
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

	for (uint32_t n = 0; (n = pdn_next_selected(selection, n));)
		if (pdn_objects[n].state == PDN_OBJECT_KEPT) {
			pdn_objects[n].reason = PINDOWN_REASON_OWNER;
			pdn_object_claim(n, &chain);
		}
	return chain;
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
	while ((chain = claim_or_restore(begin_ends(&selection), HELD_REVOKED)) ||
	       (chain = claim_kept(&selection)) || other_worker(&selection) ||
	       consumer->running > 1 + pdn_client_runs_here(consumer)) {
		if (!chain && !pdn_client_wait(&deadline)) {
			result = PINDOWN_ERR_DEADLOCK;
			break;
		}
		if (!chain)
			continue;
		pdn_unlock();
		pdn_objects_destroy_claimed(chain);
		pdn_lock();
	}
	pdn_client_leave(consumer);
out:
	pdn_unlock();
	return result;
}
