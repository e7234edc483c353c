/* SPDX-License-Identifier: MIT */
/* How a consumer object ends: claimed by one thread, destroyed, and taken out of the tables. */
#define _GNU_SOURCE
#include <stddef.h>

#include "cache/show/account.h"
#include "cache/base/barrier.h"
#include "cache/base/cancel.h"
#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/thread.h"
#include "cache/end/kept.h"
#include "cache/objects/end.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/hit/announced.h"
#include "cache/hit/region.h"
#include "cache/retire/retired.h"
#include "cache/trace/writer.h"

void pdn_object_begin_end(struct pindown_object *object, enum pindown_reason reason)
{
	object->reason = (uint16_t)reason;
	object->worker = pdn_my_tid();
	pdn_object_set_state(object, PDN_OBJECT_ENDING);
}

void pdn_object_claim(uint32_t number, uint32_t *chain)
{
	struct pindown_object *object = &pdn_objects[number];

	object->worker = pdn_my_tid();
	object->revoked = pdn_object_is_held(number);
	object->called = false;
	pdn_object_set_state(object, PDN_OBJECT_DYING);
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
 * The loads pair with the announcement across the barrier, as in pdn_announced_pass(); acquire
 * pairs with the release that ends an announcement.
 */
void pdn_objects_let_readers_pass(void)
{
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t;

	pdn_heavy_barrier();
	while ((t = pdn_walk_next(&walk))) {
		uint32_t number = __atomic_load_n(&t->announced, __ATOMIC_SEQ_CST);

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
	if (pdn_object_is_held(number)) {
		object->victim = pdn_retired_hold(object->region);
		pdn_object_set_state(object, PDN_OBJECT_REVOKED);
	} else {
		pdn_object_free(number);
	}
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

	/* A callback has forked, and this is the child: the objects are its parent's. */
	if (pdn_process_is_off())
		return 0;
	for (uint32_t n = chain; n; n = pdn_objects[n].victim) {
		pdn_object_unlink(n);
		has_readers |= pdn_state_is_linked(pdn_state_of(pdn_objects[n].region));
	}
	if (has_readers)
		pdn_objects_let_readers_pass();
	for (uint32_t n = chain, next; n; n = next) {
		uint32_t region = pdn_objects[n].region;

		next = pdn_objects[n].victim;
		retire(n);
		claim_region(region, &regions);
	}
	pdn_wake_waiters();
	return regions;
}

void pdn_objects_destroy_claimed(uint32_t chain)
{
	uint32_t regions;

	for (uint32_t n = chain; n && !pdn_process_is_off(); n = pdn_objects[n].victim)
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
	struct pdn_trace_note released;
	bool was_last = false;
	uint32_t chain = 0;

	pdn_lock();
	/* In a child that is off, it is the parent's. */
	if (!pdn_process_is_off() && !pdn_object_is_held(number)) {
		if (object->state == PDN_OBJECT_KEPT) {
			pdn_object_claim(number, &chain);
		} else if (object->state == PDN_OBJECT_REVOKED) {
			was_last = pdn_retired_let_go(object->victim, &released);
			pdn_object_free(number);
		}
	}
	pdn_unlock();
	if (was_last)
		pdn_retired_trace(&released, 0);
	if (chain)
		pdn_objects_destroy_claimed(chain);
}

/* ---- does an object keep its region? ------------------------------------------------------- */

static bool holds_region(uint32_t number)
{
	switch ((enum pdn_object_state)pdn_objects[number].state) {
	case PDN_OBJECT_LIVE:
		return pdn_object_is_held(number);
	case PDN_OBJECT_ENDING:
		return pdn_object_is_held(number) && !pdn_object_ends_held(&pdn_objects[number]);
	default: /* kept, or a thread is about to destroy it */
		return true;
	}
}

bool pdn_objects_some_hold(uint32_t region)
{
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (holds_region(n))
			return true;
	return false;
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

/* Lock held. Is any registration kept of which no byte, or not every one, has ended? */
static bool some_outlive(uint32_t region)
{
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_objects[n].state == PDN_OBJECT_KEPT && pdn_objects[n].outlives)
			return true;
	return false;
}

/* Then it is as if a region without the part that has ended had replaced it. */
static void take_for_replaced(struct pindown_region *region)
{
	pdn_region_set_flags(region, region->flags | PDN_REGION_REPLACED);
	__atomic_store_n(&region->reason, PINDOWN_REASON_EVICTED, __ATOMIC_RELAXED);
}

bool pdn_objects_await_reuse(uint32_t region)
{
	if (!pdn_objects_any(region))
		return false;
	if (some_outlive(region))
		take_for_replaced(&pdn_regions[region]);
	if (pdn_regions[region].reason == PINDOWN_REASON_ORDERED)
		return pdn_config()->held == PDN_HELD_REVOKE;
	return pdn_region_is_replaced(region) &&
	       (pdn_config()->held != PDN_HELD_KEEP || is_worked_on(region) ||
		pdn_tracing(PDN_EV_HELD) || pdn_tracing(PDN_EV_HOLDER));
}

/* ---- a thread quits ------------------------------------------------------------------------ */

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
