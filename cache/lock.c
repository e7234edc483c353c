/* SPDX-License-Identifier: MIT */
/*
 * The lock is a word of our own, and not a pthread_mutex_t: a miss and a free take it five times, mostly without
 * company, and then it is one locked instruction each way. (U. Drepper, "Futexes Are Tricky", mutex 2 and 3.)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"

enum {
	FREE,
	TAKEN,
	AWAITED, /* taken, and somebody may be asleep */
};

/* Taken with acquire, let go with release: who has it sees what was done under it before. */
static uint32_t word;
static uint32_t waiters;  /* under the lock */
static uint32_t settling; /* changed under the lock, whenever those are to wake up */

uint32_t pd_unsettled;
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

/* Let the processor's other thread have it meanwhile. */
static inline void rest(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

static bool take_if_free(void)
{
	uint32_t found = FREE;

	return __atomic_compare_exchange_n(&word, &found, TAKEN, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

/* It is held for less than a thread takes to fall asleep, so who finds it taken spins a little first. */
static void __attribute__((noinline)) wait_for_it(void)
{
	for (unsigned i = 0; i < 100; i++) {
		if (__atomic_load_n(&word, __ATOMIC_RELAXED) == FREE && take_if_free())
			return;
		rest();
	}
	/* Whoever lets it go from here on wakes one who sleeps, perhaps in vain. */
	while (__atomic_exchange_n(&word, AWAITED, __ATOMIC_ACQUIRE) != FREE)
		futex(&word, FUTEX_WAIT_PRIVATE, AWAITED, NULL);
}

void pd_lock(void)
{
	if (__builtin_expect(!take_if_free(), 0))
		wait_for_it();
}

void pd_unlock(void)
{
	if (pd_untold)
		pd_stats_tell();
	if (__builtin_expect(__atomic_exchange_n(&word, FREE, __ATOMIC_RELEASE) == AWAITED, 0))
		futex(&word, FUTEX_WAKE_PRIVATE, 1, NULL);
}

/* Relaxed: it is the system call that compares it, and the lock that orders all else. */
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
	const struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000u),
				       .tv_nsec = (long)(deadline % 1000000000u)};
	uint32_t seen = settling;
	int error;

	waiters++;
	pd_unlock();
	error = futex(&settling, FUTEX_WAIT_BITSET_PRIVATE, seen, &until);
	pd_lock();
	waiters--;
	return error != ETIMEDOUT;
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

void pd_lock_fork_child(void)
{
	word = FREE;
	waiters = 0;
	pd_unsettled = 0;
}
