/* SPDX-License-Identifier: MIT */
/*
 * Naming the program's registrations whose memory ends: one event for each in the trace, with the
 * code that made the registration and the code that ends the memory. The line of PINDOWN_HELD=warn
 * names the first one's code.
 *
 * The objects that they hold are ENDING here, and only this thread changes that: so their records
 * stay, and their data, while their consumer is asked without the lock. Threads that end the owner
 * of such an object wait for this one, as they do while it destroys the object. So do those that
 * remove the consumer, and its record stays in any case until its last object has ended.
 */
#define _GNU_SOURCE
#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/objects/end.h"
#include "cache/objects/held.h"
#include "cache/objects/object.h"
#include "cache/hit/region.h"
#include "cache/trace/writer/events.h"
#include "cache/trace/stack/stack.h"

#define AT_ONCE 64u

/* The held objects on a region, AT_ONCE of them at a time. */
struct held_objects {
	const struct pindown_region *region;
	const struct pdn_scope *scope; /* what ends; NULL: all of the region */
	uint32_t free_stack;	       /* of the code that ends the memory */
	uint16_t reason;
	uint64_t caller; /* of the first one that is known by its return address; or 0 */
	uint32_t count;
	struct held_object {
		uint32_t number;
		struct pdn_consumer *consumer;
		bool named; /* its consumer has named a registration */
		bool ends;  /* with the memory */
	} of[AT_ONCE];
};

/* Lock held. Those behind object `last` (0: from the first on). */
static void gather(struct held_objects *held, uint32_t region, uint32_t last)
{
	uint32_t me = pdn_my_tid();

	held->count = 0;
	for (uint32_t n = last ? pdn_objects[last].next : pdn_first_object(region);
	     n && held->count < AT_ONCE; n = pdn_objects[n].next) {
		struct pindown_object *object = &pdn_objects[n];

		if (object->state != PDN_OBJECT_ENDING || object->worker != me)
			continue;
		held->of[held->count] = (struct held_object){.number = n};
		if (pdn_object_is_held(n))
			held->of[held->count].consumer = pdn_consumer(object->consumer);
		held->of[held->count].ends = pdn_object_ends_held(object) ||
					     pdn_object_is_revoked_in_part(object, held->scope);
		held->count++;
	}
}

static bool is_traced(void)
{
	return pdn_tracing(PDN_EV_HOLDER);
}

static void trace_holder(const struct held_objects *held, const struct held_object *object,
			 const struct pdn_holder *holder)
{
	const struct pdn_holder_event event = {
		.object = object->number,
		.key = &pdn_objects[object->number].key,
		.addr = holder->addr,
		.size = holder->size,
		.origin = holder->caller && is_traced() ? pdn_trace_origin(holder->caller) : 0,
		.stack = held->free_stack,
		.reason = held->reason,
		.flags = object->ends ? PDN_TRACE_REVOKED : 0,
	};

	if (is_traced())
		pdn_trace_holder(held->region, object->consumer->name, &event);
}

static struct held_object *find(struct held_objects *held, const struct pindown_object *object)
{
	uint32_t number = pdn_object_number(object);

	for (uint32_t i = 0; i < held->count; i++)
		if (held->of[i].number == number)
			return held->of[i].consumer ? &held->of[i] : NULL;
	return NULL;
}

static bool is_wanted(void *held, const struct pindown_object *object)
{
	return find(held, object);
}

/* Does any of the holder's memory end? */
static bool ends_in_part(const struct pdn_scope *scope, const struct pdn_holder *holder)
{
	return !scope || (holder->addr < scope->end && scope->begin < holder->addr + holder->size);
}

/* It is revoked with the last of its memory, and named then. */
static bool ends_later(const struct pindown_object *object)
{
	return pdn_config()->held == PDN_HELD_REVOKE && object->outlives;
}

/* A consumer has found a registration of the program's that holds a wanted object. */
static bool name_one(void *arg, const struct pdn_holder *holder)
{
	struct held_objects *held = arg;
	struct held_object *object = find(held, holder->object);

	object->named = true;
	if (holder->was_named || !ends_in_part(held->scope, holder) ||
	    (held->scope && ends_later(&pdn_objects[object->number])))
		return false;
	if (!held->caller && pdn_trace_is_address(holder->caller))
		held->caller = holder->caller;
	trace_holder(held, object, holder);
	return true;
}

static bool was_asked(const struct held_objects *held, uint32_t up_to)
{
	for (uint32_t i = 0; i < up_to; i++)
		if (held->of[i].consumer == held->of[up_to].consumer)
			return true;
	return false;
}

/* Mappings are no smaller; of more bytes it is not asked whether they have ended earlier. */
#define MAPPING	   ((uint64_t)2 << 20)
#define MOST_ASKED 4096

/*
 * Lock not held. Is there memory in [begin, end)? The parts that have ended before may be all of
 * it. Where another thread is just ending some, there is.
 */
static bool any_lives(uint64_t begin, uint64_t end)
{
	struct pdn_flight flight;
	bool lives;

	if (begin >= end)
		return false;
	lives = pdn_flight_begin(&flight, begin, end) & PDN_GUARDED ||
		(end - begin) / MAPPING > MOST_ASKED;
	for (uint64_t at = begin; at < end && !lives; at = (at / MAPPING + 1) * MAPPING)
		lives = pdn_driver_has_memory(at);
	pdn_flight_end_unlocked(&flight);
	return lives;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t greater(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Only the thread that ends the objects, which is this one, looks at what is set here. */
static bool ask_one(void *arg, const struct pdn_holder *holder)
{
	struct held_objects *held = arg;
	struct held_object *found = find(held, holder->object);
	struct pindown_object *object = &pdn_objects[found->number];
	const uint64_t end = holder->addr + holder->size;

	if (!found->named) /* the first one of the object */
		object->is_touched = object->outlives = false;
	found->named = true;
	object->is_touched |= ends_in_part(held->scope, holder);
	object->outlives |= any_lives(holder->addr, lesser(end, held->scope->begin)) ||
			    any_lives(greater(holder->addr, held->scope->end), end);
	return false;
}

/* Lock not held. */
static void search(struct held_objects *held,
		   bool (*found)(void *arg, const struct pdn_holder *holder))
{
	const struct pdn_holder_search search = {is_wanted, found, held};

	for (uint32_t i = 0; i < held->count; i++) {
		struct pdn_consumer *consumer = held->of[i].consumer;

		if (consumer && consumer->holders && !was_asked(held, i))
			pdn_consumer_name_holders(consumer, &search);
	}
}

static uint32_t next_objects(struct held_objects *held, uint32_t region, uint32_t last)
{
	pdn_lock();
	gather(held, region, last);
	pdn_unlock();
	return held->count == AT_ONCE ? held->of[AT_ONCE - 1].number : 0; /* if there may be more */
}

/* Lock not held. An object whose consumer names no registration is named by itself. */
static void name_all(struct held_objects *held)
{
	const struct pindown_region *region = held->region;
	const struct pdn_holder unknown = {.addr = region->base,
					   .size = region->end - region->base};

	search(held, name_one);
	for (uint32_t i = 0; i < held->count; i++)
		if (held->of[i].consumer && !held->of[i].named)
			trace_holder(held, &held->of[i], &unknown);
}

/*
 * An object of a consumer that names no registrations ends with any part of its region. Of one
 * whose registration is just being made, it is not known yet what it is asked for.
 */
static void ask_all(struct held_objects *held)
{
	search(held, ask_one);
	for (uint32_t i = 0; i < held->count; i++) {
		const struct held_object *object = &held->of[i];

		if (object->consumer && object->consumer->holders && !object->named)
			pdn_objects[object->number].outlives = true;
	}
}

void pdn_objects_ask_holders(uint32_t region, const struct pdn_scope *scope)
{
	struct held_objects held = {.region = &pdn_regions[region], .scope = scope};
	uint32_t last = 0;

	do {
		last = next_objects(&held, region, last);
		ask_all(&held);
	} while (last);
}

uint64_t pdn_objects_name_holders(uint32_t region, enum pindown_reason reason,
				  const struct pdn_scope *scope)
{
	struct held_objects held = {
		.region = &pdn_regions[region],
		.scope = scope,
		.reason = (uint16_t)reason,
	};
	uint32_t last = 0;

	if ((!is_traced() && !pdn_held_line_is_due(&pdn_regions[region])) ||
	    reason == PINDOWN_REASON_EVICTED || reason == PINDOWN_REASON_FLUSHED)
		return 0;
	held.free_stack = is_traced() ? pdn_trace_stack(true) : 0;
	do {
		last = next_objects(&held, region, last);
		name_all(&held);
	} while (last);
	return held.caller;
}
