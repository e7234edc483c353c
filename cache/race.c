/* SPDX-License-Identifier: MIT */
/* Guards and flights: frees and pins that meet. */
#define _GNU_SOURCE
#include <stddef.h>

#include "cache/base/barrier.h"
#include "cache/race.h"
#include "cache/base/lock.h"
#include "cache/base/test_point.h"

/*
 * Frees by threads that could get no record. While there is one, everything is guarded.
 * Sequentially consistent here and where such a free then loads pd_unsettled (hook_events.c). A pin
 * stores that, and loads this behind pd_heavy_barrier(), whose fence is enough then, whichever side
 * pays: one of the two sees the other.
 */
static uint32_t recordless;

#define RECORDLESS (~0u)

bool pd_scope_covers(const struct pd_scope *scope, const struct pd_memory *memory)
{
	switch (scope->kind) {
	case PD_GUARD_NONE:
		return false;
	case PD_GUARD_RANGE:
		if (scope->end <= scope->begin) /* the allocation that holds begin */
			return memory->base <= scope->begin && scope->begin < memory->end;
		return memory->base < scope->end && scope->begin < memory->end;
	case PD_GUARD_CONTEXT:
		return memory->context && memory->context == scope->context;
	case PD_GUARD_DEVICE:
		return memory->context && memory->device == scope->device;
	case PD_GUARD_ALL:
		return true;
	}
	return true;
}

/* A slot's `begin` has room for either. */
static uint64_t begin_of(const struct pd_scope *scope)
{
	return scope->kind == PD_GUARD_CONTEXT ? (uintptr_t)scope->context : scope->begin;
}

pd_guard pd_guard_up(const struct pd_scope *scope)
{
	struct pd_thread *self = pd_self();
	unsigned depth;

	if (!self) {
		__atomic_fetch_add(&recordless, 1, __ATOMIC_SEQ_CST);
		return RECORDLESS;
	}
	if (pd_guard_has_slot(self))
		return pd_guard_fill(self, scope->kind, begin_of(scope), scope->end, scope->device);
	depth = self->guard_depth++;
	pd_publish32(&self->guards[PD_GUARDS - 1].kind, PD_GUARD_ALL, &self->patience);
	return depth;
}

void pd_ended(pd_guard guard)
{
	struct pd_thread *self = pd_self_tls;

	if (__builtin_expect(guard == RECORDLESS, 0)) {
		__atomic_fetch_sub(&recordless, 1, __ATOMIC_SEQ_CST);
		return;
	}
	/*
	 * A fork inside the guarded call leaves a child whose record was wiped, or that has none.
	 */
	if (!self || self->guard_depth == 0)
		return;
	self->guard_depth = (uint8_t)guard;
	PD_POINT(FREE_ENDED, guard < PD_GUARDS ? self->guards[guard].begin : 0);
	/*
	 * Release: a thread that sees the guard down sees what the driver's free did before. A
	 * widened slot stays wide until its first owner is done.
	 */
	if (guard < PD_GUARDS)
		__atomic_store_n(&self->guards[guard].kind, PD_GUARD_NONE, __ATOMIC_RELEASE);
}

/*
 * The kind was loaded before, with acquire: pairs with pd_guard_fill(), which stores it last. If
 * the slot has been reused meanwhile, this is a mixture; then the first guard went down, which the
 * buffer ids show, and the other came up when our flight could be seen already.
 */
static struct pd_scope scope_of(const struct pd_guard_slot *slot)
{
	uint64_t begin = __atomic_load_n(&slot->begin, __ATOMIC_RELAXED);

	return (struct pd_scope){
		.kind = __atomic_load_n(&slot->kind, __ATOMIC_SEQ_CST),
		.begin = begin,
		.end = __atomic_load_n(&slot->end, __ATOMIC_RELAXED),
		.device = __atomic_load_n(&slot->device, __ATOMIC_RELAXED),
		.context = (void *)(uintptr_t)begin,
	};
}

/*
 * Deeper guards come up later and go down earlier: if one is not up, those behind it have gone
 * down, or came up when our flight could be seen already.
 */
static bool thread_guards(const struct pd_thread *thread, const struct pd_memory *memory)
{
	for (unsigned i = 0; i < PD_GUARDS; i++) {
		const struct pd_guard_slot *slot = &thread->guards[i];
		struct pd_scope scope;

		if (__atomic_load_n(&slot->kind, __ATOMIC_SEQ_CST) == PD_GUARD_NONE)
			return false;
		scope = scope_of(slot);
		if (pd_scope_covers(&scope, memory))
			return true;
	}
	return false;
}

enum pd_guarded pd_guard_on(const struct pd_memory *memory)
{
	const struct pd_thread *self = pd_self();
	enum pd_guarded found = PD_UNGUARDED;

	if (__atomic_load_n(&recordless, __ATOMIC_SEQ_CST))
		found = PD_GUARDED;
	for (const struct pd_thread *t = pd_threads(); t; t = t->next)
		if (thread_guards(t, memory)) {
			if (t == self)
				return PD_GUARDED_BY_SELF;
			found = PD_GUARDED;
		}
	return found;
}

/* A thread's first slot is up as long as any of them. */
bool pd_guard_any(void)
{
	if (__atomic_load_n(&recordless, __ATOMIC_SEQ_CST))
		return true;
	for (const struct pd_thread *t = pd_threads(); t; t = t->next)
		if (__atomic_load_n(&t->guards[0].kind, __ATOMIC_SEQ_CST) != PD_GUARD_NONE)
			return true;
	return false;
}

/*
 * A guard's owner wakes nobody when it takes it down: that would put a wake-up on the path of every
 * free. So this side looks again and again, sleeping longer each time.
 */
bool pd_guard_wait(const struct pd_memory *memory, uint64_t deadline)
{
	struct pd_rest rest = {0};
	bool in_time = true;

	pd_thread_set_waits(true);
	while (in_time && pd_guard_on(memory) == PD_GUARDED) {
		in_time = pd_deadline(0) < deadline;
		if (in_time)
			pd_rest(&rest);
	}
	pd_thread_set_waits(false);
	return in_time;
}

/* ---- flights ----------------------------------------------------------------------------- */

static struct pd_flight *flights;

void pd_flight_begin(struct pd_flight *flight)
{
	flight->known = flight->disturbed = flight->lost = false;
	flight->reserved = 0;
	flight->thread = pd_self();
	flight->pin = NULL;
	flight->next = flights;
	/* Release, here and below: a child that is forked meanwhile finds a list that is whole. */
	__atomic_store_n(&flights, flight, __ATOMIC_RELEASE);
	pd_unsettled_add(1); /* and then the barrier: pin.c, take_off() */
}

/* Not found: this is a child, forked in the middle of the flight, and all counts began again. */
void pd_flight_end(struct pd_flight *flight)
{
	struct pd_flight **f = &flights;

	while (*f && *f != flight)
		f = &(*f)->next;
	if (!*f)
		return;
	__atomic_store_n(f, flight->next, __ATOMIC_RELEASE);
	pd_unsettled_add(-1u);
	pd_wake_waiters();
}

void pd_flight_land(struct pd_flight *flight)
{
	pd_lock();
	pd_flight_end(flight);
	pd_unlock();
}

static bool pins(const struct pd_flight *flight, const struct pd_scope *scope)
{
	return flight->known && pd_scope_covers(scope, &flight->memory);
}

/* Its owner may look at it without the lock, too (pd_flight_lost()). */
static void set_lost(struct pd_flight *flight)
{
	__atomic_store_n(&flight->lost, true, __ATOMIC_RELAXED);
}

bool pd_flights_lose(const struct pd_scope *scope)
{
	const struct pd_thread *self = pd_self();
	bool others = false;

	for (struct pd_flight *f = flights; f; f = f->next) {
		f->disturbed |= !f->known;
		if (pins(f, scope)) {
			set_lost(f);
			others |= f->thread != self;
		}
	}
	return others;
}

void pd_flights_lose_known(const struct pd_scope *scope)
{
	for (struct pd_flight *f = flights; f; f = f->next)
		if (pins(f, scope))
			set_lost(f);
}

bool pd_flights_under(const struct pd_scope *scope)
{
	const struct pd_thread *self = pd_self();

	for (const struct pd_flight *f = flights; f; f = f->next)
		if (f->lost && f->thread != self && pins(f, scope))
			return true;
	return false;
}

bool pd_flight_has_company(const struct pd_flight *flight)
{
	for (const struct pd_flight *f = flights; f; f = f->next)
		if (f != flight && f->known && f->thread != flight->thread &&
		    f->memory.base < flight->memory.end && flight->memory.base < f->memory.end)
			return true;
	return false;
}

bool pd_flights_any(void)
{
	return flights != NULL;
}

void pd_flights_forsake(void)
{
	const struct pd_thread *self = pd_self();

	for (struct pd_flight *f = flights, *next; f; f = next) {
		next = f->next;
		if (f->thread == self)
			pd_flight_end(f);
	}
}

void pd_flights_each_pin(void (*fn)(struct pd_pin *pin))
{
	for (const struct pd_flight *f = flights; f; f = f->next)
		if (f->pin)
			fn(f->pin);
}

uint64_t pd_flights_reserved(uint32_t *count)
{
	uint64_t bytes = 0;

	*count = 0;
	for (const struct pd_flight *f = flights; f; f = f->next)
		if (f->reserved) {
			bytes += f->reserved;
			++*count;
		}
	return bytes;
}

/* Not this thread's own, which it may be in the middle of: it would wait for itself. */
bool pd_flights_of_others_reserve(void)
{
	const struct pd_thread *self = pd_self();

	for (const struct pd_flight *f = flights; f; f = f->next)
		if (f->reserved && f->thread != self)
			return true;
	return false;
}

void pd_flights_fork_child(void)
{
	/*
	 * This thread may be in the middle of one, with the descriptor that it has closed by now.
	 */
	for (struct pd_flight *f = flights; f; f = f->next)
		set_lost(f);
	flights = NULL;
	recordless = 0;
}
