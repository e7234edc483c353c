/* SPDX-License-Identifier: MIT */
/*
 * Consumer objects: what consumers build on regions. Like a region's, an object's record never
 * moves, is reused under the same number, and is read without a lock.
 *
 * A region's objects form a list. A reader walks it between announcing the region and ending the
 * announcement (struct pd_thread's `probing`). So a record that leaves the list of a live region is
 * reused only after a heavy barrier and after the end of every announcement made before it.
 *
 * Who may touch what:
 *	state, next		read without a lock; written under it
 *	consumer, key, region	the same; constant from LIVE on
 *	data			constant while the object is held, except on revocation
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
 *	KEPT -> ENDING				its owner ended earlier; now its memory ends
 *	... -> DYING -> REVOKED -> FREE		destroyed while held; the record waits for the
 *						last detach
 */
enum pd_object_state {
	PD_OBJECT_FREE,
	PD_OBJECT_LIVE,
	PD_OBJECT_ENDING, /* a thread is finding out whether it is held */
	PD_OBJECT_DYING,
	PD_OBJECT_KEPT,
	PD_OBJECT_REVOKED,
	PD_OBJECT_ABANDONED, /* in a forked child: belongs to the parent */
};

struct pindown_object {
	uint32_t state;
	uint32_t consumer; /* its id */
	struct pindown_key key;
	uint32_t region;
	uint32_t next; /* the region's next object */
	void *data;
	uint32_t victim; /* the next one in a list of objects being ended, or of free records */
	uint32_t worker; /* ENDING, DYING: tid of the thread that ends it; 0: it has quit */
	uint16_t reason; /* enum pindown_reason, from ENDING on */
	bool revoked;	 /* DYING: destroyed although it is held */
	bool called;	 /* DYING: its destroy callback has begun */
} __attribute__((aligned(64)));

extern struct pindown_object *pd_objects;     /* [0] is never used */
extern uint32_t *pd_object_holds[PD_STRIPES]; /* as pd_holds */

/*
 * A region's first object, for the thread that ends or has ended the region; 0: none. Many programs
 * have no objects at all: their table then does not exist, and only the pointer to it is read.
 * Relaxed: objects are linked with a region under the lock, and the region is ended under it.
 */
static inline uint32_t pd_first_object(uint32_t region)
{
	return __atomic_load_n(&pd_objects, __ATOMIC_RELAXED)
		       ? __atomic_load_n(&pd_objects_of[region], __ATOMIC_RELAXED)
		       : 0;
}

/* Relaxed: constant from LIVE on, and visible once the record was found (pd_object_find()). */
static inline bool pd_object_is(const struct pindown_object *object, uint32_t consumer,
				const struct pindown_key *key)
{
	return __atomic_load_n(&object->key.owner, __ATOMIC_RELAXED) == key->owner &&
	       __atomic_load_n(&object->key.word[0], __ATOMIC_RELAXED) == key->word[0] &&
	       __atomic_load_n(&object->key.word[1], __ATOMIC_RELAXED) == key->word[1] &&
	       __atomic_load_n(&object->consumer, __ATOMIC_RELAXED) == consumer;
}

/*
 * The calling thread has announced the region and seen it live, or holds the lock. 0: none.
 * Acquire: pairs with publish() in attach.c, which links a record that it has filled in, and with
 * remove_from_region() in end.c, which passes a link on.
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

/* Lock held. The consumer with this id, also while it is being removed; NULL: there is none. */
struct pd_consumer *pd_consumer(uint32_t id);

struct pd_consumer {
	struct pindown_consumer ops;
	char name[PD_CONSUMER_NAME];
	uint32_t running; /* callbacks */
	uint32_t turn;	  /* how often the place has been assigned: part of the id */
	bool taken, leaving;
};

/*
 * Lock not held. Run a callback of a consumer that is counted as running, and note that this thread
 * is in it. pd_consumer_enter() and _leave() do the counting, with the lock held.
 */
int pd_consumer_create(struct pd_consumer *consumer, struct pindown_region *region,
		       const struct pindown_key *key, void *request, void **data,
		       bool *asked_dmabuf);
int pd_consumer_destroy(struct pd_consumer *consumer, const struct pindown_object_end *what);
void pd_consumer_enter(struct pd_consumer *consumer);
void pd_consumer_leave(struct pd_consumer *consumer);

/* How many of its running callbacks this thread is in. */
uint32_t pd_consumer_runs_here(const struct pd_consumer *consumer);
bool pd_any_consumer_runs_here(void);

/*
 * The flag that says whether the create callback that this thread is running on a region has asked
 * for its dma-buf; NULL: this thread runs none there.
 */
bool *pd_consumer_asked_dmabuf(const struct pindown_region *region);
void pd_consumers_fork_child(void);

/* ---- trace.c ----------------------------------------------------------------------- */

/* What a trace event says about an object. */
struct pd_object_event {
	uint32_t region, number;
	const struct pindown_key *key;
	int result;
	uint16_t reason, flags;
	uint64_t begin; /* ticks; 0: took no time */
};

/* Lock not held; the region is held, or belongs to the calling thread. */
void pd_trace_object(enum pd_event event, const char *consumer, const struct pd_object_event *what);

/* `count` objects of one consumer are held although their memory has ended. */
void pd_trace_held(const struct pindown_region *region, const char *consumer, uint32_t count);

/* ---- creation.c ----------------------------------------------------------------------------- */

/* An object being made, on the stack of the thread that makes it; listed under the lock. */
struct pd_creation {
	struct pd_creation *next;
	uint32_t region, consumer, tid;
	struct pindown_key key;
};

/*
 * Lock held. The creation for this region, consumer and key; NULL: none is listed. If a running
 * creation is no longer listed, this process was forked in the middle of it.
 */
const struct pd_creation *pd_creation_find(uint32_t region, uint32_t consumer,
					   const struct pindown_key *key);
void pd_creation_list(struct pd_creation *creation);
void pd_creation_unlist(const struct pd_creation *creation);
bool pd_creation_is_listed(const struct pd_creation *creation);

/*
 * Lock held. Is another thread making an object on this region, or for this consumer and owner
 * (NULL: any owner)? The latter returns the tid of such a thread, or 0.
 */
bool pd_creations_on(uint32_t region);
bool pd_creations_any(void); /* by any thread; also without the lock */
uint32_t pd_creations_of(uint32_t consumer, const uint64_t *owner);
void pd_creations_fork_child(void);
void pd_creations_forsake(void); /* lock held: see thread_quits (base/thread.h) */

/*
 * Has a region that is no longer live objects, or can it still get one? Also without the lock: the
 * calling thread has ended the region under it, and objects are linked and creations are listed
 * under it too.
 */
static inline bool pd_objects_any(uint32_t region)
{
	return pd_first_object(region) || pd_creations_any();
}

/* ---- end.c ------------------------------------------------------------------------- */

/* Lock held. The region is leaving the index: from here on each detach takes the lock. */
void pd_objects_unlink_some(uint32_t region, enum pindown_reason reason);
static inline void pd_objects_unlink(uint32_t region, enum pindown_reason reason)
{
	if (pd_first_object(region))
		pd_objects_unlink_some(region, reason);
}

/*
 * Lock held; as exact as pd_region_in_use(). Do objects keep a region that ends for this reason
 * pinned? Objects that will be revoked don't.
 */
bool pd_objects_some_hold(uint32_t region, enum pindown_reason reason);
static inline bool pd_objects_hold(uint32_t region, enum pindown_reason reason)
{
	return pd_first_object(region) && pd_objects_some_hold(region, reason);
}

/*
 * Lock not held; all subscribers have been notified of the region's end. Destroy its idle objects,
 * revoke or keep the held ones, and wait for other threads that are making or destroying some.
 */
void pd_objects_end(uint32_t region);

/* Lock held. Are the objects on a kept region revoked when its memory is handed out again? */
bool pd_objects_await_reuse(uint32_t region);

/* Lock not held. The driver has handed [begin, end) out again. */
void pd_objects_end_reused(uint64_t begin, uint64_t end);

/* Lock not held. Destroy the idle objects of an owner that lives on. */
void pd_objects_drop_idle(int consumer, uint64_t owner);

/* Lock not held. The last hold of an object that is no longer LIVE may have been dropped. */
void pd_object_let_go(uint32_t number);

void pd_objects_fork_child(void);
void pd_objects_forsake(void); /* lock held: see thread_quits (base/thread.h) */

#endif
