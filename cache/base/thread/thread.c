/* SPDX-License-Identifier: MIT */
/*
 * A thread begins, and gets its record; and it ends, in whatever way. thread_records.c says which
 * records have owners.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

#include "cache/base/thread/barrier.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/process/held_signals.h"
#include "cache/base/process/process.h"
#include "cache/base/thread/pthread.h"
#include "cache/base/thread/stripes.h"
#include "cache/base/process/system.h"
#include "cache/base/thread/thread.h"
#include "cache/base/thread/thread_records.h"

struct pdn_thread pdn_anonymous = {.counters = &pdn_anonymous.own_counters, .stripe_asked = true};

struct pdn_counters pdn_thread_ended[2];

PDN_WEAK_EVENT(thread_starts, (struct pdn_thread *));
PDN_WEAK_EVENT(thread_exits, (struct pdn_thread *));
PDN_WEAK_EVENT(thread_counts, (struct pdn_thread *));
PDN_WEAK_EVENT(thread_quits, (void));
static pthread_key_t at_thread_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/*
 * With asynchronous cancellation, in the middle of a hit as well. Release: as at the end of
 * hold_if().
 */
static void drop_announcement(struct pdn_thread *self)
{
	__atomic_store_n(&self->announced, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&self->comparing, 0, __ATOMIC_RELEASE);
}

/* By the record's owner, or for an owner that is gone. */
static void change_ended(const struct pdn_thread *self, uint64_t sign)
{
	const uint64_t *counted = &self->counters->hits;
	uint64_t *sum = &pdn_thread_ended[self->in_page].hits;

	for (unsigned i = 0; i < sizeof(struct pdn_counters) / sizeof(*sum); i++)
		__atomic_fetch_add(&sum[i], sign * counted[i], __ATOMIC_RELAXED);
}

/* ---- a record ends --------------------------------------------------------------------------- */

/*
 * A thread can end in the middle of a call whose end it was to report. It frees no more. Release:
 * as in pdn_ended().
 */
static void drop_guards(struct pdn_thread *self)
{
	for (unsigned i = 0; i < PDN_GUARDS; i++)
		__atomic_store_n(&self->guards[i].kind, 0, __ATOMIC_RELEASE);
	self->guard_depth = PDN_NO_GUARD_YET;
	pdn_thread_record_frees_no_more(self);
}

/*
 * The record is to be ended by one caller only: by its thread, or by another one that has found
 * that the thread of this number is gone. Since the number was read, the record may have had an
 * owner more, whose it stays then. Acquire: pairs with the release of the number.
 */
static bool claim(struct pdn_thread *record, uint32_t tid)
{
	return tid && __atomic_compare_exchange_n(&record->tid, &tid, 0, false, __ATOMIC_ACQUIRE,
						  __ATOMIC_RELAXED);
}

/*
 * It has been claimed. A lock that is taken here may find that this is a child, which then begins
 * again: nobody owns the record there any more, and what it counted was the parent's.
 */
static void end_record(struct pdn_thread *record)
{
	drop_guards(record);
	drop_announcement(record);
	__atomic_store_n(&record->waits, 0, __ATOMIC_RELAXED);
	PDN_NOTIFY(thread_exits, record);
	if (record->life != pdn_thread_life)
		return;
	pdn_stripe_give_back(record);
	change_ended(record, 1);
	pdn_thread_record_disown(record);
}

/* ---- a thread ends --------------------------------------------------------------------------- */

static void detach(void *record)
{
	PDN_UNCANCELLED;
	struct pdn_thread *self = record;
	sigset_t signals;
	bool claimed;

	pdn_signals_hold(&signals);
	pdn_thread_drop_recordless();
	claimed = claim(self, __atomic_load_n(&self->tid, __ATOMIC_RELAXED));
	/*
	 * Code of pindown's that this thread runs from here on gets a record once more. It does not
	 * take this one for lost, as it is claimed.
	 */
	pdn_self_tls = NULL;
	if (claimed)
		end_record(self);
	pdn_signals_let_in(&signals);
}

static void init_once(void)
{
	if (!pdn_pthread.key_create || pdn_pthread.key_create(&at_thread_exit, detach) != 0)
		at_thread_exit = (pthread_key_t)-1; /* then end_lost() finds the records */
	pdn_barrier_init();
	if (!pdn_process_is_known())
		pdn_process_begin();
}

/* ---- threads that ended unseen --------------------------------------------------------------- */

/* A record beyond this number is a reason to look for them. Relaxed: any value is good. */
#define LOOK_AT_LEAST 16u
static uint32_t look_from = LOOK_AT_LEAST;
static uint32_t looking; /* one thread looks; acquire and release */

static bool is_gone(uint32_t tid)
{
	return pdn_sys(SYS_sched_getscheduler, tid) == -ESRCH;
}

/*
 * A thread that was made by clone(), that ended by the bare system call, or that used pindown in
 * its last destructor has not given its record back. The system no longer knows such a thread. This
 * is looked for when there are twice as many records in use as there were threads at the last look.
 * So records are at most twice as many as threads, and a new thread makes two system calls for that
 * on the average. A record whose number is not known yet is left alone.
 */
static void end_lost(void)
{
	uint32_t living = 0, mine = (uint32_t)pdn_sys(SYS_gettid), at_least = LOOK_AT_LEAST;
	struct pdn_walk walk = PDN_WALK;
	struct pdn_thread *t;

	if (__atomic_exchange_n(&looking, 1, __ATOMIC_ACQUIRE))
		return;
	while ((t = pdn_walk_next(&walk))) {
		uint32_t tid = __atomic_load_n(&t->tid, __ATOMIC_RELAXED);

		/* This thread has none: a record of its number is that of an earlier one. */
		if ((tid == mine || (tid && is_gone(tid))) && claim(t, tid))
			end_record(t);
		else
			living++;
	}
	__atomic_store_n(&look_from, 2 * living > at_least ? 2 * living : at_least,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&looking, 0, __ATOMIC_RELEASE);
}

static struct pdn_thread *take_low_record(void)
{
	struct pdn_thread *record = pdn_thread_record_take();

	if (!record ||
	    pdn_thread_record_place(record) < __atomic_load_n(&look_from, __ATOMIC_RELAXED))
		return record;
	end_lost();
	pdn_thread_record_disown(record);
	return pdn_thread_record_take();
}

/*
 * A record that was not used before in this process; in a child it may be one of the parent's.
 * Release: pairs with pdn_counter_sum().
 */
static void begin_record(struct pdn_thread *self)
{
	memset(&self->own_counters, 0, sizeof(self->own_counters));
	memset(self, 0, offsetof(struct pdn_thread, announced));
	self->counters = &self->own_counters;
	__atomic_fetch_add(&pdn_thread_records, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&self->life, pdn_thread_life, __ATOMIC_RELEASE);
}

static void remember(struct pdn_thread *self)
{
	/* A thread of a libpthread that was loaded later may come here while the key is made. */
	if (pdn_pthread.setspecific && at_thread_exit != (pthread_key_t)-1)
		pdn_pthread.setspecific(at_thread_exit, self);
}

/* Signals are held, and the thread is not cancelled. */
static struct pdn_thread *begin_thread(void)
{
	/*
	 * Pairs with the walks: they see this thread, or this thread sees what was stored before
	 * them.
	 */
	struct pdn_thread *self = take_low_record();

	if (!self) {
		/* So that detach() is called all the same. */
		remember(&pdn_anonymous);
		return NULL;
	}
	if (self->life == pdn_thread_life)
		change_ended(self, -1ull);
	else
		begin_record(self);
	self->guard_depth = PDN_NO_GUARD_YET;
	pdn_self_tls = self;
	/* Release: a thread that finds that this one is gone ends all of the above. */
	__atomic_store_n(&self->tid, (uint32_t)pdn_sys(SYS_gettid), __ATOMIC_RELEASE);
	remember(self);
	PDN_NOTIFY(thread_starts, self);
	PDN_NOTIFY(thread_counts, self);
	return self;
}

struct pdn_thread *pdn_thread_attach(void)
{
	PDN_UNCANCELLED;
	struct pdn_thread *self;
	sigset_t signals;
	int saved = errno;

	/* First: a handler would wait for what this thread begins once. */
	pdn_signals_hold(&signals);
	pdn_once(&once, init_once);
	/* Since it was looked for, a signal handler may have taken one for this thread. */
	self = pdn_self_tls ? pdn_self_tls : begin_thread();
	pdn_signals_let_in(&signals);
	errno = saved;
	return self;
}

uint32_t pdn_tid_without_record(void)
{
	return (uint32_t)pdn_sys(SYS_gettid);
}

/*
 * The compiler takes the address for constant. It must not keep it over a callback, which may
 * return in another thread: so this is not inlined, and seems to do something.
 */
uintptr_t __attribute__((noinline)) pdn_thread_mark(void)
{
	__asm__ volatile("");
	return (uintptr_t)&pdn_self_tls;
}

/* ---- all threads ----------------------------------------------------------------------------- */

void pdn_thread_look_now(void)
{
	for (struct pdn_thread *t = pdn_thread_next_ever(NULL); t; t = pdn_thread_next_ever(t))
		__atomic_store_n(&t->until_look, 0, __ATOMIC_RELAXED);
}

void pdn_thread_fork_child(void)
{
	struct pdn_thread *self = pdn_self_tls;

	pdn_thread_records_fork_child(self);
	/* The next owners of the other records begin them. */
	pdn_thread_life++;
	pdn_thread_records = 0;
	pdn_thread_recordless_fork_child();
	memset(pdn_thread_ended, 0, sizeof(pdn_thread_ended));
	looking = 0;
	if (!self)
		return;
	memset(&self->own_counters, 0, sizeof(self->own_counters));
	self->counters = &self->own_counters;
	self->in_page = false;
	if (self->guard_depth > 0)
		self->guard_depth = 0;
	self->life = pdn_thread_life;
	self->tid = (uint32_t)pdn_sys(SYS_gettid);
	pdn_thread_records = 1;
}

void __attribute__((cold)) pdn_thread_quits(void)
{
	PDN_NOTIFY(thread_quits);
}

static uint64_t counter(const struct pdn_counters *counters, unsigned which)
{
	const char *at = (const char *)counters + which;

	/* Relaxed: pairs with pdn_count(), or change_ended(); the sum need not be exact. */
	return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);
}

uint64_t pdn_counter_sum(unsigned which)
{
	uint64_t sum =
		counter(&pdn_thread_ended[false], which) + counter(&pdn_thread_ended[true], which);
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t;

	while ((t = pdn_walk_next(&walk)))
		/*
		 * Acquire: pairs with begin_record(), and with trace/writer/stream.c and
		 * show/page.c, which move the counters when they have filled them.
		 */
		if (__atomic_load_n(&t->life, __ATOMIC_ACQUIRE) == pdn_thread_life)
			sum += counter(__atomic_load_n(&t->counters, __ATOMIC_ACQUIRE), which);
	return sum;
}
