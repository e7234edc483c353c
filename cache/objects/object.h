/* SPDX-License-Identifier: MIT */
/*
 * Consumer objects: what consumers build on regions. Like a region's, an object's record never
 * moves, is reused under the same number, and is read without a lock.
 *
 * A region's objects form a list, newest first. A reader looks at the first few, and finds others
 * by a hash and a tree (lookup.c), between announcing the region and ending the announcement
 * (struct pdn_thread's `announced`). So a record that leaves the list of a live region is reused
 * only after a heavy barrier and after the end of every announcement made before it.
 *
 * Who may touch what:
 *	state, next		read without a lock; written under it
 *	consumer, key, region	the same; constant from MAKING on
 *	data			constant while the object is held, except on revocation
 *	all others		under the lock
 */
#ifndef PDN_OBJECT_H
#define PDN_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/hook_events.h"
#include "cache/pindown.h"
#include "cache/end/work.h"
#include "cache/objects/consumer.h"
#include "cache/hit/region.h"
#include "cache/base/thread/thread.h"

/*
 *	FREE -> MAKING -> LIVE			made by one thread, without the lock, and then
 *						found by attach
 *	MAKING -> FREE				nothing was made, or its memory ended meanwhile
 *	LIVE -> ENDING -> LIVE			held after all, and its owner lives on
 *	LIVE -> ENDING -> DYING -> FREE		idle: destroyed by one thread, without the lock
 *	LIVE -> ENDING -> KEPT -> DYING -> FREE	held when its memory or its owner ended, up to the
 *						last detach
 *	KEPT -> ENDING				its owner ended earlier; now its memory ends
 *	... -> DYING -> REVOKED -> FREE		destroyed while held; the record waits for the
 *						last detach
 */
enum pdn_object_state {
	PDN_OBJECT_FREE,
	PDN_OBJECT_MAKING,
	PDN_OBJECT_LIVE,
	PDN_OBJECT_ENDING, /* a thread is finding out whether it is held */
	PDN_OBJECT_DYING,
	PDN_OBJECT_KEPT,
	PDN_OBJECT_REVOKED,
};

struct pindown_object {
	uint32_t state;
	uint32_t consumer; /* its id */
	struct pindown_key key;
	uint32_t region;
	uint32_t next; /* the region's next object */
	void *data;
	uint32_t entry;	     /* for look-ups: lookup.c */
	uint32_t chain;	     /* the next one in a list of objects being ended, or of free records */
			     /* REVOKED: the number of a range that is retired with it, or 0 */
	uint32_t worker;     /* MAKING, ENDING, DYING: tid of the thread at work; 0: it has quit */
	uint16_t reason;     /* enum pindown_reason, from ENDING on */
	bool revoked : 1;    /* DYING: destroyed although it is held */
	bool may_retire : 1; /* its memory may be retired: see pdn_consumer_holders() */
	bool is_touched : 1; /* from ENDING on: memory has ended that it was asked for */
	bool outlives : 1;   /* from ENDING on: memory lives on that it was asked for */
	bool is_named : 1;   /* from ENDING on: its consumer has named a holder of it */
	bool was_counted : 1; /* as held when memory of it ended, of which parts end later */
} __attribute__((aligned(64)));

extern struct pindown_object *pdn_objects; /* [0] is never used */

/*
 * A region's first object, also one that is being made, for the thread that ends or has ended the
 * region; 0: none. Many programs have no objects at all: their table then does not exist, and only
 * the pointer to it is read. Relaxed: objects are linked with a region under the lock, and the
 * region is ended under it.
 */
static inline __attribute__((always_inline)) uint32_t pdn_first_object(uint32_t region)
{
	return __atomic_load_n(&pdn_objects, __ATOMIC_RELAXED)
		       ? __atomic_load_n(&pdn_objects_of[region], __ATOMIC_RELAXED)
		       : 0;
}

/* Lock held. Is any object of the region so? */
bool pdn_objects_any(uint32_t region, bool (*is)(const struct pindown_object *object));

/* Was there ever an object? As above: also for the thread that has ended a region, of that one. */
static inline bool pdn_any_object_ever(void)
{
	return __atomic_load_n(&pdn_objects, __ATOMIC_RELAXED) != NULL;
}

/* Relaxed: constant from MAKING on, and visible once the record was found. */
static inline bool pdn_object_is(const struct pindown_object *object, uint32_t consumer,
				 const struct pindown_key *key)
{
	return __atomic_load_n(&object->key.owner, __ATOMIC_RELAXED) == key->owner &&
	       __atomic_load_n(&object->key.word[0], __ATOMIC_RELAXED) == key->word[0] &&
	       __atomic_load_n(&object->key.word[1], __ATOMIC_RELAXED) == key->word[1] &&
	       __atomic_load_n(&object->consumer, __ATOMIC_RELAXED) == consumer;
}

/*
 * A link of a region's list. Acquire: pairs with pdn_object_link(), which links a record that is
 * filled in, and with pdn_object_unlink(), which passes a link on.
 */
static inline uint32_t pdn_object_load(const uint32_t *link)
{
	return __atomic_load_n(link, __ATOMIC_ACQUIRE);
}

/*
 * Lock held. Adds an object that is being made to its region's list, as the first, and to its
 * owner's; false: there is no room. The other function takes it out of these lists and of all
 * look-ups, for good.
 */
bool pdn_object_link(uint32_t number);
void pdn_object_unlink(uint32_t number);

/* Which objects: those of a region; else all of a consumer, or those of one of its owners. */
struct pdn_selection {
	uint32_t region, consumer;
	const uint64_t *owner; /* NULL: all */
};

/* Lock held. The one after `number`, or the first for 0; 0: no more. Not REVOKED ones. */
uint32_t pdn_next_selected(const struct pdn_selection *selection, uint32_t number);

static inline void pdn_object_hold(struct pdn_thread *self, uint32_t number, uint32_t change)
{
	if (__builtin_expect(self->holds != 0, 1))
		pdn_hold_own(pdn_object_holds[self->stripe], number, change);
	else
		pdn_hold_shared(pdn_object_holds, self, number, change);
}

/*
 * As pdn_region_in_use(): exact once the object is no longer LIVE and a heavy barrier has passed.
 */
static inline bool pdn_object_is_held(uint32_t number)
{
	return pdn_holds_any(pdn_object_holds, number);
}

static inline uint32_t pdn_object_number(const struct pindown_object *object)
{
	return (uint32_t)(object - pdn_objects);
}

/* Lock held, for these. */
uint32_t pdn_object_alloc(void);
void pdn_object_free(uint32_t number);
uint32_t pdn_object_high_water(void);

/* In a child: the lists are empty. */
void pdn_objects_forget(void);

#endif
