/* SPDX-License-Identifier: MIT */
/*
 * Guards and flights: how a free and a pin of the same memory, in two threads, come out right, and
 * how libcuda is never asked about memory that it is just freeing, where it may crash.
 *
 * A thread that frees puts up a guard in its own record, which says what it frees, and takes it
 * down after the driver's free. A thread that asks the driver about memory, or pins it, adds a
 * flight to the list first, which says what the driver will touch. The guard is a plain store, the
 * flight is followed by a heavy barrier (base/barrier.h), so that one of the two sees the other:
 *
 *	- The thread with the flight sees the guard: it asks nothing. It ends the flight, waits
 *	  until the guard is down, and begins again; or leaves the question out.
 *	- The free sees the flight, under the lock: it marks a pin of what it frees as lost, so that
 *	  it is undone, and waits until the flight has ended before it goes to the driver.
 *
 * So nothing that a flight names is in a free while the flight lasts. Memory that is freed unseen
 * is found by its buffer id, which is read after each pin.
 *
 * A thread asks the driver how far the memory reaches that it is about to free, which nobody else
 * may free meanwhile. Before the first flight of the process that is not worth it: such a guard
 * covers all memory behind its beginning, and so does one of memory that the driver does not
 * describe. Two kinds of guards are on all memory: the deepest one of a thread with more of them
 * than slots, and those of threads that could get no record.
 */
#ifndef PDN_RACE_H
#define PDN_RACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/base/process.h"
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

/* A set of memory: what a guard protects, or what an end is about. */
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
	pdn_publish32(&slot->kind, kind);
	return depth;
}

/*
 * Is it time that each free asks how far its memory reaches? Not before the first flight. Relaxed:
 * a free that sees this late puts up a guard that covers more, or sees the flight.
 */
#define PDN_REACH_UNKNOWN UINT64_MAX
extern PDN_HIDDEN bool pdn_any_flight_ever;
static inline bool pdn_frees_ask(void)
{
	return __atomic_load_n(&pdn_any_flight_ever, __ATOMIC_RELAXED);
}

/* Has a context, a device or all memory ever ended? Set before the guard is up. */
extern PDN_HIDDEN bool pdn_any_wide_end_ever;

/* This thread's guard ends there after all. Relaxed: seen late, it covers more. */
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

/* Is some of this memory being ended just now, and by whom? A set. Call after a heavy barrier. */
unsigned pdn_guard_on(const struct pdn_memory *memory);

/*
 * A question to the driver, a pin under way, or the opening or closing of a region's descriptor. It
 * lies on the stack of its thread. It is added to the list of flights without the lock, at the
 * front; under the lock it is removed, its members are changed, and others look at it.
 */
struct pdn_pin;
struct pdn_flight {
	struct pdn_flight *next;
	struct pdn_memory memory;	 /* of the pin, once there is one: a free makes it lost */
	uint64_t reach_begin, reach_end; /* all that the driver touches: frees there wait */
	uint64_t reserved;		 /* bytes of the budget that it has taken */
	uint64_t max_dmabufs; /* the owner's limit: with this many open it must not open another */
	uint32_t tid;	      /* its thread's, which need not have a record */
	struct pdn_pin *pin;  /* or NULL; a child that is forked meanwhile abandons it */
	bool nowait;	      /* set by its owner before it begins: PINDOWN_GET_NOWAIT */
	bool lost;	      /* some of the memory ends: a pin must not be used */
};

/*
 * Without the lock it is a look, to give up early. In a child the descriptor of a pin that the
 * forking thread is in the middle of has been closed.
 */
static inline bool pdn_flight_lost(const struct pdn_flight *flight)
{
	return __atomic_load_n(&flight->lost, __ATOMIC_RELAXED) || pdn_process_is_off();
}

extern PDN_HIDDEN struct pdn_flight *pdn_flights; /* the latest one first */

/*
 * Sequentially consistent: pairs with pdn_flight_begin(), as a guard is up. A free looks at this
 * before it looks at what is busy and at the index, as memory moves through them in this
 * order.
 */
static inline bool pdn_flights_any(void)
{
	return __atomic_load_n(&pdn_flights, __ATOMIC_SEQ_CST) != NULL;
}

/*
 * With or without the lock held. Frees that look for flights from here on see it; those under way
 * are not looked for. The flight is of any context's memory until the driver has described it: what
 * was there earlier may have been freed unseen, and replaced by what another context owns.
 */
void pdn_flight_add(struct pdn_flight *flight, uint64_t begin, uint64_t end);

/*
 * Lock not held. The same before a question to the driver about this memory. Returns who is ending
 * some of it: while that is another thread, nothing may be asked. This thread itself is not in the
 * driver.
 */
unsigned pdn_flight_begin(struct pdn_flight *flight, uint64_t begin, uint64_t end);

/*
 * Lock not held. From here on the flight also touches all of [begin, end), which belongs to the
 * same owner. Returns who is ending some of that; nobody, where the flight has touched it before.
 */
unsigned pdn_flight_reach_further(struct pdn_flight *flight, uint64_t begin, uint64_t end);
static inline unsigned pdn_flight_reach(struct pdn_flight *flight, uint64_t begin, uint64_t end)
{
	return begin >= flight->reach_begin && end <= flight->reach_end
		       ? PDN_UNGUARDED
		       : pdn_flight_reach_further(flight, begin, end);
}

/* Lock held. The driver has described the memory, which is what it was asked about. */
void pdn_flight_is_of(struct pdn_flight *flight, const struct pdn_memory *memory);

/*
 * Lock not held. The flight has ended. Wait until no other thread's guard is on what it touched.
 * false: the deadline has passed.
 */
bool pdn_flight_wait(const struct pdn_flight *flight);

/*
 * Lock not held. Does the driver have this memory there, as pdn_driver_compare() says? Asked in a
 * flight, as other threads may free it; PDN_UNKNOWN, too, if one of them is just doing so.
 * Keeps errno.
 */
enum pdn_truth pdn_compare_memory(uint64_t begin, uint64_t end, uint64_t buffer_id,
				  uint64_t others);

/* Lock held. Threads that wait for something to settle wake up. */
void pdn_flight_end(struct pdn_flight *flight);

/* The same without the lock held. */
void pdn_flight_end_unlocked(struct pdn_flight *flight);

/*
 * Lock held. Mark lost all flights of memory that the scope covers; until it is known what one pins
 * that is all that it touches. true: another thread's touches some, and is to be waited for.
 */
bool pdn_flights_mark_lost(const struct pdn_scope *scope);

/* Lock held. Does another thread pin memory that overlaps this one's? */
bool pdn_flight_is_duplicate(const struct pdn_flight *flight);

/*
 * Lock held. Whose flight may touch memory that the scope covers? 0: no other thread's. The end of
 * a context or a device waits for each: whose the memory is, the flight is just finding out.
 */
uint32_t pdn_flights_under(const struct pdn_scope *scope);

/* Lock held. This thread is about to end, with flights on its stack. */
void pdn_flights_drop_own(void);

/* For a child, wherever other threads were when it was forked: the pins that flights have. */
void pdn_flights_each_pin(void (*fn)(struct pdn_pin *pin));

uint64_t pdn_flights_reserved(uint32_t *count);
bool pdn_flights_of_others_reserve(void);

#endif
