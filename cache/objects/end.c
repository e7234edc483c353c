/* SPDX-License-Identifier: MIT */
/* How a consumer object ends: claimed by one thread, destroyed, and taken out of the tables. */
#define _GNU_SOURCE
#include <stddef.h>

#include "cache/show/account.h"
#include "cache/base/thread/barrier.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/environment/config.h"
#include "cache/base/thread/lock.h"
#include "cache/base/thread/thread.h"
#include "cache/end/kept.h"
#include "cache/objects/end.h"
#include "cache/objects/lookup.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/hit/announced.h"
#include "cache/hit/region.h"
#include "cache/retire/retired.h"
#include "cache/trace/writer/events.h"

void pdn_object_begin_end(struct pindown_object *object, enum pindown_reason reason)
{
	object->reason = (uint16_t)reason;
	object->worker = pdn_my_tid();
	pdn_object_set_state(object, PDN_OBJECT_ENDING);
	pdn_object_serve_no_more(pdn_object_number(object));
}

void pdn_object_claim(uint32_t number, uint32_t *chain)
{
	struct pindown_object *object = &pdn_objects[number];

	object->worker = pdn_my_tid();
	object->revoked = pdn_object_is_held(number);
	pdn_object_set_state(object, PDN_OBJECT_DYING);
	object->chain = *chain;
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

	if (what.in_use) /* its holder may be reading: pairs with pindown_object_data() */
		__atomic_store_n(&object->data, NULL, __ATOMIC_RELAXED);
	pdn_consumer_destroy(pdn_consumer(object->consumer), number, &what);
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

/* Lock held. From here on no thread looks at its record any more. */
static void take_out(uint32_t number)
{
	pdn_object_unlink(number);
	if (pdn_state_is_linked(pdn_state_of(pdn_objects[number].region)))
		pdn_objects_let_readers_pass();
}

void pdn_object_unmake(uint32_t number)
{
	uint32_t region = pdn_objects[number].region;

	take_out(number);
	pdn_object_free(number);
	pdn_account_objects(&pdn_regions[region]);
}

/*
 * Lock held. The object has been destroyed: no look-up finds it any more. If it is still held, the
 * record waits for that.
 */
static void retire(uint32_t number)
{
	struct pindown_object *object = &pdn_objects[number];
	struct pdn_client *consumer = pdn_consumer(object->consumer);

	take_out(number);
	pdn_account_object_gone(object->revoked);
	if (consumer)
		consumer->stats.objects_revoked += object->revoked;
	pdn_account_objects(&pdn_regions[object->region]);
	if (pdn_object_is_held(number)) {
		object->chain = pdn_retired_hold(object->region);
		pdn_object_set_state(object, PDN_OBJECT_REVOKED);
	} else {
		pdn_object_free(number);
	}
	if (consumer)
		pdn_client_may_go(consumer);
	pdn_wake_waiters();
}

/* If nothing but its objects has kept the region, this thread has to unpin it. */
static void retire_and_unpin(uint32_t number)
{
	uint32_t region = pdn_objects[number].region;
	struct pdn_ending last = {0};

	pdn_lock();
	if (!pdn_process_is_off()) {
		retire(number);
		pdn_region_take_kept(&last, region);
	}
	pdn_unlock();
	pdn_unpin_kept(&last);
}

void pdn_objects_destroy_claimed(uint32_t chain)
{
	for (uint32_t n = chain, next; n; n = next) {
		next = pdn_objects[n].chain;
		if (!pdn_process_is_off()) {
			destroy(n);
			retire_and_unpin(n);
		}
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
			was_last = pdn_retired_let_go(object->chain, &released);
			pdn_object_free(number);
		}
	}
	pdn_unlock();
	if (was_last)
		pdn_retired_trace(&released, 0);
	pdn_objects_destroy_claimed(chain);
}

/* ---- does an object keep its region? ------------------------------------------------------- */

static bool holds_region(const struct pindown_object *object)
{
	switch ((enum pdn_object_state)object->state) {
	case PDN_OBJECT_LIVE:
		return pdn_object_is_held(pdn_object_number(object));
	case PDN_OBJECT_MAKING: /* its maker holds the region itself */
		return false;
	case PDN_OBJECT_ENDING:
		return pdn_object_is_held(pdn_object_number(object)) &&
		       !pdn_object_ends_held(object);
	default: /* kept, or a thread is about to destroy it */
		return true;
	}
}

bool pdn_objects_some_hold(uint32_t region)
{
	return pdn_objects_any(region, holds_region);
}

/* Is a thread destroying or making it? The end of its memory waits for that. */
static bool is_worked_on(const struct pindown_object *object)
{
	return pdn_object_worker(object);
}

/* Is it a registration that is kept, and of which no byte, or not every one, has ended? */
static bool is_outliving(const struct pindown_object *object)
{
	return object->state == PDN_OBJECT_KEPT && object->outlives;
}

/* Then it is as if a region without the part that has ended had replaced it. */
static void take_for_replaced(struct pindown_region *region)
{
	pdn_region_set_flags(region, region->flags | PDN_REGION_REPLACED);
	__atomic_store_n(&region->reason, PINDOWN_REASON_EVICTED, __ATOMIC_RELAXED);
}

bool pdn_objects_await_reuse(uint32_t region)
{
	if (!pdn_first_object(region))
		return false;
	if (pdn_objects_any(region, is_outliving))
		take_for_replaced(&pdn_regions[region]);
	if (pdn_regions[region].reason == PINDOWN_REASON_ORDERED)
		return pdn_config()->held == PDN_HELD_REVOKE;
	return pdn_region_is_replaced(region) &&
	       (pdn_config()->held != PDN_HELD_KEEP || pdn_objects_any(region, is_worked_on) ||
		pdn_tracing(PDN_EV_HELD) || pdn_tracing(PDN_EV_HOLDER));
}

/* ---- a thread quits ------------------------------------------------------------------------ */

void pdn_objects_drop_own(void)
{
	uint32_t me = pdn_my_tid();

	for (uint32_t n = 1; n <= pdn_object_high_water(); n++) {
		struct pindown_object *object = &pdn_objects[n];
		struct pdn_client *consumer = pdn_consumer(object->consumer);

		if (object->worker != me)
			continue;
		object->worker = 0;
		if (object->state == PDN_OBJECT_MAKING)
			pdn_object_unmake(n);
		if (consumer)
			pdn_client_may_go(consumer);
	}
}
