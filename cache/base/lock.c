/* SPDX-License-Identifier: MIT */
/*
 * Locks and waiting. A lock is a 32-bit word, not a pthread_mutex_t: a miss and a free take the
 * cache's lock four times, mostly uncontended. Then it is one locked instruction to take it and
 * none to let it go.
 *
 * A thread that is going to sleep says so in a word of its own, `awaited`, and the thread that lets
 * go looks at that. It clears it, counts one turn and wakes one sleeper, which says so again for
 * the others, when it has taken the lock, or before it falls asleep again. So as long as any thread
 * sleeps, `awaited` is set, or a thread that will set it is awake. A sleeper reads the number of
 * turns before it sets `awaited`, and the kernel compares it: of a clearing in between it sees the
 * turn, and does not fall asleep.
 *
 * Where there are more threads than processors, a thread can lose its processor while it has the
 * lock, and all others fall asleep. Each waking may then take the processor from the next one that
 * has the lock. So wakings must be few: one woken thread at a time, as nobody wakes another one
 * while that tries to take the lock; and none by a thread that has let go of the lock and finds it
 * taken again, as whoever has it will look at `awaited`, too.
 *
 * On x86 the store that lets go may still be in the processor's store buffer when `awaited` is
 * read. If a thread sets that just then, finds the lock taken and falls asleep before the store
 * comes out, nobody wakes it. A store buffer empties within a microsecond as a rule, less than the
 * sleeper spins in between; and for certain at an interrupt. So this all but never happens, and a
 * sleeper looks again after a millisecond. (A fence instead would be most of what it costs to let
 * go of a lock.) tests/model/lock.pml is the proof: without late stores nobody sleeps for ever,
 * and with them nobody does who looks again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cache/base/lock.h"
#include "cache/base/thread.h"

enum {
	FREE,
	TAKEN,
};

uint64_t pdn_lock_sleep_ns = 1000000u;

static uint32_t waiters;  /* under the cache's lock */
static uint32_t settling; /* changed under that lock, to wake all waiters */

uint32_t pdn_pending;
bool pdn_stats_changed;
PDN_WEAK_EVENT(untold, (void));
uint64_t pdn_race_wait_ns = 2000000000u, pdn_fork_wait_ns = 100000000u;
uint32_t pdn_looks_per_lock = 1024;

/* An errno, or 0. errno itself is the program's. */
static int futex(uint32_t *where, int operation, uint32_t value, const struct timespec *until)
{
	int saved = errno, error = 0;

	if (syscall(SYS_futex, where, operation, value, until, NULL, FUTEX_BITSET_MATCH_ANY) < 0)
		error = errno;
	errno = saved;
	return error;
}

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
				 .tv_nsec = (long)(ns % 1000000000u)};
}

/* Let the processor's other hardware thread run meanwhile. */
static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

/* ---- locks ---------------------------------------------------------------------------------- */

static inline bool take_if_free(uint32_t *word)
{
	uint32_t found = FREE;

	/*
	 * Taken with acquire, let go with release: a thread that has it sees what was done under it
	 * before.
	 */
	return __atomic_compare_exchange_n(word, &found, TAKEN, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

/*
 * How long a thread spins: at first for longer than it takes to fall asleep and to be woken, as
 * these two cost the others more than the spinning; when it has been woken, for longer than the
 * lock is held; and between saying so and sleeping, for longer than a store is late.
 */
#define SPINS_AT_FIRST 1000
#define SPINS_WOKEN    100
#define SPINS_SAID     50

/*
 * The turns between two looks, which become twice as many up to the second number. A thread that
 * took the lock at the first moment at which it is free would get it between two steps of the
 * other's pin or end, and with it, line after line, everything that is changed under the lock. That
 * takes the processors longer than the changes do. So the other is left to go on for a while.
 */
#define REST_AT_FIRST 32
#define REST_AT_MOST  256

/*
 * Sequentially consistent: behind say_that_it_is_awaited() the look must not come before it, as it
 * could on arm64 otherwise.
 */
static bool __attribute__((noinline, cold)) spins_for(uint32_t *word, int turns)
{
	int rest = REST_AT_FIRST;

	for (;;) {
		if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == FREE && take_if_free(word))
			return true;
		if (turns <= 0)
			return false;
		turns -= rest;
		for (int i = rest; i > 0; i--)
			relax();
		if (rest < REST_AT_MOST)
			rest *= 2;
	}
}

/* Sequentially consistent, here and below: pairs with let_go() and wake_one(). */
static void say_that_it_is_awaited(enum pdn_lock_name name)
{
	__atomic_store_n(&pdn_here.awaited[name], true, __ATOMIC_SEQ_CST);
}

/*
 * After a sleep that nobody has ended a thread spins for less: all that sleep look again after each
 * millisecond, and they may be many.
 */
static void __attribute__((noinline, cold)) wait_for(enum pdn_lock_name name)
{
	const struct timespec most = timespec_of(pdn_lock_sleep_ns);
	uint32_t *lock = &pdn_here.lock[name], *turns = &pdn_here.turns[name], turn;

	if (spins_for(lock, SPINS_AT_FIRST))
		return;
	do {
		turn = __atomic_load_n(turns, __ATOMIC_SEQ_CST);
		say_that_it_is_awaited(name);
		if (spins_for(lock, SPINS_SAID))
			return;
	} while (futex(turns, FUTEX_WAIT_PRIVATE, turn, &most) == ETIMEDOUT ||
		 !spins_for(lock, SPINS_WOKEN));
	say_that_it_is_awaited(name);
}

static void __attribute__((noinline, cold)) wake_one(enum pdn_lock_name name)
{
	if (__atomic_load_n(&pdn_here.lock[name], __ATOMIC_SEQ_CST) != FREE)
		return;
	__atomic_store_n(&pdn_here.awaited[name], false, __ATOMIC_RELAXED);
	__atomic_fetch_add(&pdn_here.turns[name], 1, __ATOMIC_SEQ_CST);
	futex(&pdn_here.turns[name], FUTEX_WAKE_PRIVATE, 1, NULL);
}

/* Where a store and a load of this order are no dearer than others, the store is never late. */
#if defined(__x86_64__)
#define LETS_GO	 __ATOMIC_RELEASE
#define AND_LOOK __ATOMIC_RELAXED
#else
#define LETS_GO	 __ATOMIC_SEQ_CST
#define AND_LOOK __ATOMIC_SEQ_CST
#endif

/*
 * Noted as held after the taking, and no longer before the letting go: if a signal handler forks in
 * between, this thread is just not yet, or no longer, in the middle of a change.
 */
static inline void acquire(enum pdn_lock_name name)
{
	if (__builtin_expect(!take_if_free(&pdn_here.lock[name]), 0))
		wait_for(name);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	pdn_locks_held |= 1u << name;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (!pdn_process_is_known())
		pdn_process_begin();
}

static inline void let_go(enum pdn_lock_name name)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	pdn_locks_held &= ~(1u << name);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	/* This is a child, forked while the lock was held by this thread. */
	if (!pdn_process_is_known() && !pdn_locks_held)
		pdn_process_begin();
	__atomic_store_n(&pdn_here.lock[name], FREE, LETS_GO);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&pdn_here.awaited[name], AND_LOOK), 0))
		wake_one(name);
}

void pdn_lock_one(enum pdn_lock_name name)
{
	acquire(name);
}

void pdn_unlock_one(enum pdn_lock_name name)
{
	let_go(name);
}

void pdn_lock(void)
{
	acquire(PDN_LOCK_CACHE);
}

void pdn_unlock(void)
{
	/* Not in a child that has to begin again: the page that it would write is the parent's. */
	if (pdn_stats_changed && pdn_process_is_known())
		PDN_NOTIFY(untold);
	let_go(PDN_LOCK_CACHE);
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Relaxed: the system call compares it, and the lock orders everything else. */
void pdn_wake_waiters(void)
{
	if (!waiters)
		return;
	__atomic_store_n(&settling, settling + 1, __ATOMIC_RELAXED);
	futex(&settling, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}

uint64_t pdn_deadline(uint64_t ns)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + ns;
}

bool __attribute__((cold)) pdn_wait_pending(uint64_t deadline)
{
	const struct timespec until = timespec_of(deadline);
	uint32_t seen = settling;
	int error;

	waiters++;
	pdn_thread_set_waits(true);
	pdn_unlock();
	error = futex(&settling, FUTEX_WAIT_BITSET_PRIVATE, seen, &until);
	pdn_lock();
	pdn_thread_set_waits(false);
	if (waiters) /* none: this is a child that was forked meanwhile */
		waiters--;
	return error != ETIMEDOUT;
}

void pdn_sleep_while(uint32_t *where, uint32_t value, uint64_t deadline)
{
	const struct timespec until = timespec_of(deadline);

	futex(where, FUTEX_WAIT_BITSET_PRIVATE, value, &until);
}

void pdn_wake_all(uint32_t *where)
{
	futex(where, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}

/*
 * Sleeping would be a cancellation point in the middle of a driver call, and a thread cancelled
 * there would leave it half done.
 */
void pdn_nap(uint64_t ns)
{
	struct timespec nap = {.tv_nsec = (long)ns};
	int saved = errno;
	int cancel = PTHREAD_CANCEL_ENABLE;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	nanosleep(&nap, NULL);
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
}

void pdn_backoff(struct pdn_backoff *rest)
{
	const unsigned spins = 100, doublings = 9; /* from 2 microseconds to a millisecond */
	unsigned turn = rest->turns;

	if (turn < spins + doublings)
		rest->turns++;
	if (turn < spins)
		relax();
	else
		pdn_nap(2000ull << (turn - spins));
}

void pdn_lock_fork_child(void)
{
	waiters = 0;
	pdn_pending = 0;
}
