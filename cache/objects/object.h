/* SPDX-License-Identifier: MIT */
/*
 * Consumer objects: what consumers have built on regions. As with regions, a record stays where it
 * is for good and is used again under the same number, and is looked at without a lock.
 *
 * A region's objects are a list. A reader walks it between announcing the region and ending the
 * announcement (struct pd_thread's `probing`). So a record that leaves the list of a live region is
 * used again only after a heavy barrier and when all announcements of before have ended.
 *
 * Who may touch what:
 *	state, next		read without a lock; written under it
 *	consumer, key, region	the same; constant from LIVE on
 *	data			constant while the object is held, but for revocation
 *	all others		under the lock
 */
#ifndef PD_OBJECT_H
#define PD_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/pindown.h"
#include "cache/region.h"
#include "cache/base/thread.h"
#include "cache/trace/writer.h"

/*
 *	FREE -> LIVE				made, and found by attach
 *	LIVE -> ENDING -> LIVE			held after all, and its owner lives on
 *	LIVE -> ENDING -> DYING -> FREE		idle: destroyed by one thread, without the lock
 *	LIVE -> ENDING -> KEPT -> DYING -> FREE	held when its memory or its owner ended, up to the
 *						last detach
 *	KEPT -> ENDING				... and now the memory of what was its dead owner's ends
 *	... -> DYING -> REVOKED -> FREE		destroyed while held; the record waits for the last detach
 */
enum pd_object_state {
	PD_OBJECT_FREE,
	PD_OBJECT_LIVE,
	PD_OBJECT_ENDING, /* whether it is held is being found out */
	PD_OBJECT_DYING,
	PD_OBJECT_KEPT,
	PD_OBJECT_REVOKED,
	PD_OBJECT_ABANDONED, /* in a forked child: the parent's */
};

struct pindown_object {
	uint32_t state;
	uint32_t consumer; /* its id */
	struct pindown_key key;
	uint32_t region;
	uint32_t next; /* the region's next object */
	void *data;
	uint32_t victim; /* the next one in a list of objects being ended, or of free records */
	uint32_t worker; /* ENDING, DYING: the tid of who sees to it; 0: that thread is gone */
	uint16_t reason; /* enum pindown_reason, from ENDING on */
	bool revoked;	 /* DYING: somebody holds it */
	bool called;	 /* DYING: its destroy callback has begun */
} __attribute__((aligned(64)));

extern struct pindown_object *pd_objects;     /* [0] is never used */
extern uint32_t *pd_object_holds[PD_STRIPES]; /* as pd_holds */

/*
 * The same, for who ends or has ended the region. Many programs have no objects at all, and then their table is not
 * there, and not even this is looked at. Relaxed: what is linked with the region was, under the lock.
 */
static inline uint32_t pd_first_object(uint32_t region)
{
	return __atomic_load_n(&pd_objects, __ATOMIC_RELAXED)
		       ? __atomic_load_n(&pd_objects_of[region], __ATOMIC_RELAXED)
		       : 0;
}

/* Relaxed: constant from LIVE on, and seen by who has found the record (pd_object_find()). */
static inline bool pd_object_is(const struct pindown_object *object, uint32_t consumer,
				const struct pindown_key *key)
{
	return __atomic_load_n(&object->key.owner, __ATOMIC_RELAXED) == key->owner &&
	       __atomic_load_n(&object->key.word[0], __ATOMIC_RELAXED) == key->word[0] &&
	       __atomic_load_n(&object->key.word[1], __ATOMIC_RELAXED) == key->word[1] &&
	       __atomic_load_n(&object->consumer, __ATOMIC_RELAXED) == consumer;
}

/*
 * The region is announced by this thread and live, or the lock is held. 0: none. Acquire: pairs
 * with publish() in attach.c, which links what it has filled in, and with remove_from_region(),
 * which hands a link on.
 */
static inline uint32_t pd_object_find(uint32_t region, uint32_t consumer,
				      const struct pindown_key *key)
{
	uint32_t n = __atomic_load_n(&pd_objects_of[region], __ATOMIC_ACQUIRE);

	while (n && !pd_object_is(&pd_objects[n], consumer, key))
		n = __atomic_load_n(&pd_objects[n].next, __ATOMIC_ACQUIRE);
	return n;
}

static inline void pd_object_hold(struct pd_thread *self, uint32_t number, uint32_t change)
{
	if (__builtin_expect(self->holds != 0, 1))
		pd_hold_own(pd_object_holds[self->stripe], number, change);
	else
		pd_hold_shared(pd_object_holds, self, number, change);
}

/* As pd_region_in_use(): exact once the object is no longer LIVE and a heavy barrier has passed. */
static inline bool pd_object_is_held(uint32_t number)
{
	return pd_holds_any(pd_object_holds, number);
}

static inline uint32_t pd_object_number(const struct pindown_object *object)
{
	return (uint32_t)(object - pd_objects);
}

/* ---- object.c: the table; lock held ------------------------------------------------------- */

uint32_t pd_object_alloc(void);
void pd_object_free(uint32_t number);
uint32_t pd_object_high_water(void);

/* ---- consumer.c --------------------------------------------------------------------------- */

#define PD_CONSUMERS	 32
#define PD_CONSUMER_NAME 16

/* Lock held. The table entry of an id, also while it is being removed; NULL: no such consumer. */
struct pd_consumer *pd_consumer(uint32_t id);

struct pd_consumer {
	struct pindown_consumer ops;
	char name[PD_CONSUMER_NAME];
	uint32_t running; /* callbacks */
	uint32_t turn;	  /* how often the place has been given away: part of the id */
	bool taken, leaving;
};

/*
 * Lock not held. Call back on behalf of a consumer that is counted as running, and note it as what
 * this thread is just doing. pd_consumer_enter() and _leave() count, with the lock held.
 */
int pd_consumer_create(struct pd_consumer *consumer, struct pindown_region *region,
		       const struct pindown_key *key, void *request, void **data,
		       bool *asked_dmabuf);
int pd_consumer_destroy(struct pd_consumer *consumer, const struct pindown_object_end *what);
void pd_consumer_enter(struct pd_consumer *consumer);
void pd_consumer_leave(struct pd_consumer *consumer);

/* How many of its running callbacks are this thread's. */
uint32_t pd_consumer_runs_here(const struct pd_consumer *consumer);
bool pd_any_consumer_runs_here(void);

/*
 * Whether the create that this thread runs on a region has asked for its dma-buf, to be changed;
 * NULL: it runs none there.
 */
bool *pd_consumer_asked_dmabuf(const struct pindown_region *region);
void pd_consumers_fork_child(void);

/* ---- trace.c ----------------------------------------------------------------------- */

/* Lock not held; the region is held, or ours. What an event says of an object. */
struct pd_object_event {
	uint32_t region, number;
	const struct pindown_key *key;
	int result;
	uint16_t reason, flags;
	uint64_t begin; /* ticks; 0: took no time */
};
void pd_trace_object(enum pd_event event, const char *consumer, const struct pd_object_event *what);

/* Of one consumer, `count` objects are held though their memory has ended. */
void pd_trace_held(const struct pindown_region *region, const char *consumer, uint32_t count);

/* ---- creation.c ----------------------------------------------------------------------------- */

/* An object that is being made, on the stack of the thread that makes it; listed under the lock. */
struct pd_creation {
	struct pd_creation *next;
	uint32_t region, consumer, tid;
	struct pindown_key key;
};

/*
 * Lock held. One of this region, consumer and key; NULL: none is being made. One that is no longer
 * listed was listed in the parent of this process, which was forked in the middle of it.
 */
const struct pd_creation *pd_creation_find(uint32_t region, uint32_t consumer,
					   const struct pindown_key *key);
void pd_creation_list(struct pd_creation *creation);
void pd_creation_unlist(const struct pd_creation *creation);
bool pd_creation_is_listed(const struct pd_creation *creation);

/*
 * Lock held. Is another thread making an object on this region, or of this consumer and owner? Of these
 * the tid of one that does, or 0.
 */
bool pd_creations_on(uint32_t region);
bool pd_creations_any(void); /* without the lock, too */
uint32_t pd_creations_of(uint32_t consumer, const uint64_t *owner);
void pd_creations_fork_child(void);
void pd_creations_forsake(void); /* lock held: see thread_quits (base/thread.h) */

/*
 * Of a region that is no longer live; without the lock, too. Has it objects, or may get one?
 * Relaxed: this thread has ended it, under the lock that objects are linked with and creations are
 * listed with.
 */
static inline bool pd_objects_any(uint32_t region)
{
	return pd_first_object(region) || pd_creations_any();
}

/* ---- end.c ------------------------------------------------------------------------- */

/* Lock held. The region is leaving the index: from here on each detach comes for the lock. */
void pd_objects_unlink_some(uint32_t region, enum pindown_reason reason);
static inline void pd_objects_unlink(uint32_t region, enum pindown_reason reason)
{
	if (pd_first_object(region))
		pd_objects_unlink_some(region, reason);
}

/*
 * Lock held, as exact as pd_region_in_use(). Do objects keep a region of this reason from being
 * unpinned? Those that will be revoked don't.
 */
bool pd_objects_some_hold(uint32_t region, enum pindown_reason reason);
static inline bool pd_objects_hold(uint32_t region, enum pindown_reason reason)
{
	return pd_first_object(region) && pd_objects_some_hold(region, reason);
}

/*
 * Lock not held; everybody has been told of the region's end. Destroy its idle objects, revoke or
 * keep the held ones, and wait for other threads that are making or destroying some of them.
 */
void pd_objects_end(uint32_t region);

/* Lock held. Of a region that is kept: is what holds it revoked when its memory is handed out again? */
bool pd_objects_await_reuse(uint32_t region);

/* Lock not held. The driver has handed [begin, end) out again. */
void pd_objects_end_reused(uint64_t begin, uint64_t end);

/* Lock not held. Destroy the idle objects of an owner that lives on. */
void pd_objects_drop_idle(int consumer, uint64_t owner);

/* Lock not held. The last hold of an object that is not LIVE any more may have been dropped. */
void pd_object_let_go(uint32_t number);

void pd_objects_fork_child(void);
void pd_objects_forsake(void); /* lock held: see thread_quits (base/thread.h) */

#endif
