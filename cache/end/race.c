/* SPDX-License-Identifier: MIT */
/* Guards and flights: frees and pins that meet. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>

#include "cache/base/barrier.h"
#include "cache/backend/backend.h"
#include "cache/end/race.h"
#include "cache/base/lock.h"
#include "cache/base/test_point.h"

/*
 * Frees by threads that could get no record are only counted (base/thread.h). While there is one,
 * everything is guarded. Sequentially consistent here and where such a free then looks for flights
 * (hook_events.c). A pin adds one, and loads the count behind the barrier that follows, whose fence
 * is enough then, whichever side pays: one of the two sees the other.
 */
static inline __attribute__((always_inline)) uint32_t recordless_now(void)
{
	return __atomic_load_n(&pdn_thread_recordless, __ATOMIC_SEQ_CST);
}

/* Such a free's guard: with the life of the process, as in a child it does not count any more. */
#define RECORDLESS 0x80000000u

bool pdn_scope_covers(const struct pdn_scope *scope, const struct pdn_memory *memory)
{
	if (memory->context == PDN_ANY_CONTEXT && scope->kind > PDN_GUARD_RANGE)
		return true;
	switch (scope->kind) {
	case PDN_GUARD_NONE:
		return false;
	case PDN_GUARD_RANGE:
		return memory->base < scope->end && scope->begin < memory->end;
	case PDN_GUARD_CONTEXT:
		return memory->context && memory->context == scope->context;
	case PDN_GUARD_DEVICE:
		return memory->context && memory->device == scope->device;
	case PDN_GUARD_ALL:
		return true;
	}
	return true;
}

PDN_WEAK_EVENT(retiring_free_ended, (uint64_t addr));

/* A slot's `begin` has room for either. */
static uint64_t begin_of(const struct pdn_scope *scope)
{
	return scope->kind == PDN_GUARD_CONTEXT ? (uintptr_t)scope->context : scope->begin;
}

bool pdn_any_wide_end_ever;

pdn_guard pdn_guard_up(const struct pdn_scope *scope)
{
	struct pdn_thread *self = pdn_self();
	unsigned depth;

	if (scope->kind > PDN_GUARD_RANGE)
		__atomic_store_n(&pdn_any_wide_end_ever, true, __ATOMIC_SEQ_CST);
	if (!self)
		return RECORDLESS | (pdn_thread_count_recordless(1, 0) & ~PDN_GUARD_RETIRES);
	if (self->guard_depth == PDN_NO_GUARD_YET)
		pdn_thread_frees(self);
	if (pdn_guard_has_slot(self))
		return pdn_guard_fill(self, scope->kind, begin_of(scope), scope->end,
				      scope->device);
	depth = (unsigned)self->guard_depth++;
	pdn_publish32(&self->guards[PDN_GUARDS - 1].kind, PDN_GUARD_ALL);
	return depth;
}

/* The address is reserved before the guard goes down: then no pin finds it between the two. */
static void __attribute__((noinline, cold)) ended_rarely(pdn_guard guard)
{
	pdn_guard plain = guard & ~PDN_GUARD_RETIRES;

	/* If a callback has forked, this is the child, which may have no record. */
	if (guard & PDN_GUARD_RETIRES && pdn_self_tls)
		PDN_NOTIFY(retiring_free_ended, pdn_self_tls->guards[plain].begin);
	if (plain & RECORDLESS)
		pdn_thread_count_recordless(-1, plain & ~RECORDLESS);
	else
		pdn_ended(plain);
}

void __attribute__((noinline)) pdn_ended(pdn_guard guard)
{
	struct pdn_thread *self = pdn_self_tls;

	if (__builtin_expect(guard & (RECORDLESS | PDN_GUARD_RETIRES), 0)) {
		ended_rarely(guard);
		return;
	}
	/*
	 * A fork inside the guarded call leaves a child whose record was wiped, or that has none.
	 */
	if (!self || self->guard_depth <= 0)
		return;
	self->guard_depth = (int32_t)guard;
	PDN_POINT(FREE_ENDED, guard < PDN_GUARDS ? self->guards[guard].begin : 0);
	/*
	 * Release: a thread that sees the guard down sees what the driver's free did before. A
	 * widened slot stays wide until its first owner is done.
	 */
	if (guard < PDN_GUARDS)
		__atomic_store_n(&self->guards[guard].kind, PDN_GUARD_NONE, __ATOMIC_RELEASE);
}

/*
 * The kind is loaded first, with acquire: pairs with pdn_guard_fill(), which stores it last. If the
 * slot is reused meanwhile, this is a mixture; then the first guard went down, so that the driver's
 * free is over, and the other came up when our flight could be seen already.
 */
static struct pdn_scope scope_of(const struct pdn_guard_slot *slot)
{
	enum pdn_guard_kind kind = __atomic_load_n(&slot->kind, __ATOMIC_SEQ_CST);
	uint64_t begin = __atomic_load_n(&slot->begin, __ATOMIC_RELAXED);

	return (struct pdn_scope){
		.kind = kind,
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
static bool thread_guards(const struct pdn_thread *thread, const struct pdn_memory *memory)
{
	for (unsigned i = 0; i < PDN_GUARDS; i++) {
		struct pdn_scope scope = scope_of(&thread->guards[i]);

		if (scope.kind == PDN_GUARD_NONE)
			return false;
		if (pdn_scope_covers(&scope, memory))
			return true;
	}
	return false;
}

unsigned pdn_guard_on(const struct pdn_memory *memory)
{
	const struct pdn_thread *self = pdn_self();
	unsigned found = recordless_now() ? PDN_GUARDED : PDN_UNGUARDED;
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t;

	while ((t = pdn_walk_next_that_frees(&walk)))
		if (thread_guards(t, memory))
			found |= t == self ? PDN_GUARDED_BY_SELF : PDN_GUARDED;
	return found;
}

/* ---- flights ----------------------------------------------------------------------------- */

PDN_NOT_INHERITED struct pdn_flight *pdn_flights;

/*
 * Under the lock flights are added, but none is removed by another thread. Acquire: pairs with
 * pdn_flight_begin().
 */
static struct pdn_flight *latest(void)
{
	return __atomic_load_n(&pdn_flights, __ATOMIC_ACQUIRE);
}

bool pdn_any_flight_ever;

/*
 * Sequentially consistent: frees look for it when their guard is up. A child that is forked
 * meanwhile finds a list that is whole.
 */
void pdn_flight_add(struct pdn_flight *flight, uint64_t begin, uint64_t end)
{
	flight->memory.base = flight->reach_begin = begin;
	flight->memory.end = flight->reach_end = end;
	flight->memory.context = PDN_ANY_CONTEXT;
	flight->lost = false;
	flight->reserved = 0;
	flight->tid = pdn_my_tid();
	flight->pin = NULL;
	if (!pdn_frees_ask()) /* each free loads it: its cache line stays unwritten */
		__atomic_store_n(&pdn_any_flight_ever, true, __ATOMIC_RELAXED);
	flight->next = __atomic_load_n(&pdn_flights, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&pdn_flights, &flight->next, flight, true,
					    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
}

unsigned pdn_flight_begin(struct pdn_flight *flight, uint64_t begin, uint64_t end)
{
	pdn_flight_add(flight, begin, end);
	PDN_POINT(QUESTION_BEGUN, begin);
	/*
	 * Not earlier: which barriers there are is found out when the first thread gets its record,
	 * as this one has by now.
	 */
	if (!pdn_barrier_is_registered())
		pdn_barrier_register();
	/* Pairs with pdn_guard_up()'s publish. */
	pdn_heavy_barrier();
	pdn_barrier_report();
	return pdn_guard_on(&flight->memory);
}

static struct pdn_memory reach_of(const struct pdn_flight *flight)
{
	struct pdn_memory reach = flight->memory;

	reach.base = flight->reach_begin;
	reach.end = flight->reach_end;
	return reach;
}

/* Lock held. */
static void reach_to(struct pdn_flight *flight, uint64_t begin, uint64_t end)
{
	if (begin < flight->reach_begin)
		flight->reach_begin = begin;
	if (end > flight->reach_end)
		flight->reach_end = end;
}

unsigned __attribute__((cold))
pdn_flight_reach_further(struct pdn_flight *flight, uint64_t begin, uint64_t end)
{
	struct pdn_memory reach;

	pdn_lock();
	reach_to(flight, begin, end);
	reach = reach_of(flight);
	pdn_unlock();
	pdn_heavy_barrier();
	return pdn_guard_on(&reach);
}

void pdn_flight_is_of(struct pdn_flight *flight, const struct pdn_memory *memory)
{
	flight->memory = *memory;
	reach_to(flight, memory->base, memory->end);
}

/*
 * A guard's owner wakes nobody when it takes it down: that would put a wake-up on the path of every
 * free. So this side looks again and again, sleeping longer each time.
 */
bool __attribute__((cold)) pdn_flight_wait(const struct pdn_flight *flight)
{
	const struct pdn_memory reach = reach_of(flight);
	uint64_t deadline = pdn_race_deadline();
	struct pdn_backoff rest = {0};
	bool in_time = true;

	pdn_thread_set_waits(true);
	while (in_time && pdn_guard_on(&reach) & PDN_GUARDED) {
		in_time = pdn_deadline(0) < deadline;
		if (in_time)
			pdn_backoff(&rest);
	}
	pdn_thread_set_waits(false);
	return in_time;
}

enum pdn_truth __attribute__((cold))
pdn_compare_memory(uint64_t begin, uint64_t end, uint64_t buffer_id, uint64_t others)
{
	enum pdn_truth answer = PDN_UNKNOWN;
	struct pdn_flight flight;
	int saved = errno;

	if (!(pdn_flight_begin(&flight, begin, end) & PDN_GUARDED))
		answer = pdn_driver_compare(begin, end, buffer_id, others);
	pdn_flight_end_unlocked(&flight);
	errno = saved;
	return answer;
}

/*
 * It is not the latest any more. Not found: this is a child, forked in the middle of the flight,
 * and the list began again.
 */
static void __attribute__((noinline)) remove_later(struct pdn_flight *flight)
{
	struct pdn_flight *f = latest();

	while (f && f->next != flight)
		f = f->next;
	if (f)
		__atomic_store_n(&f->next, flight->next, __ATOMIC_RELEASE);
}

/*
 * Release: a free that does not find it any more finds its region in the index, or its pin undone.
 * Its own `next` is changed under the lock only.
 */
void pdn_flight_end(struct pdn_flight *flight)
{
	struct pdn_flight *found = flight;

	if (!__atomic_compare_exchange_n(&pdn_flights, &found, flight->next, false,
					 __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		remove_later(flight);
	pdn_wake_waiters();
}

void pdn_flight_end_unlocked(struct pdn_flight *flight)
{
	pdn_lock();
	pdn_flight_end(flight);
	pdn_unlock();
}

/* Its owner may look at it without the lock, too (pdn_flight_lost()). */
static void set_lost(struct pdn_flight *flight)
{
	__atomic_store_n(&flight->lost, true, __ATOMIC_RELAXED);
}

static bool covers_reach_of(const struct pdn_scope *scope, const struct pdn_flight *flight)
{
	const struct pdn_memory reach = reach_of(flight);

	return pdn_scope_covers(scope, &reach);
}

static bool may_touch(const struct pdn_flight *flight, const struct pdn_scope *scope)
{
	return scope->kind > PDN_GUARD_RANGE || covers_reach_of(scope, flight);
}

bool pdn_flights_mark_lost(const struct pdn_scope *scope)
{
	for (struct pdn_flight *f = latest(); f; f = f->next)
		if (f->pin ? pdn_scope_covers(scope, &f->memory) : covers_reach_of(scope, f))
			set_lost(f);
	return pdn_flights_under(scope) != 0;
}

uint32_t pdn_flights_under(const struct pdn_scope *scope)
{
	uint32_t me = pdn_my_tid();

	for (const struct pdn_flight *f = latest(); f; f = f->next)
		if (f->tid != me && may_touch(f, scope))
			return f->tid;
	return 0;
}

bool pdn_flight_is_duplicate(const struct pdn_flight *flight)
{
	for (const struct pdn_flight *f = latest(); f; f = f->next)
		if (f != flight && f->pin && f->tid != flight->tid &&
		    f->memory.base < flight->memory.end && flight->memory.base < f->memory.end)
			return true;
	return false;
}

void pdn_flights_drop_own(void)
{
	uint32_t me = pdn_my_tid();

	for (struct pdn_flight *f = latest(), *next; f; f = next) {
		next = f->next;
		if (f->tid == me)
			pdn_flight_end(f);
	}
}

void pdn_flights_each_pin(void (*fn)(struct pdn_pin *pin))
{
	for (const struct pdn_flight *f = latest(); f; f = f->next)
		if (f->pin)
			fn(f->pin);
}

uint64_t pdn_flights_reserved(uint32_t *count)
{
	uint64_t bytes = 0;

	*count = 0;
	for (const struct pdn_flight *f = latest(); f; f = f->next)
		if (f->reserved) {
			bytes += f->reserved;
			++*count;
		}
	return bytes;
}

/* Not this thread's own, which it may be in the middle of: it would wait for itself. */
bool pdn_flights_of_others_reserve(void)
{
	uint32_t me = pdn_my_tid();

	for (const struct pdn_flight *f = latest(); f; f = f->next)
		if (f->reserved && f->tid != me)
			return true;
	return false;
}
