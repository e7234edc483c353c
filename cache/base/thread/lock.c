/* SPDX-License-Identifier: MIT */
/*
 * Locks and waiting. A lock is a 32-bit word, not a pthread_mutex_t, so that a child can find all
 * of them free (process.h). A thread that is going to sleep says so in the word, and the thread
 * that lets go wakes one sleeper. The woken one takes the lock as one that others sleep for, since
 * it does not know better. tests/model/lock.pml is the proof that nobody sleeps for ever.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>

#include "cache/base/environment/config.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/base/process/system.h"
#include "cache/base/thread/thread.h"

enum {
	UNUSED, /* free, and never taken in this process */
	FREE,
	TAKEN,
	AWAITED, /* taken, and others may sleep */
};

static PDN_NOT_INHERITED uint32_t waiters; /* under the cache's lock */
static uint32_t settling;		   /* changed under that lock, to wake all waiters */

PDN_NOT_INHERITED bool pdn_stats_changed;
PDN_WEAK_EVENT(untold, (void));
PDN_WEAK_EVENT(free_has_waited, (uint32_t tid, const char *what, const char *and_now));
uint64_t pdn_race_wait_ns = 2000000000u, pdn_fork_wait_ns = 100000000u;
uint32_t pdn_looks_per_lock = 1024;

/* 0, or a negative errno. */
static int futex(uint32_t *where, int operation, uint32_t value, const struct timespec *most)
{
	return (int)pdn_sys(SYS_futex, where, operation, value, most);
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

/*
 * Taken with acquire, let go with release: a thread that has it sees what was done under it before.
 */
static inline bool take_if(uint32_t found, uint32_t *word)
{
	return __atomic_compare_exchange_n(word, &found, TAKEN, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

/*
 * How long a thread spins: longer than it takes to fall asleep and to be woken, as these two cost
 * the others more than the spinning.
 */
#define SPINS 1000

/*
 * The turns between two looks, which become twice as many up to the second number. A thread that
 * took the lock at the first moment at which it is free would get it between two steps of the
 * other's pin or end, and with it, line after line, everything that is changed under the lock. That
 * takes the processors longer than the changes do. So the other is left to go on for a while.
 */
#define REST_AT_FIRST 32
#define REST_AT_MOST  256

static bool takes_by_spinning(uint32_t *word)
{
	int turns = SPINS, rest = REST_AT_FIRST;

	for (; turns > 0; turns -= rest) {
		if (__atomic_load_n(word, __ATOMIC_RELAXED) == FREE && take_if(FREE, word))
			return true;
		for (int i = rest; i > 0; i--)
			relax();
		if (rest < REST_AT_MOST)
			rest *= 2;
	}
	return false;
}

/* Before it is taken for the first time: then it is free in each child, whenever that is forked. */
static bool takes_unused(uint32_t *word)
{
	if (__atomic_load_n(word, __ATOMIC_RELAXED) != UNUSED)
		return false;
	pdn_process_wipe_in_children();
	return take_if(UNUSED, word);
}

static void __attribute__((noinline, cold)) wait_for(uint32_t *word)
{
	if (takes_unused(word) || takes_by_spinning(word))
		return;
	while (__atomic_exchange_n(word, AWAITED, __ATOMIC_ACQUIRE) > FREE)
		futex(word, FUTEX_WAIT_PRIVATE, AWAITED, NULL);
}

static void __attribute__((noinline, cold)) wake_one(uint32_t *word)
{
	futex(word, FUTEX_WAKE_PRIVATE, 1, NULL);
}

/*
 * Noted as held after the taking, and no longer before the letting go: if a signal handler forks in
 * between, this thread is just not yet, or no longer, in the middle of a change.
 */
static inline void acquire(enum pdn_lock_name name)
{
	if (__builtin_expect(!take_if(FREE, &pdn_this_process.lock[name]), 0))
		wait_for(&pdn_this_process.lock[name]);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	pdn_locks_held |= 1u << name;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (!pdn_process_is_known())
		pdn_process_begin();
}

static inline void let_go(enum pdn_lock_name name)
{
	uint32_t *word = &pdn_this_process.lock[name];

	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	pdn_locks_held &= ~(1u << name);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	/* This is a child, forked while the lock was held by this thread. */
	if (!pdn_process_is_known() && !pdn_locks_held)
		pdn_process_begin();
	if (__builtin_expect(__atomic_exchange_n(word, FREE, __ATOMIC_RELEASE) == AWAITED, 0))
		wake_one(word);
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

/*
 * The process may be stopped in the middle of a wait (SIGSTOP, a freezer) for longer than that is
 * to last, and the thread that is waited for was stopped, too. So the time between two looks at the
 * clock counts for no more than a wait sleeps at a time. If a filter refuses the clock, it counts
 * for a millisecond. Relaxed: each stretch of time is added once, by one thread or another.
 */
#define SLICE_NS   100000000u
#define NO_TIME_NS 1000000u
#define RESET_NS   1000000000u

static uint64_t ran_ns, looked_ns;

/*
 * Since the last look of any thread. One that loses its processor behind its look comes late: the
 * others have counted its time. If it is far too late, the clock has been set back, as where the
 * process was restored on another machine.
 */
static uint64_t passed_until(uint64_t now)
{
	uint64_t before = __atomic_load_n(&looked_ns, __ATOMIC_RELAXED);

	do
		if (now <= before && before - now < RESET_NS)
			return 0;
	while (!__atomic_compare_exchange_n(&looked_ns, &before, now, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED));
	return now > before ? now - before : 0;
}

static uint64_t time_run(void)
{
	uint64_t now = pdn_sys_clock_monotonic();
	uint64_t passed = now ? passed_until(now) : NO_TIME_NS;

	if (passed > SLICE_NS)
		passed = SLICE_NS;
	return __atomic_add_fetch(&ran_ns, passed, __ATOMIC_RELAXED);
}

uint64_t pdn_deadline(uint64_t ns)
{
	return time_run() + ns;
}

/* How long to sleep at most before the next look at the clock. 0: the deadline has passed. */
static struct timespec slice_before(uint64_t deadline)
{
	uint64_t now = time_run(), left = deadline > now ? deadline - now : 0;

	return pdn_sys_timespec(left < SLICE_NS ? left : SLICE_NS);
}

static bool is_over(const struct timespec *slice)
{
	return !slice->tv_sec && !slice->tv_nsec;
}

bool __attribute__((cold)) pdn_wait_for_work(uint64_t deadline)
{
	struct timespec slice = slice_before(deadline);
	uint32_t seen = settling;
	int error = -ETIMEDOUT;

	waiters++;
	pdn_thread_set_waits(true);
	pdn_unlock();
	while (error == -ETIMEDOUT && !is_over(&slice)) {
		error = futex(&settling, FUTEX_WAIT_PRIVATE, seen, &slice);
		slice = slice_before(deadline);
	}
	pdn_lock();
	pdn_thread_set_waits(false);
	if (waiters) /* none: this is a child that was forked meanwhile */
		waiters--;
	return error != -ETIMEDOUT;
}

bool __attribute__((cold)) pdn_free_waits_on(uint32_t tid, const char *what)
{
	static bool said;
	bool waits = pdn_config()->debug;
	const char *and_now =
		waits ? "goes on waiting (PINDOWN_DEBUG)" : "proceeds: it may come back late";

	pdn_log_once(&said, PDN_LOG_WARN,
		     "a free has waited two seconds for thread %u's %s of the same memory and %s",
		     tid, what, and_now);
	PDN_NOTIFY(free_has_waited, tid, what, and_now);
	return waits;
}

void pdn_sleep_while(uint32_t *where, uint32_t value, uint64_t deadline)
{
	const struct timespec slice = slice_before(deadline);

	if (!is_over(&slice))
		futex(where, FUTEX_WAIT_PRIVATE, value, &slice);
}

void pdn_wake_all(uint32_t *where)
{
	futex(where, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
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
		pdn_sys_sleep(2000ull << (turn - spins));
}
