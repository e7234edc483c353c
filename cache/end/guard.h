/* SPDX-License-Identifier: MIT */
/*
 * Guards: how a free and a pin of the same memory, in two threads, come out right, and
 * how libcuda is never asked about memory that it is just freeing, where it may crash.
 *
 * A thread that frees puts up a guard in its own record, which says what it frees, and takes it
 * down after the driver's free. A thread that asks the driver about memory, or pins it, adds a
 * flight to the list first, which says what the driver will touch. The guard is a plain store, the
 * flight is followed by a heavy barrier (base/thread/barrier.h), so that one of the two sees the
 * other:
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
#ifndef PDN_GUARD_H
#define PDN_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/hook_events.h"
#include "cache/base/notify.h"
#include "cache/base/thread/thread.h"
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

/* Up: with a plain publish, as base/thread/barrier.h has it. Down: by pdn_ended(). */
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

#endif
