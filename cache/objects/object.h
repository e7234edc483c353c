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
 *	consumer, key, region	the same; constant from LIVE on
 *	data			constant while the object is held, except on revocation
 *	all others		under the lock
 */
#ifndef PDN_OBJECT_H
#define PDN_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/hook_events.h"
#include "cache/pindown.h"
#include "cache/end/race.h"
#include "cache/hit/region.h"
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
enum pdn_object_state {
	PDN_OBJECT_FREE,
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
	uint32_t victim;     /* the next one in a list of objects being ended, or of free records */
			     /* REVOKED: the number of a range that is retired with it, or 0 */
	uint32_t worker;     /* ENDING, DYING: tid of the thread that ends it; 0: it has quit */
	uint16_t reason;     /* enum pindown_reason, from ENDING on */
	bool revoked : 1;    /* DYING: destroyed although it is held */
	bool called : 1;     /* DYING: its destroy callback has begun */
	bool may_retire : 1; /* its memory may be retired: see pdn_consumer_holders() */
	bool is_touched : 1; /* from ENDING on: memory has ended that it was asked for */
	bool outlives : 1;   /* from ENDING on: memory lives on that it was asked for */
	bool was_counted : 1; /* as held when memory of it ended, of which parts end later */
} __attribute__((aligned(64)));

extern struct pindown_object *pdn_objects; /* [0] is never used */

/*
 * A region's first object, for the thread that ends or has ended the region; 0: none. Many programs
 * have no objects at all: their table then does not exist, and only the pointer to it is read.
 * Relaxed: objects are linked with a region under the lock, and the region is ended under it.
 */
static inline __attribute__((always_inline)) uint32_t pdn_first_object(uint32_t region)
{
	return __atomic_load_n(&pdn_objects, __ATOMIC_RELAXED)
		       ? __atomic_load_n(&pdn_objects_of[region], __ATOMIC_RELAXED)
		       : 0;
}

/* Was there ever an object? As above: also for the thread that has ended a region, of that one. */
static inline bool pdn_any_object_ever(void)
{
	return __atomic_load_n(&pdn_objects, __ATOMIC_RELAXED) != NULL;
}

/* Relaxed: constant from LIVE on, and visible once the record was found. */
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

/* ---- lookup.c ------------------------------------------------------------------------------- */

/*
 * The region's first object is not the one, or has ended: the object with the key; or a live one
 * that serves for it by the consumer's rules. 0: there is none. The calling thread has announced
 * the region and seen it live, or holds the lock. Without the lock, an object is overlooked if any
 * comes or goes meanwhile; and another thread may end it before the caller holds it.
 */
uint32_t pdn_object_find_other(uint32_t region, uint32_t consumer, const struct pindown_key *key);

/*
 * Lock held, for these. A new object's record is to be found by this later, or is not any more.
 * false: there is no room.
 */
bool pdn_object_enter(uint32_t number, uint32_t region, uint32_t consumer,
		      const struct pindown_key *key);
void pdn_object_leave(uint32_t number);

/*
 * An object that is LIVE comes to its region, as the first of the list. It goes, once and for all:
 * from the list and from all look-ups.
 */
void pdn_object_link(uint32_t number);
void pdn_object_unlink(uint32_t number);

/*
 * An object that may end no longer serves for other keys than its own; all of a region don't; and
 * one does again, as it is LIVE after all.
 */
void pdn_object_serve_no_more(uint32_t number);
void pdn_objects_serve_no_more(uint32_t region);
void pdn_object_serve(uint32_t number);

/* A KEPT object on a live region: it stays in the list, but no look-up finds it by its key. */
void pdn_object_hide(uint32_t number);

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

/* ---- owners.c: lock held -------------------------------------------------------------------- */

/*
 * A new object's record is to be found by its consumer and owner, or is not any more. false: there
 * is no room.
 */
bool pdn_owner_enter(uint32_t number, uint32_t consumer, uint64_t owner);
void pdn_owner_leave(uint32_t number);

/* Which objects: all of a consumer, or those of one of its owners. */
struct pdn_selection {
	uint32_t consumer;
	const uint64_t *owner; /* NULL: all */
};

/* These, also those that are being made (FREE), without those that were retired; 0: no more. */
uint32_t pdn_first_selected(const struct pdn_selection *selection);
uint32_t pdn_next_selected(const struct pdn_selection *selection, uint32_t number);

/* ---- object.c: the table; lock held ------------------------------------------------------- */

uint32_t pdn_object_alloc(void);
void pdn_object_free(uint32_t number);
uint32_t pdn_object_high_water(void);

/* ---- consumer.c --------------------------------------------------------------------------- */

#define PDN_CONSUMERS	  32
#define PDN_CONSUMER_NAME 16

/*
 * Which objects of a consumer serve besides that of exactly the key. Relaxed and without the lock:
 * after the consumer's end no object of its id is live, so another one's rules find none.
 */
struct pdn_rules {
	uint64_t rights, flags;
};
extern struct pdn_rules pdn_rules[PDN_CONSUMERS];

/* Lock held. The consumer with this id, also while it is being removed; NULL: there is none. */
struct pdn_consumer *pdn_consumer(uint32_t id);

struct pdn_consumer {
	struct pindown_consumer ops;
	struct pindown_consumer_stats stats; /* only what is counted; under the lock */
	char name[PDN_CONSUMER_NAME];
	/* Names the program's registrations; NULL: it can't. Set once (pdn_consumer_holders()). */
	pdn_consumer_holders_function *holders;
	pdn_consumer_may_retire_function *may_retire;
	uint32_t running; /* callbacks */
	uint32_t turn;	  /* how often the place has been assigned: part of the id */
	/*
	 * Has it objects that are yet to be destroyed? Set with `leaving`: consumer.c knows no
	 * objects.
	 */
	bool (*has_objects)(uint32_t consumer);
	bool taken, leaving;
};

/*
 * Lock not held. Run a callback of a consumer that is counted as running, and note that this thread
 * is in it. pdn_consumer_enter() and _leave() do the counting, with the lock held.
 */
int pdn_consumer_create(struct pdn_consumer *consumer, const struct pindown_object_request *what,
			void **data, bool *asked_dmabuf);
int pdn_consumer_destroy(struct pdn_consumer *consumer, const struct pindown_object_end *what);
/* A holder may let go of its object meanwhile: a callback may read the data all the same. */
void pdn_consumer_name_holders(struct pdn_consumer *consumer,
			       const struct pdn_holder_search *search);
void pdn_consumer_enter(struct pdn_consumer *consumer);
void pdn_consumer_leave(struct pdn_consumer *consumer);

/*
 * Lock held. A callback of a consumer has ended, or an object: one that is being removed goes with
 * the last of both, as a thread that ends an object calls it.
 */
void pdn_consumer_may_go(struct pdn_consumer *consumer);

/* How many of its running callbacks this thread is in. */
uint32_t pdn_consumer_runs_here(const struct pdn_consumer *consumer);
bool pdn_any_consumer_runs_here(void);

/*
 * The flag that says whether the create callback that this thread is running on a region has asked
 * for its dma-buf; NULL: this thread runs none there.
 */
bool *pdn_consumer_asked_dmabuf(const struct pindown_region *region);
void pdn_consumers_fork_child(void);

/* ---- trace.c ----------------------------------------------------------------------- */

/* What a trace event says about an object. */
struct pdn_object_event {
	uint32_t region, number;
	const struct pindown_key *key;
	int result;
	uint16_t reason, flags;
	uint64_t begin; /* ticks; 0: took no time */
};

/* Lock not held; the region is held, or belongs to the calling thread. */
void pdn_trace_object(enum pdn_event event, const char *consumer,
		      const struct pdn_object_event *what);

/* `count` objects of one consumer are held although their memory has ended. */
void pdn_trace_held(const struct pindown_region *region, const char *consumer, uint32_t count);

/* A registration of the program's that holds an object whose memory ends. */
struct pdn_holder_event {
	uint64_t addr, size;
	uint32_t object, origin, stack;
	const struct pindown_key *key;
	uint16_t reason, flags;
};
void pdn_trace_holder(const struct pindown_region *region, const char *consumer,
		      const struct pdn_holder_event *what);

/* ---- creation.c ----------------------------------------------------------------------------- */

/* An object being made, on the stack of the thread that makes it; listed under the lock. */
struct pdn_creation {
	struct pdn_creation *next;
	uint32_t region, consumer, tid;
	struct pindown_key key;
};

/*
 * Lock held. The creation for this region, consumer and key; NULL: none is listed. If a running
 * creation is no longer listed, this process was forked in the middle of it.
 */
const struct pdn_creation *pdn_creation_find(uint32_t region, uint32_t consumer,
					     const struct pindown_key *key);
void pdn_creation_list(struct pdn_creation *creation);
void pdn_creation_unlist(const struct pdn_creation *creation);
bool pdn_creation_is_listed(const struct pdn_creation *creation);

/*
 * Lock held. Is another thread making an object on this region, or for this consumer and owner
 * (NULL: any owner)? The latter returns the tid of such a thread, or 0.
 */
uint32_t pdn_creations_on(uint32_t region);
bool pdn_creations_any(void); /* by any thread; also without the lock */
uint32_t pdn_creations_of(uint32_t consumer, const uint64_t *owner);
void pdn_creations_drop_own(void); /* lock held: see thread_quits (base/thread.h) */

/*
 * Has a region that is no longer live objects, or can it still get one? Also without the lock: the
 * calling thread has ended the region under it, and objects are linked and creations are listed
 * under it too.
 */
static inline bool pdn_objects_any(uint32_t region)
{
	return pdn_first_object(region) || pdn_creations_any();
}

/* ---- holders.c ----------------------------------------------------------------------------- */

/*
 * Lock not held, for both. The calling thread has unlinked the region, and its objects are ENDING.
 * The consumers' `holders` run.
 *
 * Find out which of the objects were asked for memory that ends with the scope, and for memory that
 * does not: sets is_touched and outlives. The scope covers a part of the region.
 *
 * Name the program's registrations that hold them, if there is a trace. Returns the code that made
 * one of them, as a return address, if a line wants it; 0: unknown.
 */
void pdn_objects_ask_holders(uint32_t region, const struct pdn_scope *scope);
uint64_t pdn_objects_name_holders(uint32_t region, enum pindown_reason reason,
				  const struct pdn_scope *scope);

/* ---- end.c, end_region.c, end_owner.c: see end.h for what they share ------------------------ */

/*
 * Lock held. The region is leaving the index: from here on each detach takes the lock. scope: as in
 * struct pdn_victims.
 */
void pdn_objects_unlink_some(uint32_t region, enum pindown_reason reason,
			     const struct pdn_scope *scope);
static inline void pdn_objects_unlink(uint32_t region, enum pindown_reason reason,
				      const struct pdn_scope *scope)
{
	if (pdn_first_object(region))
		pdn_objects_unlink_some(region, reason, scope);
}

/*
 * Lock held; as exact as pdn_region_in_use(). Do objects keep a region pinned, which may have
 * ended? Objects that end with it although they are held don't.
 */
bool pdn_objects_some_hold(uint32_t region);
static inline __attribute__((always_inline)) bool pdn_objects_hold(uint32_t region)
{
	return pdn_first_object(region) && pdn_objects_some_hold(region);
}

/*
 * Lock not held; all subscribers have been notified of the region's end. Destroy its idle objects,
 * revoke or keep the held ones, and wait for other threads that are making or destroying some.
 */
void pdn_objects_end(uint32_t region, const struct pdn_scope *scope);

/*
 * Lock held. Does a kept region wait until its memory is handed out again, or ends
 * (pdn_first_awaiting())?
 */
bool pdn_objects_await_reuse(uint32_t region);

/* Lock not held. The driver has handed [begin, end) out again. */
void pdn_objects_end_reused(uint64_t begin, uint64_t end);

/* Lock not held. Destroy the idle objects of an owner that lives on. */
void pdn_objects_drop_idle(int consumer, uint64_t owner);

/* Lock not held. The last hold of an object that is no longer LIVE may have been dropped. */
void pdn_object_let_go(uint32_t number);

void pdn_objects_drop_own(void); /* lock held: see thread_quits (base/thread.h) */

#endif
