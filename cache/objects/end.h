/* SPDX-License-Identifier: MIT */
/*
 * The steps that an object's end is made of, for attach.c and end_with.c, and whether objects keep
 * their region.
 */
#ifndef PDN_OBJECT_END_H
#define PDN_OBJECT_END_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/environment/config.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"

/*
 * Lock held. First of store, barrier, load of the holds. Pairs with hold_object() in attach.c,
 * which loads the state and then holds within an announcement, and with pindown_detach(), which
 * drops the hold and then loads the state.
 */
static inline void pdn_object_set_state(struct pindown_object *object, enum pdn_object_state state)
{
	__atomic_store_n(&object->state, state, __ATOMIC_SEQ_CST);
}

/* Lock held. From here on each detach of it takes the lock, and it serves for its own key only. */
void pdn_object_begin_end(struct pindown_object *object, enum pindown_reason reason);

/*
 * Lock held. This thread will destroy the object after releasing the lock: it is added to a chain,
 * a list of claimed objects.
 */
void pdn_object_claim(uint32_t number, uint32_t *chain);

/* Lock not held. Destroy the claimed objects, and unpin the regions that nothing else keeps. */
void pdn_objects_destroy_claimed(uint32_t chain);

/* Lock not held. The last hold of an object that is no longer LIVE may have been dropped. */
void pdn_object_let_go(uint32_t number);

/*
 * Lock held. Waits until every announcement of a region made before this has ended, and with it any
 * look at the region's objects. The holds of an object that is no longer LIVE are exact then.
 */
void pdn_objects_let_readers_pass(void);

/* Lock held. An object is not made after all: its record is free. */
void pdn_object_unmake(uint32_t number);

/* Has the memory of a region ended that ends for this reason? Else it is still allocated. */
static inline bool pdn_reason_ends_memory(enum pindown_reason reason)
{
	return reason == PINDOWN_REASON_FREED || reason == PINDOWN_REASON_CONTEXT ||
	       reason == PINDOWN_REASON_STALE;
}

/* Lock held. Does a held object on a region with ENDS_HELD end with it? */
static inline bool pdn_object_ends_held(const struct pindown_object *object)
{
	return pdn_regions[object->region].flags & PDN_REGION_ENDS_HELD &&
	       (object->may_retire || pdn_config()->held == PDN_HELD_REVOKE);
}

/* Lock held. The same where a part of the region ends; scope: NULL: all of it does. */
static inline bool pdn_object_is_revoked_in_part(const struct pindown_object *object,
						 const struct pdn_scope *scope)
{
	return scope && !object->outlives && pdn_config()->held == PDN_HELD_REVOKE &&
	       pdn_reason_ends_memory(object->reason);
}

/*
 * Lock held. The thread that makes the object, or is about to destroy it or to find out whether it
 * has to; 0: there is none, or it has ended in a callback.
 */
static inline uint32_t pdn_object_worker(const struct pindown_object *object)
{
	return object->state == PDN_OBJECT_MAKING || object->state == PDN_OBJECT_ENDING ||
			       object->state == PDN_OBJECT_DYING
		       ? object->worker
		       : 0;
}

/* Lock held. The same; 0 also if it is the calling thread. */
static inline uint32_t pdn_object_other_worker(const struct pindown_object *object)
{
	uint32_t worker = pdn_object_worker(object);

	return worker == pdn_my_tid() ? 0 : worker;
}

/*
 * Lock held; as exact as pdn_region_in_use(). Do objects keep a region pinned that may have ended?
 * Objects that end with it although they are held don't count.
 */
bool pdn_objects_some_hold(uint32_t region);
static inline __attribute__((always_inline)) bool pdn_objects_hold(uint32_t region)
{
	return pdn_first_object(region) && pdn_objects_some_hold(region);
}

/*
 * Lock held. Does a kept region wait until its memory is handed out again, or ends
 * (pdn_first_awaiting())? If an object keeps it that outlives it, it counts as replaced from here
 * on.
 */
bool pdn_objects_await_reuse(uint32_t region);

void pdn_objects_drop_own(void); /* lock held: see thread_quits (base/thread/thread.h) */

#endif
