/* SPDX-License-Identifier: MIT */
/*
 * Asymmetric barriers. Hits and frees are many and must cost nothing; pins and invalidations are
 * few and cost microseconds anyway. So the frequent side publishes with a plain store and the rare
 * side pays for both with membarrier(2).
 *
 * The pattern, everywhere it is used (store, then load what the other side stores):
 *
 *	frequent				rare
 *	pdn_publish32(&mine, ...)		store theirs (PDN_BEFORE_BARRIER)
 *	load theirs				pdn_heavy_barrier()
 *						load mine
 *
 * One of the two sees the other's store.
 *
 * Where membarrier is missing each hit has a fence, always. ThreadSanitizer knows nothing of all
 * this: under it the frequent side uses a sequentially consistent exchange, and all loads are
 * sequentially consistent.
 *
 * membarrier may also be refused from some moment on, by a system call filter that the program
 * installs. So its result is looked at each time, and the first barrier in which it is refused is
 * the last one that needs it:
 *
 *	any but FENCE_FOR_GOOD -> LOSING_MEMBARRIER	by a refused rare side; the frequent side
 *							has fences from here on
 *	LOSING_MEMBARRIER -> FENCE_FOR_GOOD		by the same thread, after a grace period
 *
 * A frequent side that read the mode before that has no fence. Its store may still be in its
 * processor's store buffer, and its load may have come before the rare side's store. A store buffer
 * empties by itself, within a microsecond as a rule, and it is empty after each interrupt, and so
 * after each timer tick, and before another thread gets the processor. The grace period is ten
 * ticks of the slowest kernel (100 Hz). The rare side waits for its end within the barrier, so
 * nothing is unpinned before all holds can be counted; behind it nothing depends on time. (Store
 * buffers that empty in bounded time: A. Morrison, Y. Afek, "Temporally Bounding TSO for Fence-Free
 * Asymmetric Synchronization", ASPLOS 2015.)
 *
 * Other ways to have a barrier on every processor were considered and not taken. mprotect() sends
 * no interrupt where a processor can invalidate another one's TLB by itself, as arm64 and AMD's
 * INVLPGB do. The program would see a signal to each of its threads, or a change of affinity.
 */
#ifndef PDN_BARRIER_H
#define PDN_BARRIER_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__SANITIZE_THREAD__)
#define PDN_ASYMMETRIC 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PDN_ASYMMETRIC 0
#endif
#endif
#ifndef PDN_ASYMMETRIC
#define PDN_ASYMMETRIC 1
#endif

enum pdn_fence_mode {
	PDN_MEMBARRIER,
	PDN_LOSING_MEMBARRIER, /* membarrier was refused; the grace period is under way */
	PDN_FENCE_FOR_GOOD,    /* no membarrier; and before pdn_barrier_init() */
};
extern __attribute__((visibility("hidden"))) uint32_t pdn_fence_mode;

/* The grace period, in nanoseconds. Tests have a shorter one. */
extern __attribute__((visibility("hidden"))) uint64_t pdn_barrier_grace_ns;

/* Finds out whether the kernel has membarrier, before anything is published. */
void pdn_barrier_init(void);

/*
 * Registers the process for the heavy barrier. That takes milliseconds in a process with threads,
 * so it waits for the first pin: until then no thread is on the rare side. If it is refused, each
 * side pays from then on.
 */
void pdn_barrier_register(void);
bool pdn_barrier_is_registered(void); /* or need not be */

/*
 * Without a system call as long as no other thread has a record (thread.h): a thread that gets its
 * record later has a full barrier there, before it publishes anything. Returns whether none has.
 */
bool pdn_heavy_barrier(void);

/* Lock not held. If membarrier was refused, says so once. */
void pdn_barrier_report(void);

/* A child's address space must be registered again; it has one thread, so this is cheap. */
void pdn_barrier_fork_child(void);

/*
 * The memory order of a store on the rare side, under the lock, that pdn_heavy_barrier() follows:
 * the barrier's fence keeps it before the loads behind that, but ThreadSanitizer does not see the
 * fence.
 */
#define PDN_BEFORE_BARRIER (PDN_ASYMMETRIC ? __ATOMIC_RELEASE : __ATOMIC_SEQ_CST)

static inline bool pdn_hits_have_fences(void)
{
	/* Acquire: what the frequent side loads next is not older than this. */
	return __builtin_expect(
		__atomic_load_n(&pdn_fence_mode, __ATOMIC_ACQUIRE) != PDN_MEMBARRIER, 0);
}

static inline void pdn_full_fence(void)
{
#if PDN_ASYMMETRIC
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* A store of the frequent side, to be followed by pdn_fence_if_hits_have() before it loads. */
static inline void pdn_store_unfenced(uint32_t *where, uint32_t value)
{
	/*
	 * Release keeps it behind what this thread has published before (a hold behind its
	 * announcement); the fence or pdn_heavy_barrier() takes care of its late arrival at other
	 * threads. The signal fence is for the compiler.
	 */
	__atomic_store_n(where, value, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/*
 * The same for a count that this thread alone changes, so a plain addition will do. As one
 * instruction, which compilers don't make of an atomic load and an atomic store: they make four.
 */
static inline void pdn_add_unfenced(uint32_t *where, uint32_t change)
{
#if PDN_ASYMMETRIC && defined(__x86_64__)
	__asm__ volatile("addl %1, %0" : "+m"(*where) : "ri"(change) : "cc", "memory");
#else
	pdn_store_unfenced(where, __atomic_load_n(where, __ATOMIC_RELAXED) + change);
#endif
}

static inline void pdn_fence_if_hits_have(void)
{
	if (pdn_hits_have_fences())
		pdn_full_fence();
}

static inline void pdn_publish32(uint32_t *where, uint32_t value)
{
#if PDN_ASYMMETRIC
	pdn_store_unfenced(where, value);
	pdn_fence_if_hits_have();
#else
	__atomic_exchange_n(where, value, __ATOMIC_SEQ_CST);
#endif
}

#endif
