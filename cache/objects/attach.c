/* SPDX-License-Identifier: MIT */
/* Finding a consumer's object on a region, or making it: pindown_attach() and its relatives. */
#define _GNU_SOURCE
#include "cache/show/account.h"
#include "cache/base/thread/barrier.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/thread/lock.h"
#include "cache/base/thread/thread.h"
#include "cache/base/visible.h"
#include "cache/room/evict.h"
#include "cache/hit/get.h"
#include "cache/hit/index.h"
#include "cache/dmabuf/region_dmabuf.h"
#include "cache/end/kept.h"
#include "cache/hit/misuse.h"
#include "cache/objects/end.h"
#include "cache/objects/held.h"
#include "cache/objects/lookup.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"

#define unlikely(x) __builtin_expect(!!(x), 0)

/* How long a thread waits for another one that makes the same object: registering can be slow. */
#define CREATE_WAIT_NS 60000000000u

#define MAX_LOST_RACES 100 /* give up with BUSY after this many frees in a row */

/* The region's memory has been freed: look the address up again. No result is positive. */
#define AGAIN 1
/* There is no record for the object. */
#define NO_RECORD 2

struct request {
	uint32_t consumer;
	unsigned flags;
	const struct pindown_key *key;
	uint64_t addr, length;
	void *request;
	bool takes_hold; /* attaching drops the caller's hold on the region, in any case */
	struct pindown_object **object;
};

/* ---- making ------------------------------------------------------------------------------- */

/*
 * Lock held. Is it a region that ends as soon as its getter holds it (pdn_ends_later())? Objects on
 * it are made all the same, each for one attach: no look-up finds them, and they end at their last
 * detach.
 */
static bool is_leaving(uint32_t region)
{
	return pdn_state_of(region) == PDN_KEPT && pdn_regions[region].flags & PDN_REGION_LEAVING;
}

static bool takes_objects(uint32_t region)
{
	return pdn_state_is_live(pdn_state_of(region)) || is_leaving(region);
}

/*
 * Lock held. A record for an object that this thread makes, on the region; 0: there is none, or no
 * room for finding it. Relaxed, since a late reader may still be looking at the old record; the
 * release of the region, and of the links to it, publishes all of it.
 */
static uint32_t new_record(uint32_t region, const struct request *r)
{
	uint32_t number = pdn_object_alloc();
	struct pindown_object *object = &pdn_objects[number];

	if (!number)
		return 0;
	object->worker = pdn_my_tid();
	__atomic_store_n(&object->consumer, r->consumer, __ATOMIC_RELAXED);
	__atomic_store_n(&object->key.owner, r->key->owner, __ATOMIC_RELAXED);
	__atomic_store_n(&object->key.word[0], r->key->word[0], __ATOMIC_RELAXED);
	__atomic_store_n(&object->key.word[1], r->key->word[1], __ATOMIC_RELAXED);
	__atomic_store_n(&object->region, region, __ATOMIC_RELEASE);
	__atomic_store_n(&object->state, PDN_OBJECT_MAKING, __ATOMIC_RELAXED);
	if (pdn_object_link(number))
		return number;
	pdn_object_free(number);
	return 0;
}

/*
 * Lock held. It is made, and held by its maker: a thread that finds it LIVE sees all of it. On a
 * region that is leaving it is KEPT from the first, as claim_or_keep() in end_with.c does it.
 */
static void publish(struct pindown_object *object, void *data, bool may_retire)
{
	uint32_t number = pdn_object_number(object), region = object->region;

	__atomic_store_n(&object->data, data, __ATOMIC_RELAXED);
	object->revoked = object->was_counted = object->outlives = false;
	object->may_retire = may_retire;
	object->reason = pdn_regions[region].reason;
	pdn_object_hold(pdn_self_or_anonymous(), number, 1);
	pdn_object_set_state(object, is_leaving(region) ? PDN_OBJECT_KEPT : PDN_OBJECT_LIVE);
	pdn_account_object_made();
	if (!is_leaving(region)) {
		pdn_object_serve(number);
		return;
	}
	pdn_object_hide(number);
	pdn_account_objects(&pdn_regions[region]);
	if (pdn_objects_await_reuse(region))
		pdn_await_reuse(region);
}

/* Lock not held. Destroys an object whose memory or consumer went while it was being made. */
static void discard(struct pdn_client *consumer, uint32_t number, void *data)
{
	struct pindown_object *object = &pdn_objects[number];
	struct pindown_region *region = &pdn_regions[object->region];
	/* Relaxed: pairs with pdn_end_replaced(). */
	uint8_t reason = __atomic_load_n(&region->reason, __ATOMIC_RELAXED);
	struct pindown_object_end what = {
		.key = object->key,
		.data = data,
		.region = region,
		.reason = reason ? reason : PINDOWN_REASON_OWNER,
	};

	pdn_consumer_destroy(consumer, number, &what);
}

/* Of what create has returned. */
static int result_of_create(int own)
{
	const int most = 1 << 30;

	return own <= 0 ? own : PINDOWN_CREATE_FAILED(own < most ? own : most);
}

/*
 * Lock held, and dropped meanwhile; the caller holds the region. A free of the memory and the end
 * of the owner wait while the object is being made.
 */
static int make_object(struct pdn_client *consumer, uint32_t number, const struct request *r)
{
	struct pindown_object *object = &pdn_objects[number];
	uint32_t region = object->region, maker = object->worker;
	const struct pindown_object_request what = {.key = *r->key,
						    .region = &pdn_regions[region],
						    .addr = r->addr,
						    .length = r->length,
						    .request = r->request};
	void *data = NULL;
	int error, result;
	bool gone, asked, may_retire = false;

	pdn_unlock();
	error = pdn_consumer_create(consumer, number, &what, &data, &asked);
	result = result_of_create(error);
	if (asked)
		pdn_dmabuf_create_ended(&pdn_regions[region], result == 0);
	if (result == 0 && consumer->may_retire)
		may_retire = consumer->may_retire(r->key, data);
	pdn_lock();
	gone = !takes_objects(region) || consumer->leaving;
	if (result == 0 && gone && !pdn_process_is_off()) {
		result = consumer->leaving ? PINDOWN_ERR_INVALID : AGAIN;
		pdn_unlock();
		discard(consumer, number, data);
		pdn_lock();
	}
	/* In a child they are the parent's; or the thread that began has ended (a coroutine). */
	if (pdn_process_is_off() || object->state != PDN_OBJECT_MAKING || object->worker != maker)
		return PINDOWN_ERR_BUSY;
	consumer->stats.create_errors += error != 0;
	if (result == 0) {
		consumer->stats.objects_made++;
		publish(object, data, may_retire);
		*r->object = object;
	} else {
		pdn_object_unmake(number);
		pdn_client_may_go(consumer);
	}
	pdn_wake_waiters();
	return result;
}

/* Lock held. Another thread makes or destroys the object; a thread can't wait for itself. */
static int wait_for_other(uint32_t worker, unsigned flags, uint64_t deadline)
{
	if (!worker || worker == pdn_my_tid())
		return PINDOWN_ERR_BUSY;
	if (flags & PINDOWN_GET_NOWAIT)
		return PINDOWN_ERR_WOULD_WAIT;
	return pdn_wait_for_work(deadline) ? PINDOWN_OK : PINDOWN_ERR_TIMED_OUT;
}

/* Lock held; dropped while making the object or waiting for a thread that does. */
static int find_or_make(uint32_t region, const struct request *r)
{
	uint64_t deadline = pdn_deadline(CREATE_WAIT_NS);
	int result = PINDOWN_OK;

	while (result == PINDOWN_OK) {
		struct pdn_client *consumer = pdn_consumer(r->consumer);
		uint32_t number;

		if (!consumer || consumer->leaving)
			return PINDOWN_ERR_INVALID;
		if (!takes_objects(region))
			return AGAIN;
		number = pdn_object_find(region, r->consumer, r->key);
		if (number && pdn_objects[number].state == PDN_OBJECT_LIVE) {
			pdn_object_hold(pdn_self_or_anonymous(), number, 1);
			*r->object = &pdn_objects[number];
			return PINDOWN_OK;
		}
		if (r->flags & PINDOWN_GET_CACHED)
			return PINDOWN_ERR_NOT_DEVICE;
		if (!number) {
			number = new_record(region, r);
			return number ? make_object(consumer, number, r) : NO_RECORD;
		}
		result = wait_for_other(pdn_objects[number].worker, r->flags, deadline);
	}
	return result;
}

/* Lock held, and dropped meanwhile. No object record is free: evict an idle region with objects. */
static bool make_room_for_object(struct pdn_pressure *pressure)
{
	bool again;

	pdn_unlock();
	again = pdn_evict_for(pressure);
	pdn_lock();
	return again;
}

/* Cold: making an object takes far longer than this. */
static int __attribute__((cold)) attach_to(struct pindown_region *region, const struct request *r)
{
	PDN_UNCANCELLED;
	struct pdn_pressure pressure = {.place = PDN_WITH_OBJECTS,
					.nowait = r->flags & PINDOWN_GET_NOWAIT};
	struct pdn_held_objects held = {0};
	uint32_t number = pdn_region_number(region);
	struct pdn_ending last = {0};
	int result;

	pdn_lock();
	do
		result = find_or_make(number, r);
	while (result == NO_RECORD && make_room_for_object(&pressure));
	if (result == NO_RECORD)
		result = pressure.would_wait ? PINDOWN_ERR_WOULD_WAIT : PINDOWN_ERR_NO_MEMORY;
	if (result == PINDOWN_OK && (*r->object)->state == PDN_OBJECT_KEPT)
		pdn_held_count(r->consumer, &held);
	/*
	 * Drop the hold before the lock is released for the first time since the creation ended: a
	 * free that has waited for that end then finds the region unheld, and unpins it.
	 */
	if (r->takes_hold) {
		pdn_unhold(pdn_self_or_anonymous(), number);
		pdn_region_take_kept(&last, number);
	}
	pdn_unlock();
	pdn_unpin_kept(&last);
	if (held.all)
		pdn_held_report(region, &held, 0);
	return result;
}

/* ---- entry points ------------------------------------------------------------------------- */

static bool bad_request(int consumer, unsigned flags, const struct pindown_key *key,
			struct pindown_object **object)
{
	return consumer < 1 || !key || !object || flags & ~PDN_GET_FLAGS;
}

/*
 * This thread has announced the region. The object's state is read, and the hold is taken, before
 * the announcement ends: see pdn_object_begin_end() and pdn_objects_let_readers_pass() for the
 * other side.
 */
static inline struct pindown_object *hold_object(struct pdn_thread *self, uint32_t region,
						 int consumer, const struct pindown_key *key)
{
	uint32_t number = pdn_object_load(&pdn_objects_of[region]);

	if (unlikely(number && !pdn_object_is(&pdn_objects[number], (uint32_t)consumer, key)))
		number = pdn_object_find(region, (uint32_t)consumer, key);
	if (!number ||
	    __atomic_load_n(&pdn_objects[number].state, __ATOMIC_SEQ_CST) != PDN_OBJECT_LIVE)
		return NULL;
	pdn_object_hold(self, number, 1);
	return &pdn_objects[number];
}

/*
 * Holds an object on a region that the caller holds; NULL: none was found. A thread without a
 * record can't announce, so it finds none here and takes the lock instead. The announcement and the
 * load of the state pair with pdn_region_set_state() and pdn_announced_pass(); the release at its
 * end pairs with the acquire there.
 */
static struct pindown_object *try_hold_on_region(struct pindown_region *region, int consumer,
						 const struct pindown_key *key)
{
	struct pdn_thread *self = pdn_self();
	struct pindown_object *object = NULL;

	if (!self)
		return NULL;
	pdn_publish32(&self->announced, pdn_region_number(region));
	if (pdn_state_is_live(__atomic_load_n(&pdn_brief_of(region)->state, __ATOMIC_SEQ_CST)))
		object = hold_object(self, pdn_region_number(region), consumer, key);
	__atomic_store_n(&self->announced, 0, __ATOMIC_RELEASE);
	return object;
}

static int __attribute__((noinline))
attach_slow(int consumer, uint64_t addr, size_t length, unsigned flags,
	    const struct pindown_key *key, void *argument, struct pindown_object **object)
{
	PDN_UNCANCELLED;
	struct request r = {.consumer = (uint32_t)consumer,
			    .flags = flags,
			    .key = key,
			    .addr = addr,
			    .length = length,
			    .request = argument,
			    .takes_hold = true,
			    .object = object};
	struct pindown_region *region;
	struct pindown_object *found;
	int result;

	if (bad_request(consumer, flags, key, object))
		return PINDOWN_ERR_INVALID;
	for (unsigned lost = 0; lost < MAX_LOST_RACES; lost++) {
		result = pindown_get(addr, length, flags, &region);
		if (result != PINDOWN_OK)
			return result;
		found = try_hold_on_region(region, consumer, key);
		if (found) {
			pindown_put(region);
			*object = found;
			return PINDOWN_OK;
		}
		result = attach_to(region, &r);
		if (result != AGAIN)
			return result;
	}
	return PINDOWN_ERR_BUSY;
}

/* As hold_if() in get.c, with the same partners, but the hold is on the object. */
static inline struct pindown_object *try_hold_at(struct pdn_thread *self, uint64_t addr,
						 size_t length, int consumer,
						 const struct pindown_key *key)
{
	uint32_t number = pdn_index_find(addr);
	struct pindown_object *object = NULL;
	struct pindown_region *region;

	if (!number)
		return NULL;
	region = &pdn_regions[number];
	pdn_publish32(&self->announced, number);
	if (__atomic_load_n(&pdn_brief_of(region)->state, __ATOMIC_SEQ_CST) == PDN_LIVE &&
	    pdn_region_holds(region, addr, length) && pdn_region_word_stands(region))
		object = hold_object(self, number, consumer, key);
	__atomic_store_n(&self->announced, 0, __ATOMIC_RELEASE);
	return object;
}

PDN_EXPORT int pindown_attach(int consumer, uint64_t addr, size_t length, unsigned flags,
			      const struct pindown_key *key, void *request,
			      struct pindown_object **object)
{
	struct pdn_thread *self = pdn_self_tls;
	struct pindown_object *found;

	/*
	 * Length 0 wraps to the largest length, which fits in no region. If a check is due, the get
	 * in attach_slow() makes it. Relaxed: as pdn_thread_counts_down().
	 */
	if (unlikely(!self || bad_request(consumer, flags, key, object) ||
		     length - 1 >= ~0ull / 2 ||
		     __atomic_load_n(&self->until_look, __ATOMIC_RELAXED) <= 0 ||
		     !(found = try_hold_at(self, addr, length, consumer, key))))
		return attach_slow(consumer, addr, length, flags, key, request, object);
	pdn_thread_counts_down(self);
	pdn_count_hit(self, &pdn_regions[found->region], addr, length);
	*object = found;
	return PINDOWN_OK;
}

PDN_EXPORT int pindown_attach_region(int consumer, struct pindown_region *region, uint64_t addr,
				     size_t length, unsigned flags, const struct pindown_key *key,
				     void *request, struct pindown_object **object)
{
	struct request r = {.consumer = (uint32_t)consumer,
			    .flags = flags,
			    .key = key,
			    .addr = addr,
			    .length = length,
			    .request = request,
			    .object = object};
	struct pindown_object *found;
	int result;

	if (!region || bad_request(consumer, flags, key, object))
		return PINDOWN_ERR_INVALID;
	pdn_region_is_used(region, __func__);
	if (!length) {
		r.addr = region->base;
		r.length = region->end - region->base;
	}
	if (!pdn_region_holds(region, r.addr, r.length))
		return PINDOWN_ERR_RANGE;
	found = try_hold_on_region(region, consumer, key);
	if (found) {
		*object = found;
		return PINDOWN_OK;
	}
	result = attach_to(region, &r);
	return result == AGAIN ? PINDOWN_ERR_NOT_DEVICE : result;
}
