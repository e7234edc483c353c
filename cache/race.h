/* SPDX-License-Identifier: MIT */
/*
 * Guards and flights: how a free and a pin of the same memory, in two threads, come out right.
 *
 * A thread that frees puts up a guard in its own record before it looks for regions, and takes it
 * down after the driver's free. A thread that pins adds a flight to the list before it asks the
 * driver about the memory, and the flight says what it pins, under the lock, before that is pinned.
 * The guard is a plain store, the flight is followed by a heavy barrier (base/barrier.h), so that
 * one of the two sees the other: the free sees the flight and takes the lock, or the pin sees the
 * guard behind the barrier.
 *
 *	- A free that takes the lock when the flight says what it pins compares that with what it
 *	  ends. If it is the same it marks the flight lost: the new pin is unpinned again before the
 *	  free continues.
 *	- All other frees began before the flight said so. They don't wait for it, and leave a
 *	  mark where they see it. If there is such a mark, or any guard was up behind the barrier,
 *	  the pin looks for a guard on its memory. If one is up it waits until it is down, and asks
 *	  the driver again.
 *	- Or that free has ended by then, and the buffer id, read behind that look, tells whether
 *	  the memory is still the same. After a free of other memory it is; such a free costs a pin
 *	  no more than the two looks.
 *
 * After the pin the id is read in any case, for memory that is freed unseen.
 *
 * libcuda may crash where it is asked about memory that another thread is just freeing. So each
 * question about memory that may be freed is asked in a flight that says where the questions are
 * about. A free of memory there waits until they are answered; where its guard is up already, it is
 * waited for instead, and then the flight begins again; or the question is left out.
 *
 * Two kinds of guards do not say what is freed, and are on all memory: the deepest one of a thread
 * with more of them than slots, and those of threads that could get no record.
 */
#ifndef PDN_RACE_H
#define PDN_RACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/hook_events.h"
#include "cache/base/notify.h"
#include "cache/base/thread.h"
#include "cache/driver/driver.h"

/* Each kind behind RANGE names no addresses. */
enum pdn_guard_kind {
	PDN_GUARD_NONE,
	PDN_GUARD_RANGE,
	PDN_GUARD_CONTEXT,
	PDN_GUARD_DEVICE,
	PDN_GUARD_ALL,
};

/* What a guard covers, or what is to be ended. length 0: the allocation that holds begin. */
struct pdn_scope {
	enum pdn_guard_kind kind;
	int32_t device;
	uint64_t begin, end;
	void *context;
	bool retires; /* held registrations may end, and the address is retired (retired.h) */
};

bool pdn_scope_covers(const struct pdn_scope *scope, const struct pdn_memory *memory);

/* With PDN_GUARD_RETIRES in the guard: the driver has freed this address (retired.h). */
PDN_EVENT(retiring_free_ended, (uint64_t addr));

/* Up: with a plain publish, as base/barrier.h has it. Down: by pdn_ended(). */
pdn_guard pdn_guard_up(const struct pdn_scope *scope);

/*
 * The next slot of this thread, which has one left. It is rewritten only while its kind is NONE or,
 * by a deeper guard, widened to ALL.
 */
static inline pdn_guard pdn_guard_fill(struct pdn_thread *self, enum pdn_guard_kind kind,
				       uint64_t begin, uint64_t end, int32_t device)
{
	unsigned depth = (unsigned)self->guard_depth++;
	struct pdn_guard_slot *slot = &self->guards[depth];

	__atomic_store_n(&slot->begin, begin, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->end, end, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->device, device, __ATOMIC_RELAXED);
	pdn_publish32(&slot->kind, kind, &self->patience);
	return depth;
}

/*
 * This thread's guard, on the allocation that holds its beginning: it ends there. Relaxed: a thread
 * that sees this late takes the guard for one that may be on all behind its beginning.
 */
static inline void pdn_guard_reaches(pdn_guard guard, uint64_t end)
{
	if (guard < PDN_GUARDS)
		__atomic_store_n(&pdn_self_tls->guards[guard].end, end, __ATOMIC_RELAXED);
}

/* If not, pdn_guard_up() takes care of it. */
static inline bool pdn_guard_has_slot(const struct pdn_thread *self)
{
	return self && (uint32_t)self->guard_depth < PDN_GUARDS;
}

enum pdn_guarded {
	PDN_UNGUARDED,
	PDN_GUARDED = 1, /* by another thread */
	PDN_GUARDED_BY_SELF = 2,
};

/*
 * Is this memory being ended by some thread just now? A set of these, as several may be ending it.
 * Call after a heavy barrier.
 */
unsigned pdn_guard_on(const struct pdn_memory *memory);

/*
 * Is any thread, or this one, ending anything just now? After a heavy barrier, too, which has said
 * whether this thread is alone.
 */
bool pdn_guard_any(bool alone);

/* Wait until no other thread's guard is on it; false when the deadline passes first. */
bool pdn_guard_wait(const struct pdn_memory *memory, uint64_t deadline);

/*
 * Before a question about addresses in [begin, end), after a heavy barrier: might another thread
 * be ending memory there just now? A guard does not tell how long an allocation is, so it may be on
 * all that lies behind its beginning.
 */
enum pdn_nearness { PDN_NO_GUARD_NEAR, PDN_GUARD_MAYBE_THERE, PDN_GUARD_THERE };
enum pdn_nearness pdn_guard_near(uint64_t begin, uint64_t end);

/*
 * Without a flight: wait until none is there any more; and for those that may be there, but for
 * long calls of other memory no longer than a free takes as a rule. false: the deadline has passed.
 */
bool pdn_guard_wait_near(uint64_t begin, uint64_t end, uint64_t deadline);
extern PDN_HIDDEN uint64_t pdn_maybe_wait_ns; /* that long; tests have other values */

/*
 * A pin under way, or the opening or closing of a region's descriptor. It lies on the stack of its
 * thread. It is added to the list of flights without the lock, at the front; under the lock it is
 * removed, its members are changed, and others look at it.
 */
struct pdn_pin;
struct pdn_flight {
	struct pdn_flight *next;
	struct pdn_memory memory; /* once it is known */
	uint64_t reserved;	  /* bytes of the budget that it has taken */
	uint64_t max_dmabufs; /* the owner's limit: with this many open it must not open another */
	uint64_t asks_begin, asks_end; /* its thread asks the driver about addresses in there */
	uint32_t tid;		       /* its thread's, which need not have a record */
	struct pdn_pin *pin;	       /* or NULL; a child that is forked meanwhile abandons it */
	bool nowait;		       /* set by its owner before it begins: PINDOWN_GET_NOWAIT */
	bool known;		       /* memory has been filled in */
	bool disturbed;		       /* a free began before that, or waits for its answer */
	bool lost; /* a free of the memory began after that: the pin must not be used */
};

/* A look without the lock, to give up early. Under it, `lost` is the truth. */
static inline bool pdn_flight_lost(const struct pdn_flight *flight)
{
	return __atomic_load_n(&flight->lost, __ATOMIC_RELAXED);
}

extern PDN_HIDDEN struct pdn_flight *pdn_flights; /* the latest one first */

/*
 * Sequentially consistent: pairs with pdn_flight_begin(), as a guard is up. A free looks at this
 * before it looks at what is unsettled and at the index, as memory moves through them in this
 * order.
 */
static inline bool pdn_flights_any(void)
{
	return __atomic_load_n(&pdn_flights, __ATOMIC_SEQ_CST) != NULL;
}

/*
 * With or without the lock held. A read-modify-write operation, which a barrier can rely on. From
 * here on frees of memory in [begin, end) wait until pdn_flight_has_asked(). end 0: it asks
 * nothing.
 */
void pdn_flight_begin(struct pdn_flight *flight, uint64_t begin, uint64_t end);

/*
 * Lock not held. The flight of a question to libcuda about memory in [begin, end) begins: frees of
 * memory there wait for the answer. true: some guard is up, of any memory, and the thread has to
 * look whether it may be there.
 */
bool pdn_question_begin(struct pdn_flight *flight, uint64_t begin, uint64_t end);

/*
 * Lock not held. Does the driver have this memory there, as pdn_driver_compare() says? Asked in a
 * flight, as other threads may free it; PDN_UNKNOWN, too, if one of them is just doing so.
 * Keeps errno.
 */
enum pdn_truth pdn_compare_memory(const struct pdn_memory *memory, uint64_t buffer_id,
				  uint64_t others);

/*
 * What the flight pins are whole pages, or a piece of a pool: does that reach over its memory? Then
 * the driver looks up other allocations as well, which other threads may free.
 */
bool pdn_flight_reaches_over(const struct pdn_flight *flight);

/* The same again in the course of the flight. A heavy barrier of the whole kind has to follow. */
void pdn_flight_asks(struct pdn_flight *flight, uint64_t begin, uint64_t end);

/* Lock not needed. The driver has answered. */
void pdn_flight_has_asked(struct pdn_flight *flight);

/* Lock held. Threads that wait for something to settle wake up. */
void pdn_flight_end(struct pdn_flight *flight);

/* The same without the lock held. */
void pdn_flight_end_unlocked(struct pdn_flight *flight);

/*
 * Lock held. Mark lost all flights that the scope covers; true when any is another thread's, or
 * when another thread asks about memory there. Flights that have not yet said what they pin are
 * disturbed, and will look.
 */
bool pdn_flights_mark_lost(const struct pdn_scope *scope);

/*
 * Lock held. The driver has just made something new there: a pin to which it described other memory
 * before must ask again. One that has not asked yet will see the difference itself.
 */
void pdn_flights_mark_known_lost(const struct pdn_scope *scope);

/*
 * Lock held. No other pin has said what it pins, or reserved anything; others may just be added to
 * the list.
 */
static inline bool pdn_flight_is_alone(const struct pdn_flight *flight)
{
	return __atomic_load_n(&pdn_flights, __ATOMIC_ACQUIRE) == flight && !flight->next;
}

/* Lock held. Does another thread pin memory that overlaps this one's? */
bool pdn_flight_is_duplicate(const struct pdn_flight *flight);

/* Lock held. Whose flight, marked lost by this scope, is still under way? 0: no other thread's. */
uint32_t pdn_flights_under(const struct pdn_scope *scope);

/*
 * Lock not held. Wait until the questions of other threads about memory there are answered that
 * pdn_flights_mark_lost() has found. Not in time: the thread whose question is not; 0: they are.
 */
uint32_t pdn_flights_wait_for_answers(const struct pdn_scope *scope, uint64_t deadline);

/* Lock held. This thread is about to end, with flights on its stack. */
void pdn_flights_drop_own(void);

/* For a child, wherever other threads were when it was forked: the pins that flights have. */
void pdn_flights_each_pin(void (*fn)(struct pdn_pin *pin));

uint64_t pdn_flights_reserved(uint32_t *count);
bool pdn_flights_of_others_reserve(void);
void pdn_flights_fork_child(void);

#endif
