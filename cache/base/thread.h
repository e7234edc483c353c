/* SPDX-License-Identifier: MIT */
/*
 * One record for each thread that ever called pindown. Records are never unmapped: another thread
 * may be reading a guard while its owner ends. The record of a thread that has ended is given to
 * the next new thread.
 */
#ifndef PD_THREAD_H
#define PD_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/barrier.h"
#include "cache/base/notify.h"
#include "cache/base/visible.h"

/*
 * Counted by the owner alone, without the cost of atomics (relaxed load + store); summed by
 * readers.
 */
struct pd_counters {
	uint64_t hits;
	uint64_t misses;
	uint64_t tag_checks;
	uint64_t lost_events; /* trace records that found no room */
	uint64_t spare[4];
};

#define PD_GUARDS 4 /* nested frees in one thread; deeper ones widen the last to "everything" */

/*
 * What a thread is about to end; see race.h. The members are written before kind is published, and
 * kind is cleared when the call has ended.
 */
struct pd_guard_slot {
	uint32_t kind; /* enum pd_guard_kind; 0: none */
	int32_t device;
	uint64_t begin, end; /* a range; or begin is a context */
};

/* Hold counts are kept in stripes: the first threads to get have one of their own each. */
#define PD_STRIPES	 8
#define PD_STRIPE_SHARED 0 /* of all other threads, with atomics */

/*
 * The stripes from the first one up to this were ever used. Most processes never use the shared
 * one.
 */
extern PD_HIDDEN uint32_t pd_stripes_first, pd_stripes_used;

struct pd_journal_piece;

struct pd_thread {
	/* The owner's; no other thread reads these. */
	struct pd_counters
		*counters; /* own_counters, or in the trace's journal while there is one */
	uint32_t *holds;   /* its stripe of hold counts, if no other thread writes there;
					 else NULL, see pd_hold_shared() */
	uint32_t stripe;   /* index into pd_holds; PD_STRIPE_SHARED: atomics needed */
	bool stripe_asked; /* it has tried to get a stripe of its own */
	bool is_looking;   /* until_look has been set */
	uint8_t guard_depth;
	/*
	 * Hits until the next one that takes the long way: to be compared with the driver, or
	 * traced.
	 */
	int32_t until_look;
	int driver_error; /* pindown_driver_error() */
	struct pd_patience patience;
	/* The trace's: where this thread writes. */
	char *trace_at, *trace_end;
	struct pd_journal_piece *trace_piece;
	char *trace_memory;
	uint64_t trace_base;
	uint64_t stack_low,
		stack_high; /* the part of its own stack that is known to be readable; 0, 0 */

	/* Written by the owner, read by others. */
	uint32_t probing __attribute__((aligned(64))); /* region number being validated, or 0 */
	uint32_t owned;				       /* 1: a live thread's */
	uint32_t waits; /* 1: it sleeps until another thread has done something */
	int32_t tid;
	struct pd_guard_slot guards[PD_GUARDS];
	struct pd_counters own_counters;
	struct pd_thread *next; /* all records; never unlinked */
} __attribute__((aligned(64)));

extern PD_HIDDEN __thread struct pd_thread *pd_self_tls __attribute__((tls_model("initial-exec")));

/*
 * A thread has got its record; its record is about to be given to another. Called by the thread
 * itself.
 */
PD_EVENT(thread_starts, (struct pd_thread *));
PD_EVENT(thread_exits, (struct pd_thread *));

/* Its counters may move, unless a trace has them: after thread_starts, by the thread itself. */
PD_EVENT(thread_counts, (struct pd_thread *));

/*
 * A callback of the program has ended this thread, which is forbidden: everything of the thread's
 * that others may look at leaves its stack, and nobody waits for the thread. Lock not held.
 */
void pd_thread_quits(void);
PD_EVENT(thread_quits, (void));

/* Takes a record for this thread; NULL when there is no memory for one. Keeps errno. */
struct pd_thread *pd_thread_attach(void);

static inline struct pd_thread *pd_self(void)
{
	struct pd_thread *self = pd_self_tls;

	return __builtin_expect(self != 0, 1) ? self : pd_thread_attach();
}

/* For a thread that could get no record: it shares a stripe of hold counts. */
extern struct pd_thread pd_anonymous;

static inline struct pd_thread *pd_self_or_anonymous(void)
{
	struct pd_thread *self = pd_self();

	return self ? self : &pd_anonymous;
}

/* This thread's number in the system. */
uint32_t pd_my_tid(void);

/*
 * The list of all records, for walking with ->next; safe without a lock. And how many there are, or
 * will be.
 */
struct pd_thread *pd_threads(void);
extern PD_HIDDEN uint32_t pd_thread_records;

/*
 * No other thread has a record. Sequentially consistent: a thread that this overlooks will see all
 * that was stored so before.
 */
bool pd_thread_is_alone(void);

/* Try, once in this thread's life, to get a stripe of hold counts that no other thread uses. */
void pd_thread_claim_stripe(struct pd_thread *self);

/*
 * One hit less until the next that takes the long way; true: it is this one. In one instruction, as
 * in pd_add_late(). Relaxed: pairs with pd_thread_look_now().
 */
static inline bool pd_thread_counts_down(struct pd_thread *self)
{
#if PD_CAN_ASYM && defined(__x86_64__)
	__asm__ goto("subl $1, %0\n\tjs %l[due]" : : "m"(self->until_look) : "cc", "memory" : due);
	return false;
due:
	return true;
#else
	int32_t left = __atomic_load_n(&self->until_look, __ATOMIC_RELAXED) - 1;

	__atomic_store_n(&self->until_look, left, __ATOMIC_RELAXED);
	return __builtin_expect(left < 0, 0);
#endif
}

/*
 * Makes the next hit of all threads take the long way. A hit that another thread is just making may
 * undo that.
 */
void pd_thread_look_now(void);

/* Before each hold in the shared stripe. */
void pd_thread_use_shared_stripe(void);

/*
 * Does the thread of this number sleep until another thread has done something? Also true if there
 * is no such thread, which then will never do anything. Relaxed: a caller that must be sure looks
 * again.
 */
bool pd_thread_waits(uint32_t tid);

/* For this thread, whether it has a record or not. */
static inline void pd_thread_set_waits(bool waits)
{
	if (pd_self_tls)
		__atomic_store_n(&pd_self_tls->waits, waits, __ATOMIC_RELAXED);
}

/* In a forked child: only this thread lives on. */
void pd_thread_fork_child(void);

/* The sum of one counter over all threads; `which` is an offset into struct pd_counters. */
uint64_t pd_counter_sum(unsigned which);

/*
 * By the owner alone, in one instruction as in pd_add_late(). Relaxed: pairs with pd_counter_sum().
 */
static inline void pd_count(uint64_t *counter)
{
#if PD_CAN_ASYM && defined(__x86_64__)
	__asm__("addq $1, %0" : "+m"(*counter) : : "cc");
#else
	__atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
#endif
}

#endif
