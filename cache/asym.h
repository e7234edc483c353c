/* SPDX-License-Identifier: MIT */
/*
 * Asymmetric barriers. Hits and frees are many and must cost nothing; pins and invalidations are
 * few and cost microseconds anyway. So the frequent side publishes with a plain store and the rare
 * side pays for both with membarrier(2).
 *
 * The pattern, everywhere it is used (store, then load what the other side stores):
 *
 *	frequent				rare
 *	pd_publish(&mine, ...)			__atomic_store_n(&theirs, ..., SEQ_CST)
 *	load theirs				pd_heavy_barrier()
 *						load mine
 *
 * One of the two sees the other's store. Where membarrier is missing (pd_asymmetric is false), and
 * under ThreadSanitizer, which knows nothing of it, the frequent side uses a sequentially
 * consistent exchange instead, and the loads are sequentially consistent too.
 */
#ifndef PD_ASYM_H
#define PD_ASYM_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__SANITIZE_THREAD__)
#define PD_CAN_ASYM 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PD_CAN_ASYM 0
#endif
#endif
#ifndef PD_CAN_ASYM
#define PD_CAN_ASYM 1
#endif

/* Whether the kernel has membarrier; found out before anything is published. */
extern __attribute__((visibility("hidden"))) bool pd_asymmetric;
void pd_asym_init(void);

/*
 * Registers the process for the heavy barrier. That takes milliseconds in a process with threads,
 * so it waits for the first pin: until then nobody is on the rare side. false: refused, and then
 * nothing may be pinned.
 */
bool pd_asym_register(void);
bool pd_asym_is_registered(void); /* or need not be */

/*
 * Without a system call as long as no other thread has a record (thread.h): one that gets its record
 * later has a full barrier there, before it publishes anything.
 */
void pd_heavy_barrier(void);

/* A child's address space must be registered anew; it has one thread, so this is cheap. */
void pd_asym_fork_child(void);

/*
 * Of a store on the rare side, under the lock, that pd_heavy_barrier() follows: what keeps it before the
 * loads behind that is the barrier's fence, which ThreadSanitizer does not see.
 */
#define PD_BEFORE_BARRIER (PD_CAN_ASYM ? __ATOMIC_RELEASE : __ATOMIC_SEQ_CST)

static inline bool pd_light(void)
{
	return PD_CAN_ASYM &&
	       __builtin_expect(__atomic_load_n(&pd_asymmetric, __ATOMIC_RELAXED), 1);
}

/* For who has seen that pd_light() holds; it never changes once anything is published. */
static inline void pd_publish32_lightly(uint32_t *where, uint32_t value)
{
	/*
	 * Release keeps it behind what this thread has published before (a hold behind its announcement);
	 * that it may come late to others is for pd_heavy_barrier(). The signal fence is for the compiler.
	 */
	__atomic_store_n(where, value, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void pd_publish32(uint32_t *where, uint32_t value)
{
	if (pd_light()) {
		pd_publish32_lightly(where, value);
	} else {
		__atomic_exchange_n(where, value, __ATOMIC_SEQ_CST);
	}
}

#endif
