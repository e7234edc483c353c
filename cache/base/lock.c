/* SPDX-License-Identifier: MIT */
/*
 * Locks and waiting. A lock is a 32-bit word, not a pthread_mutex_t: a miss and a free take the
 * cache's lock five times, mostly uncontended, and then it is one locked instruction each way. (U.
 * Drepper, "Futexes Are Tricky", mutex 2 and 3.)
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
	AWAITED, /* taken, and another thread may be asleep */
};

static uint32_t waiters;  /* under the cache's lock */
static uint32_t settling; /* changed under that lock, to wake all waiters */

uint32_t pd_unsettled;
bool pd_untold;
PD_WEAK_EVENT(untold, (void));
uint64_t pd_race_wait_ns = 2000000000u, pd_fork_wait_ns = 100000000u;

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

/* It is held for less time than a thread takes to fall asleep, so spin a little first. */
static void __attribute__((noinline)) wait_for(uint32_t *word)
{
	for (unsigned i = 0; i < 100; i++) {
		if (__atomic_load_n(word, __ATOMIC_RELAXED) == FREE && take_if_free(word))
			return;
		relax();
	}
	/* From here on, letting it go wakes one sleeper, also when there is none. */
	while (__atomic_exchange_n(word, AWAITED, __ATOMIC_ACQUIRE) != FREE)
		futex(word, FUTEX_WAIT_PRIVATE, AWAITED, NULL);
}

/*
 * Noted as held after the taking, and no longer before the letting go: if a signal handler forks in
 * between, this thread is just not yet, or no longer, in the middle of a change.
 */
static inline void take(enum pd_lock_name name)
{
	if (__builtin_expect(!take_if_free(&pd_here.lock[name]), 0))
		wait_for(&pd_here.lock[name]);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	pd_locks_held |= 1u << name;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (!pd_process_is_known())
		pd_process_begin();
}

static inline void let_go(enum pd_lock_name name)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	pd_locks_held &= ~(1u << name);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	/* This is a child, forked while the lock was held by this thread. */
	if (!pd_process_is_known() && !pd_locks_held)
		pd_process_begin();
	if (__builtin_expect(
		    __atomic_exchange_n(&pd_here.lock[name], FREE, __ATOMIC_RELEASE) == AWAITED, 0))
		futex(&pd_here.lock[name], FUTEX_WAKE_PRIVATE, 1, NULL);
}

void pd_take(enum pd_lock_name name)
{
	take(name);
}

void pd_let_go(enum pd_lock_name name)
{
	let_go(name);
}

void pd_lock(void)
{
	take(PD_LOCK_CACHE);
}

void pd_unlock(void)
{
	/* Not in a child that has to begin again: the page that it would write is the parent's. */
	if (pd_untold && pd_process_is_known())
		PD_NOTIFY(untold);
	let_go(PD_LOCK_CACHE);
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Relaxed: the system call compares it, and the lock orders everything else. */
void pd_wake_waiters(void)
{
	if (!waiters)
		return;
	__atomic_store_n(&settling, settling + 1, __ATOMIC_RELAXED);
	futex(&settling, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}

uint64_t pd_deadline(uint64_t ns)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + ns;
}

bool pd_wait_settled(uint64_t deadline)
{
	const struct timespec until = timespec_of(deadline);
	uint32_t seen = settling;
	int error;

	waiters++;
	pd_thread_set_waits(true);
	pd_unlock();
	error = futex(&settling, FUTEX_WAIT_BITSET_PRIVATE, seen, &until);
	pd_lock();
	pd_thread_set_waits(false);
	if (waiters) /* none: this is a child that was forked meanwhile */
		waiters--;
	return error != ETIMEDOUT;
}

void pd_sleep_while(uint32_t *where, uint32_t value, uint64_t deadline)
{
	const struct timespec until = timespec_of(deadline);

	futex(where, FUTEX_WAIT_BITSET_PRIVATE, value, &until);
}

void pd_wake_all(uint32_t *where)
{
	futex(where, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}

/*
 * Sleeping would be a cancellation point in the middle of a driver call, and a thread cancelled
 * there would leave it half done.
 */
void pd_nap(uint64_t ns)
{
	struct timespec nap = {.tv_nsec = (long)ns};
	int saved = errno;
	int cancel = PTHREAD_CANCEL_ENABLE;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	nanosleep(&nap, NULL);
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
}

void pd_rest(struct pd_rest *rest)
{
	const unsigned spins = 100, doublings = 9; /* from 2 microseconds to a millisecond */
	unsigned turn = rest->turns;

	if (turn < spins + doublings)
		rest->turns++;
	if (turn < spins)
		relax();
	else
		pd_nap(2000ull << (turn - spins));
}

void pd_lock_fork_child(void)
{
	waiters = 0;
	pd_unsettled = 0;
}
