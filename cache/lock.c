/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "cache.h"

/* It is held for less than a thread takes to fall asleep, so who finds it taken spins a little first. */
static pthread_mutex_t mutex = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t settled = PTHREAD_COND_INITIALIZER;
static unsigned waiters; /* under mutex */

uint32_t pd_unsettled;
uint64_t pd_race_wait_ns = 2000000000u, pd_fork_wait_ns = 100000000u;

void pd_lock(void)
{
	int saved = errno;

	pthread_mutex_lock(&mutex);
	errno = saved;
}

void pd_unlock(void)
{
	int saved = errno;

	if (pd_untold)
		pd_stats_tell();
	pthread_mutex_unlock(&mutex);
	errno = saved;
}

void pd_wake_waiters(void)
{
	if (waiters)
		pthread_cond_broadcast(&settled);
}

uint64_t pd_deadline(uint64_t ns)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + ns;
}

/*
 * Waiting would be a cancellation point in the middle of a driver call, and a thread cancelled
 * there would take the lock with it.
 */
static int no_cancel(void)
{
	int before = PTHREAD_CANCEL_ENABLE;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

bool pd_wait_settled(uint64_t deadline)
{
	struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000u),
				 .tv_nsec = (long)(deadline % 1000000000u)};
	int saved = errno;
	int cancel = no_cancel();
	int result;

	waiters++;
	result = pthread_cond_clockwait(&settled, &mutex, CLOCK_MONOTONIC, &until);
	waiters--;
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
	return result == 0;
}

void pd_nap(uint64_t ns)
{
	struct timespec nap = {.tv_nsec = (long)ns};
	int saved = errno;
	int cancel = no_cancel();

	nanosleep(&nap, NULL);
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
}

void pd_lock_fork_child(void)
{
	static const pthread_mutex_t new_mutex = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
	static const pthread_cond_t new_cond = PTHREAD_COND_INITIALIZER;

	mutex = new_mutex;
	settled = new_cond;
	waiters = 0;
	pd_unsettled = 0;
}
