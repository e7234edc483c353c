/* SPDX-License-Identifier: MIT */
/*
 * One record for each living thread that has called pindown. Records are never unmapped: another
 * thread may be reading a guard while its owner ends. The record of a thread that has ended is
 * given to the next new thread. A bit for each record says whether a thread owns it, so that a walk
 * visits the records of living threads only; and a bit for each 64 of these says whether there is
 * any, so that it looks at few of them, however many there once were.
 */
#ifndef PDN_THREAD_H
#define PDN_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/thread/barrier.h"
#include "cache/base/notify.h"
#include "cache/base/visible.h"

/*
 * Counted by the owner alone, without the cost of atomics (relaxed load + store); summed by
 * readers.
 */
struct pdn_counters {
	uint64_t hits;
	uint64_t misses;
	uint64_t tag_checks;
	uint64_t lost_events; /* trace records that found no room */
	uint64_t spare[4];
};

#define PDN_GUARDS 4 /* nested frees in one thread; deeper ones widen the last to "everything" */

/* A guard_depth: the thread has never freed; see pdn_thread_frees(). */
#define PDN_NO_GUARD_YET (-1)

/*
 * What a thread is about to end; see guard.h. The members are written before kind is published, and
 * kind is cleared when the call has ended.
 */
struct pdn_guard_slot {
	uint32_t kind; /* enum pdn_guard_kind; 0: none */
	int32_t device;
	uint64_t begin, end; /* a range; or begin is a context */
};

struct pdn_journal_piece;

struct pdn_thread {
	/* The owner's; no other thread reads these. */
	struct pdn_counters
		*counters;   /* own_counters, or in the trace's journal while there is one */
	uint32_t *holds;     /* its stripe of hold counts, if no other thread writes there;
					 else NULL, see pdn_hold_shared() */
	uint32_t stripe;     /* index into pdn_holds; PDN_STRIPE_SHARED: atomics needed */
	bool stripe_asked;   /* there is no memory for a stripe of its own */
	bool is_looking;     /* until_look has been set */
	bool in_page;	     /* its counters are in the page for `pindown top`; read by others */
	int32_t guard_depth; /* how many are up; or PDN_NO_GUARD_YET */
	/*
	 * Hits until the next one that takes the long way: to be compared with the driver, or
	 * traced.
	 */
	int32_t until_look;
	int driver_error; /* pindown_driver_error() */
	/* The trace's: where this thread writes. */
	char *trace_at, *trace_end;
	struct pdn_journal_piece *trace_piece;
	char *trace_memory;
	uint64_t trace_base;
	uint64_t stack_low,
		stack_high; /* the part of its own stack that is known to be readable; 0, 0 */

	/* Written by the owner, read by others. */
	uint32_t announced __attribute__((aligned(64))); /* region number being validated, or 0 */
	uint32_t comparing; /* region that it compares with the driver, or 0 */
	uint32_t waits;	    /* 1: it sleeps until another thread has done something */
	uint32_t tid;	    /* 0: of no thread, or not known yet */
	uint32_t place;	    /* number of the record; constant from its first owner on */
	uint32_t life;	    /* pdn_thread_life when it was begun; an older one: by a parent */
	struct pdn_guard_slot guards[PDN_GUARDS];
	struct pdn_counters own_counters;
} __attribute__((aligned(64)));

extern PDN_HIDDEN __thread struct pdn_thread *pdn_self_tls
	__attribute__((tls_model("initial-exec")));

/*
 * A thread has got its record: called by the thread itself. Its record is about to be given to
 * another: called by the thread, or by another one that has found that it is gone.
 */
PDN_EVENT(thread_starts, (struct pdn_thread *));
PDN_EVENT(thread_exits, (struct pdn_thread *));

/* Its counters may move, unless a trace has them: after thread_starts, by the thread itself. */
PDN_EVENT(thread_counts, (struct pdn_thread *));

/*
 * A callback of the program has ended this thread, which is forbidden: everything of the thread's
 * that others may look at leaves its stack, and nobody waits for the thread. Lock not held.
 */
void pdn_thread_quits(void);
PDN_EVENT(thread_quits, (void));

/* Takes a record for this thread; NULL when there is no memory for one. Keeps errno. */
struct pdn_thread *pdn_thread_attach(void);

static inline struct pdn_thread *pdn_self(void)
{
	struct pdn_thread *self = pdn_self_tls;

	return __builtin_expect(self != 0, 1) ? self : pdn_thread_attach();
}

/* For a thread that could get no record: it shares a stripe of hold counts. */
extern struct pdn_thread pdn_anonymous;

static inline struct pdn_thread *pdn_self_or_anonymous(void)
{
	struct pdn_thread *self = pdn_self();

	return self ? self : &pdn_anonymous;
}

/* This thread's number in the system; asked of the system, if the thread has no record. */
uint32_t pdn_tid_without_record(void);
static inline uint32_t pdn_my_tid(void)
{
	const struct pdn_thread *self = pdn_self();

	return self ? self->tid : pdn_tid_without_record();
}

/*
 * Something that each thread has another one of. In a forked child it stays the same, unlike the
 * number.
 */
uintptr_t pdn_thread_mark(void);

/*
 * A walk over the records that threads own: from PDN_WALK to NULL. Safe without a lock. All that a
 * thread stored before it ended is seen by a walk that does not find its record any more.
 * Sequentially consistent: a thread that a walk overlooks, since it gets its record later, will see
 * all that was stored before the walk.
 */
struct pdn_walk {
	struct pdn_thread *block; /* 64 records, of which `left` are yet to be visited */
	uint64_t left;
	uint32_t blocks, group; /* a bit for each that is left of a group; the next group */
	bool has_begun;
	bool goes_on; /* there are more of either */
};
#define PDN_WALK                 \
	{                        \
		.goes_on = true, \
	}

/* To the next block that has any; false: there is none. */
bool pdn_walk_on(struct pdn_walk *walk);

static inline struct pdn_thread *pdn_walk_take(struct pdn_walk *walk)
{
	struct pdn_thread *thread = walk->block + __builtin_ctzll(walk->left);

	walk->left &= walk->left - 1;
	return thread;
}

static inline struct pdn_thread *pdn_walk_next(struct pdn_walk *walk)
{
	return walk->left || (walk->goes_on && pdn_walk_on(walk)) ? pdn_walk_take(walk) : 0;
}

/*
 * The same for those of threads that ever put up a guard. Each calls this before its first one.
 */
void pdn_thread_frees(struct pdn_thread *self);
bool pdn_walk_on_that_free(struct pdn_walk *walk);

/*
 * How many frees are under way in threads that could get no record. Sequentially consistent. Such a
 * thread counts its own up and down; those that it leaves behind are gone when it has ended.
 *
 * life: nothing is counted if the process has another one by now, as a child that was forked
 * meanwhile has; 0: it has the same. Returns the process's life.
 */
extern PDN_HIDDEN uint32_t pdn_thread_recordless;
uint32_t pdn_thread_count_recordless(int change, uint32_t life);

/* This thread ends: the frees that it has counted go. In a forked child: there are none. */
void pdn_thread_drop_recordless(void);
void pdn_thread_recordless_fork_child(void);

static inline struct pdn_thread *pdn_walk_next_that_frees(struct pdn_walk *walk)
{
	return walk->left || (walk->goes_on && pdn_walk_on_that_free(walk)) ? pdn_walk_take(walk)
									    : 0;
}

/*
 * The next record behind `before`, or of all (NULL), of those that were ever begun in this process:
 * for rare events only.
 */
struct pdn_thread *pdn_thread_next_ever(const struct pdn_thread *before);

/* How many records were ever begun in this process, or will be; and which process that is. */
extern PDN_HIDDEN uint32_t pdn_thread_records, pdn_thread_life;

/*
 * What the threads counted that have ended: [true], those with `in_page`. Relaxed: changed when a
 * record changes hands, so that a sum at that moment is not exact.
 */
extern PDN_HIDDEN struct pdn_counters pdn_thread_ended[2];

/*
 * No other thread has a record. Sequentially consistent: a thread that this overlooks will see all
 * that was stored so before.
 */
bool pdn_thread_is_alone(void);

/*
 * One hit less until the next that takes the long way; true: it is this one. In one instruction, as
 * in pdn_add_unfenced(). Relaxed: pairs with pdn_thread_look_now().
 */
static inline bool pdn_thread_counts_down(struct pdn_thread *self)
{
#if PDN_ASYMMETRIC && defined(__x86_64__)
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
void pdn_thread_look_now(void);

/*
 * Does the thread of this number sleep until another thread has done something? Also true if there
 * is no such thread, which then will never do anything. Relaxed: a caller that must be sure looks
 * again.
 */
bool pdn_thread_waits(uint32_t tid);

/* For this thread, whether it has a record or not. */
static inline void pdn_thread_set_waits(bool waits)
{
	if (pdn_self_tls)
		__atomic_store_n(&pdn_self_tls->waits, waits, __ATOMIC_RELAXED);
}

/* In a forked child: only this thread lives on. */
void pdn_thread_fork_child(void);

/* The sum of one counter over all threads; `which` is an offset into struct pdn_counters. */
uint64_t pdn_counter_sum(unsigned which);

/*
 * By the owner alone, in one instruction as in pdn_add_unfenced(). Relaxed: pairs with
 * pdn_counter_sum().
 */
static inline void pdn_count(uint64_t *counter)
{
#if PDN_ASYMMETRIC && defined(__x86_64__)
	__asm__("addq $1, %0" : "+m"(*counter) : : "cc");
#else
	__atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
#endif
}

#endif
