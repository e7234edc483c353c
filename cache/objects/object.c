/* SPDX-License-Identifier: MIT */
/* The table of consumer objects, detach, and the questions that the holder of one can ask. */
#define _GNU_SOURCE
#include <string.h>

#include "cache/base/thread/barrier.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/environment/config.h"
#include "cache/base/memory/hashed.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/base/memory/table.h"
#include "cache/base/thread/thread.h"
#include "cache/base/visible.h"
#include "cache/hit/misuse.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "cache/objects/end.h"
#include "cache/objects/lookup.h"
#include "cache/objects/object.h"

_Static_assert(sizeof(struct pindown_object) == PDN_OBJECT_BYTES, "one cache line");

struct pindown_object *pdn_objects;

static uint32_t free_list;
static struct pdn_resting resting; /* for PINDOWN_DEBUG */

/* The highest number in use. It stays 0 with PINDOWN_DEBUG, so that misuse.h sees each detach. */
static uint32_t detach_limit;

uint32_t pdn_object_alloc(void)
{
	uint32_t number = free_list;

	if (number) {
		free_list = pdn_objects[number].chain;
		pdn_objects[number].chain = 0;
		return number;
	}
	if (!pdn_objects && !pdn_object_trees_begin())
		return 0;
	number = pdn_table_next(&pdn_object_table);
	if (number && !pdn_objects) {
		memcpy(pdn_object_holds, pdn_object_table.column,
		       PDN_STRIPES_AT_FIRST * sizeof(pdn_object_holds[0]));
		/* Pairs with pdn_first_object(). Release: for a child forked at this moment. */
		__atomic_store_n(&pdn_objects,
				 (struct pindown_object *)(void *)pdn_object_table.records,
				 __ATOMIC_RELEASE);
	}
	/* Relaxed: pairs with pindown_detach(), whose object was found after this store. */
	if (number && !pdn_debugging)
		__atomic_store_n(&detach_limit, number, __ATOMIC_RELAXED);
	return number;
}

void pdn_object_free(uint32_t number)
{
	struct pindown_object *object = &pdn_objects[number];

	/*
	 * No thread holds it or walks over it; the next one to use the record takes it under the
	 * lock.
	 */
	__atomic_store_n(&object->data, NULL, __ATOMIC_RELAXED);
	__atomic_store_n(&object->state, PDN_OBJECT_FREE, __ATOMIC_RELEASE);
	if (pdn_debugging)
		number = pdn_misuse_delay_reuse(&resting, number);
	if (!number)
		return;
	pdn_objects[number].chain = free_list;
	free_list = number;
}

uint32_t pdn_object_high_water(void)
{
	return pdn_object_table.used;
}

/* ---- lists --------------------------------------------------------------------------------- */

/* Of an object, by its number: its neighbours in the list of its region, and in that of owners. */
enum { PREVIOUS = PDN_STRIPES_AT_FIRST, OWNERS_NEXT, OWNERS_PREVIOUS };

static uint32_t *column(unsigned which, uint32_t number)
{
	return &pdn_object_table.column[which][number];
}

/*
 * The objects of each consumer, in lists by a hash of the owner: so the end of one looks at few
 * others.
 */
#define LISTS 256u
static uint32_t lists[PDN_CONSUMERS][LISTS];

static unsigned list_of(uint64_t owner)
{
	return pdn_hash(owner) % LISTS;
}

static uint32_t *owners_first(const struct pindown_object *object)
{
	return &lists[pdn_consumer_place(object->consumer)][list_of(object->key.owner)];
}

/* Release: pairs with pdn_object_load(), here and below. */
bool pdn_object_link(uint32_t number)
{
	struct pindown_object *object = &pdn_objects[number];
	uint32_t *first = &pdn_objects_of[object->region], *owners = owners_first(object);

	if (!pdn_object_enter(number))
		return false;
	*column(PREVIOUS, number) = *column(OWNERS_PREVIOUS, number) = 0;
	*column(OWNERS_NEXT, number) = *owners;
	if (*owners)
		*column(OWNERS_PREVIOUS, *owners) = number;
	*owners = number;
	if (*first)
		*column(PREVIOUS, *first) = number;
	__atomic_store_n(&object->next, *first, __ATOMIC_RELEASE);
	__atomic_store_n(first, number, __ATOMIC_RELEASE);
	return true;
}

void pdn_object_unlink(uint32_t number)
{
	struct pindown_object *object = &pdn_objects[number];
	uint32_t previous = *column(PREVIOUS, number), next = object->next;
	uint32_t before = *column(OWNERS_PREVIOUS, number), after = *column(OWNERS_NEXT, number);

	if (next)
		*column(PREVIOUS, next) = previous;
	__atomic_store_n(previous ? &pdn_objects[previous].next : &pdn_objects_of[object->region],
			 next, __ATOMIC_RELEASE);
	if (after)
		*column(OWNERS_PREVIOUS, after) = before;
	*(before ? column(OWNERS_NEXT, before) : owners_first(object)) = after;
	pdn_object_leave(number);
}

bool pdn_objects_any(uint32_t region, bool (*is)(const struct pindown_object *object))
{
	for (uint32_t n = pdn_first_object(region); n; n = pdn_objects[n].next)
		if (is(&pdn_objects[n]))
			return true;
	return false;
}

static bool is_selected(const struct pdn_selection *s, const struct pindown_object *object)
{
	return object->consumer == s->consumer && (!s->owner || object->key.owner == *s->owner);
}

uint32_t pdn_next_selected(const struct pdn_selection *s, uint32_t number)
{
	const uint32_t *first;
	unsigned list = s->owner ? list_of(*s->owner) : 0;

	if (s->region)
		return number ? pdn_objects[number].next : pdn_first_object(s->region);
	first = lists[pdn_consumer_place(s->consumer)];
	if (number)
		list = list_of(pdn_objects[number].key.owner);
	number = number ? *column(OWNERS_NEXT, number) : first[list];
	while (true) {
		while (number && !is_selected(s, &pdn_objects[number]))
			number = *column(OWNERS_NEXT, number);
		if (number || s->owner || ++list == LISTS)
			return number;
		number = first[list];
	}
}

void pdn_objects_forget(void)
{
	if (pdn_objects)
		memset(lists, 0, sizeof(lists));
}

/* ---- the holder's calls ------------------------------------------------------------------- */

/* A pointer that is not an object or, with PINDOWN_DEBUG, any pointer. */
static void __attribute__((noinline, cold)) detach_unknown(struct pindown_object *object)
{
	static bool said;

	if (object && pdn_config()->debug)
		pdn_misuse_detach(object);
	else if (object)
		pdn_log_once(&said, PDN_LOG_ERROR, "pindown_detach: %p is not an object; ignored",
			     (void *)object);
}

PDN_EXPORT void pindown_detach(struct pindown_object *object)
{
	/* As in pindown_put(): NULL yields a number far outside. */
	uint64_t place = (uint64_t)((uintptr_t)object - (uintptr_t)pdn_objects) / sizeof(*object);
	uint32_t number = (uint32_t)place;

	if (__builtin_expect(place - 1 >= __atomic_load_n(&detach_limit, __ATOMIC_RELAXED), 0)) {
		detach_unknown(object);
		return;
	}
	/*
	 * The hold is dropped before the state is read, as in pindown_put(). Pairs with
	 * pdn_object_set_state() and the barrier and the count after it: either that thread sees
	 * the hold gone, or this one sees the state.
	 */
	pdn_object_hold(pdn_self_or_anonymous(), number, -1u);
	pdn_fence_if_hits_have();
	if (__builtin_expect(__atomic_load_n(&pdn_objects[number].state, __ATOMIC_SEQ_CST) !=
				     PDN_OBJECT_LIVE,
			     0))
		pdn_object_let_go(number);
}

/* Relaxed: set before the object was found; destroy() in end.c clears it on revocation. */
PDN_EXPORT void *pindown_object_data(const struct pindown_object *object)
{
	pdn_object_is_used(object, __func__);
	return __atomic_load_n(&object->data, __ATOMIC_RELAXED);
}

PDN_EXPORT struct pindown_region *pindown_object_region(const struct pindown_object *object)
{
	pdn_object_is_used(object, __func__);
	return &pdn_regions[object->region];
}

/*
 * If it seems not to be, asks again under the lock: the end of its owner may just be finding out
 * whether it is idle, and make it LIVE again. Relaxed: the answer is of this moment only and
 * publishes nothing else.
 */
PDN_EXPORT int pindown_object_is_live(const struct pindown_object *object)
{
	PDN_UNCANCELLED;
	bool live;

	pdn_object_is_used(object, __func__);
	live = __atomic_load_n(&object->state, __ATOMIC_RELAXED) == PDN_OBJECT_LIVE;
	if (!live) {
		pdn_lock();
		live = object->state == PDN_OBJECT_LIVE;
		pdn_unlock();
	}
	return live && !pdn_process_is_off();
}
