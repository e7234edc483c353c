/* SPDX-License-Identifier: MIT */
/* Guards: what threads are just freeing. */
#define _GNU_SOURCE

#include "cache/base/thread/barrier.h"
#include "cache/end/guard.h"
#include "cache/base/test_point.h"

/*
 * Frees by threads that could get no record are only counted (base/thread/thread.h). While there is
 * one, everything is guarded. Sequentially consistent here and where such a free then looks for
 * flights (hook_events.c). A pin adds one, and loads the count behind the barrier that follows,
 * whose fence is enough then, whichever side pays: one of the two sees the other.
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
