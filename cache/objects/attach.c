/* SPDX-License-Identifier: MIT */
/* Finding a consumer's object on a region, or making it. */
#define _GNU_SOURCE
#include "cache/account.h"
#include "cache/base/barrier.h"
#include "cache/base/cancel.h"
#include "cache/base/lock.h"
#include "cache/base/thread.h"
#include "cache/base/visible.h"
#include "cache/evict.h"
#include "cache/get.h"
#include "cache/index.h"
#include "cache/invalidate.h"
#include "cache/misuse.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/region.h"
#include "cache/region_dmabuf.h"
#include "cache/trace/writer.h"

#define unlikely(x) __builtin_expect(!!(x), 0)

/* So long a thread waits for another that makes the same object: a large registration takes time. */
#define CREATE_WAIT_NS 60000000000u

#define MOST_LOSSES 100 /* somebody frees and allocates faster than we can make anything */

/* The region's memory was freed meanwhile: ask the driver what is there now. */
#define AGAIN (-1000)

struct request {
	uint32_t consumer;
	unsigned flags;
	const struct pindown_key *key;
	void *request;
	bool takes_hold; /* the caller's hold of the region is dropped here, whatever the outcome */
	struct pindown_object **object;
};

/* ---- making ------------------------------------------------------------------------------- */

static void publish(uint32_t number, uint32_t region, const struct request *r, void *data)
{
	struct pindown_object *object = &pd_objects[number];

	/*
	 * Relaxed, as a late look at the old record may still be under way; the link's release
	 * publishes all of it.
	 */
	__atomic_store_n(&object->consumer, r->consumer, __ATOMIC_RELAXED);
	__atomic_store_n(&object->key.owner, r->key->owner, __ATOMIC_RELAXED);
	__atomic_store_n(&object->key.word[0], r->key->word[0], __ATOMIC_RELAXED);
	__atomic_store_n(&object->key.word[1], r->key->word[1], __ATOMIC_RELAXED);
	__atomic_store_n(&object->data, data, __ATOMIC_RELAXED);
	object->region = region;
	object->revoked = false;
	pd_object_hold(pd_self_or_anonymous(), number, 1);
	/* As every change of it: set_state() in end.c. */
	__atomic_store_n(&object->state, PD_OBJECT_LIVE, __ATOMIC_SEQ_CST);
	__atomic_store_n(&object->next, pd_objects_of[region], __ATOMIC_RELAXED);
	/* Release pairs with pd_object_find(): who finds it finds all of the above. */
	__atomic_store_n(&pd_objects_of[region], number, __ATOMIC_RELEASE);
	pd_account_object_made();
}

/* It was made for memory, or for a consumer, that has gone meanwhile. Lock not held. */
static void discard(struct pd_consumer *consumer, struct pd_object_event *told, void *data)
{
	struct pindown_region *region = &pd_regions[told->region];
	struct pindown_object_end what = {
		.key = *told->key,
		.data = data,
		.region = region,
		.reason = pd_details_of(region)->reason ? pd_details_of(region)->reason
							: PINDOWN_REASON_OWNER,
	};

	told->begin = pd_tracing(PD_EV_DEREGISTER) ? pd_ticks() : 0;
	told->result = pd_consumer_destroy(consumer, &what);
	told->reason = (uint16_t)what.reason;
	pd_trace_object(PD_EV_DEREGISTER, consumer->name, told);
}

/*
 * Lock held, and let go; the creation is listed, and the region is held by the caller. Until it is
 * unlisted, a free of the memory and the end of the owner wait.
 */
static int make(struct pd_creation *creation, struct pd_consumer *consumer, uint32_t number,
		const struct request *r)
{
	uint32_t region = creation->region;
	struct pd_object_event told = {.region = region, .number = number, .key = r->key};
	void *data = NULL;
	int result;
	bool gone, asked;

	pd_unlock();
	told.begin = pd_tracing(PD_EV_REGISTER) ? pd_ticks() : 0;
	result = told.result = pd_consumer_create(consumer, &pd_regions[region], r->key, r->request,
						  &data, &asked);
	if (asked)
		pd_dmabuf_create_ended(&pd_regions[region], result == 0);
	pd_trace_object(PD_EV_REGISTER, consumer->name, &told);
	pd_lock();
	gone = !pd_state_is_live(pd_briefs[region].state) || consumer->leaving;
	if (result == 0 && gone && pd_creation_is_listed(creation)) {
		result = consumer->leaving ? PINDOWN_ERR_INVALID : AGAIN;
		pd_unlock();
		discard(consumer, &told, data);
		pd_lock();
	}
	if (!pd_creation_is_listed(creation))
		result = PINDOWN_ERR_BUSY; /* the parent's, and what was made is, too */
	else if (result != 0)
		pd_object_free(number);
	pd_creation_unlist(creation);
	if (result == 0) {
		publish(number, region, r, data);
		*r->object = &pd_objects[number];
	}
	pd_consumer_leave(consumer);
	return result;
}

/*
 * Lock held. What can be given out, or is about to go. An object whose owner has ended stays on a
 * live region as KEPT. The list has newer objects first, so that it is met only when none that was
 * made after it has the same key.
 */
static uint32_t find(uint32_t region, const struct request *r)
{
	uint32_t number = pd_object_find(region, r->consumer, r->key);

	return number && pd_objects[number].state == PD_OBJECT_KEPT ? 0 : number;
}

static int make_new(struct pd_consumer *consumer, uint32_t region, const struct request *r)
{
	uint32_t number = pd_object_alloc();
	struct pd_creation creation = {
		.region = region,
		.consumer = r->consumer,
		.tid = pd_my_tid(),
		.key = *r->key,
	};

	if (!number)
		return PINDOWN_ERR_NO_MEMORY;
	pd_creation_list(&creation);
	pd_consumer_enter(consumer);
	return make(&creation, consumer, number, r);
}

/* Lock held. Another thread makes or destroys what we want; this one can't wait for itself. */
static int wait_for_other(uint32_t worker, uint64_t deadline)
{
	if (!worker || worker == pd_my_tid() || !pd_wait_settled(deadline))
		return PINDOWN_ERR_BUSY;
	return PINDOWN_OK;
}

/* Lock held; let go while making, and while waiting for another that does. */
static int find_or_make(uint32_t region, const struct request *r)
{
	uint64_t deadline = pd_deadline(CREATE_WAIT_NS);
	int result = PINDOWN_OK;

	while (result == PINDOWN_OK) {
		struct pd_consumer *consumer = pd_consumer(r->consumer);
		const struct pd_creation *creation = pd_creation_find(region, r->consumer, r->key);
		uint32_t number;

		if (!consumer || consumer->leaving)
			return PINDOWN_ERR_INVALID;
		if (!pd_state_is_live(pd_briefs[region].state))
			return AGAIN;
		number = find(region, r);
		if (number && pd_objects[number].state == PD_OBJECT_LIVE) {
			pd_object_hold(pd_self_or_anonymous(), number, 1);
			*r->object = &pd_objects[number];
			return PINDOWN_OK;
		}
		if (r->flags & PINDOWN_GET_CACHED)
			return PINDOWN_ERR_NOT_DEVICE;
		if (!number && !creation)
			return make_new(consumer, region, r);
		result = wait_for_other(number ? pd_objects[number].worker : creation->tid,
					deadline);
	}
	return result;
}

/* Lock held, and let go of. No object record is left: evict an idle region that has some. */
static bool make_room_for_object(struct pd_pressure *pressure)
{
	bool again;

	pd_unlock();
	again = pd_evict_for(pressure);
	pd_lock();
	return again;
}

/* Cold: what is made takes longer by far than this. */
static int __attribute__((cold)) attach_to(struct pindown_region *region, const struct request *r)
{
	PD_UNCANCELLED;
	struct pd_pressure pressure = {.place = PD_WITH_OBJECTS};
	uint32_t number = pd_region_number(region);
	bool last = false;
	int result;

	pd_lock();
	do
		result = find_or_make(number, r);
	while (result == PINDOWN_ERR_NO_MEMORY && make_room_for_object(&pressure));
	/*
	 * Under the same lock as the end of the creation: a free that has waited for that is then
	 * the one that unpins.
	 */
	if (r->takes_hold) {
		pd_hold(pd_self_or_anonymous(), number, -1u);
		last = pd_region_take_kept(number);
	}
	pd_unlock();
	if (last)
		pd_unpin_kept(number);
	return result;
}

/* ---- the ways in -------------------------------------------------------------------------- */

static bool bad_request(int consumer, unsigned flags, const struct pindown_key *key,
			struct pindown_object **object)
{
	return consumer < 1 || !key || !object || flags & ~PINDOWN_GET_CACHED;
}

/*
 * The region is announced by this thread. The object's state is read within the announcement and
 * the hold is taken within it: see begin_end() and let_readers_pass() in end.c for the other
 * side.
 */
static inline struct pindown_object *hold_object(struct pd_thread *self, uint32_t region,
						 int consumer, const struct pindown_key *key)
{
	uint32_t number = pd_object_find(region, (uint32_t)consumer, key);

	if (!number ||
	    __atomic_load_n(&pd_objects[number].state, __ATOMIC_SEQ_CST) != PD_OBJECT_LIVE)
		return NULL;
	pd_object_hold(self, number, 1);
	return &pd_objects[number];
}

/*
 * On a region that the caller holds. A thread without a record can't announce: it takes the lock.
 * The announcement and the load of the state pair with set_state() and let_probes_pass() in
 * invalidate.c; the release at its end with the acquire there.
 */
static struct pindown_object *hold_on(struct pindown_region *region, int consumer,
				      const struct pindown_key *key)
{
	struct pd_thread *self = pd_self();
	struct pindown_object *object = NULL;

	if (!self)
		return NULL;
	pd_publish32(&self->probing, pd_region_number(region), &self->patience);
	if (pd_state_is_live(__atomic_load_n(&pd_brief_of(region)->state, __ATOMIC_SEQ_CST)))
		object = hold_object(self, pd_region_number(region), consumer, key);
	__atomic_store_n(&self->probing, 0, __ATOMIC_RELEASE);
	return object;
}

static int __attribute__((noinline))
attach_slow(int consumer, uint64_t addr, size_t length, unsigned flags,
	    const struct pindown_key *key, void *argument, struct pindown_object **object)
{
	PD_UNCANCELLED;
	struct request r = {.consumer = (uint32_t)consumer,
			    .flags = flags,
			    .key = key,
			    .request = argument,
			    .takes_hold = true,
			    .object = object};
	struct pindown_region *region;
	struct pindown_object *found;
	int result;

	if (bad_request(consumer, flags, key, object))
		return PINDOWN_ERR_INVALID;
	for (unsigned losses = 0; losses < MOST_LOSSES; losses++) {
		result = pindown_get(addr, length, flags, &region);
		if (result != PINDOWN_OK)
			return result;
		found = hold_on(region, consumer, key);
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

/* As hold_if() in get.c, with the same partners, but it is the object that gets the hold. */
static inline struct pindown_object *hold_at(struct pd_thread *self, uint64_t addr, size_t length,
					     int consumer, const struct pindown_key *key)
{
	uint32_t number = pd_index_find(addr);
	struct pindown_object *object = NULL;
	struct pindown_region *region;

	if (!number)
		return NULL;
	region = &pd_regions[number];
	pd_publish32(&self->probing, number, &self->patience);
	if (__atomic_load_n(&pd_brief_of(region)->state, __ATOMIC_SEQ_CST) == PD_LIVE &&
	    pd_region_holds(region, addr, length) && pd_region_word_stands(region))
		object = hold_object(self, number, consumer, key);
	__atomic_store_n(&self->probing, 0, __ATOMIC_RELEASE);
	return object;
}

PD_EXPORT int pindown_attach(int consumer, uint64_t addr, size_t length, unsigned flags,
			     const struct pindown_key *key, void *request,
			     struct pindown_object **object)
{
	struct pd_thread *self = pd_self_tls;
	struct pindown_object *found;

	/* length 0 becomes the largest there is, which fits in no region. */
	if (unlikely(!self || bad_request(consumer, flags, key, object) || length - 1 >= ~0ull / 2))
		return attach_slow(consumer, addr, length, flags, key, request, object);
	/* The get in there is the one whose turn it is. Relaxed: as pd_thread_counts_down(). */
	if (unlikely(__atomic_load_n(&self->until_look, __ATOMIC_RELAXED) <= 0))
		return attach_slow(consumer, addr, length, flags, key, request, object);
	found = hold_at(self, addr, length, consumer, key);
	if (unlikely(!found))
		return attach_slow(consumer, addr, length, flags, key, request, object);
	pd_thread_counts_down(self);
	pd_count_hit(self, &pd_regions[found->region], addr, length);
	*object = found;
	return PINDOWN_OK;
}

PD_EXPORT int pindown_attach_region(int consumer, struct pindown_region *region, unsigned flags,
				    const struct pindown_key *key, void *request,
				    struct pindown_object **object)
{
	struct request r = {.consumer = (uint32_t)consumer,
			    .flags = flags,
			    .key = key,
			    .request = request,
			    .object = object};
	struct pindown_object *found;
	int result;

	if (!region || bad_request(consumer, flags, key, object))
		return PINDOWN_ERR_INVALID;
	pd_region_is_used(region, __func__);
	found = hold_on(region, consumer, key);
	if (found) {
		*object = found;
		return PINDOWN_OK;
	}
	result = attach_to(region, &r);
	return result == AGAIN ? PINDOWN_ERR_NOT_DEVICE : result;
}
