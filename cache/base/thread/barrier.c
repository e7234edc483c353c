/* SPDX-License-Identifier: MIT */
/* The rare side of the asymmetric barrier, and who pays for it. */
#define _GNU_SOURCE
#include <linux/membarrier.h>

#include "cache/base/thread/barrier.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/base/process/system.h"
#include "cache/base/thread/thread.h"
#include "cache/base/visible.h"

uint32_t pdn_fence_mode = PDN_FENCE_FOR_GOOD;

uint64_t pdn_barrier_grace_ns = 100000000u;

/*
 * Acquire and release: a thread that sees it set may use membarrier. Set by a pin before its flight
 * begins.
 */
static bool registered;

/* Relaxed: a refusal is reported soon, by whichever thread. */
static bool refused;

/* Negative when it is refused. */
static int membarrier(int command)
{
	return (int)pdn_sys(SYS_membarrier, command, 0, 0);
}

void pdn_barrier_init(void)
{
	int commands = PDN_ASYMMETRIC ? membarrier(MEMBARRIER_CMD_QUERY) : -1;

	if (commands > 0 && commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED)
		__atomic_store_n(&pdn_fence_mode, PDN_MEMBARRIER, __ATOMIC_RELAXED);
}

/* ---- membarrier is refused ----------------------------------------------------------------- */

/* false: another thread's grace period is over already; this one need not wait either. */
static bool begin_to_lose(void)
{
	uint32_t payer = __atomic_load_n(&pdn_fence_mode, __ATOMIC_SEQ_CST);

	while (payer != PDN_FENCE_FOR_GOOD)
		if (__atomic_compare_exchange_n(&pdn_fence_mode, &payer, PDN_LOSING_MEMBARRIER,
						false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return true;
	return false;
}

/* By the clock, and not by the number of naps: a filter may refuse those as well. */
static void let_stores_come_out(void)
{
	uint64_t end = pdn_deadline(pdn_barrier_grace_ns);

	while (pdn_deadline(0) < end)
		pdn_sys_sleep(1000000);
}

/* Release: a thread that reads FENCE_FOR_GOOD sees what the grace period has made known. */
static void do_without(void)
{
	if (!begin_to_lose())
		return;
	__atomic_store_n(&refused, true, __ATOMIC_RELAXED);
	let_stores_come_out();
	__atomic_store_n(&pdn_fence_mode, PDN_FENCE_FOR_GOOD, __ATOMIC_RELEASE);
}

void pdn_barrier_report(void)
{
	static bool told;

	if (__builtin_expect(__atomic_load_n(&refused, __ATOMIC_RELAXED), 0))
		pdn_log_once(&told, PDN_LOG_WARN,
			     "membarrier(2) is refused, most likely by a system call filter: each "
			     "hit now runs a memory barrier, which takes some nanoseconds");
}

/* ---- registering --------------------------------------------------------------------------- */

bool pdn_barrier_is_registered(void)
{
	return __atomic_load_n(&registered, __ATOMIC_ACQUIRE) ||
	       __atomic_load_n(&pdn_fence_mode, __ATOMIC_ACQUIRE) == PDN_FENCE_FOR_GOOD;
}

static bool register_process(void)
{
	if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0)
		return false;
	__atomic_store_n(&registered, true, __ATOMIC_RELEASE);
	return true;
}

void PDN_RARE pdn_barrier_register(void)
{
	if (!pdn_barrier_is_registered() && !register_process())
		do_without();
}

/* ---- who pays ----------------------------------------------------------------------------- */

/* A filter need not apply to all threads: of two that come here, one may be refused. */
static void make_others_stores_known(void)
{
	if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)
		do_without();
}

/* Behind a full fence. */
static void __attribute__((noinline)) pay_for_others(void)
{
	/* Acquire: pairs with do_without(). */
	if (__atomic_load_n(&pdn_fence_mode, __ATOMIC_ACQUIRE) == PDN_FENCE_FOR_GOOD)
		return;
	/* Before it is registered the rare side does not exist. */
	if (__atomic_load_n(&registered, __ATOMIC_ACQUIRE))
		make_others_stores_known();
	/*
	 * membarrier orders the other threads; this orders our own: no later load moves before it.
	 */
	pdn_full_fence();
}

/*
 * Our stores, whatever their order, come before the look at which other threads exist, and which
 * side pays.
 */
bool pdn_heavy_barrier(void)
{
	bool alone;

	pdn_full_fence();
	alone = pdn_thread_is_alone();
	if (!alone)
		pay_for_others();
	return alone;
}

/*
 * One thread is left, which may have been forked in the middle of another's grace period. Relaxed,
 * for the same reason.
 */
void pdn_barrier_fork_child(void)
{
	uint32_t payer = __atomic_load_n(&pdn_fence_mode, __ATOMIC_RELAXED);
	bool was_registered = registered;

	registered = false;
	if (payer == PDN_LOSING_MEMBARRIER ||
	    (was_registered && payer != PDN_FENCE_FOR_GOOD && !register_process()))
		payer = PDN_FENCE_FOR_GOOD;
	__atomic_store_n(&pdn_fence_mode, payer, __ATOMIC_RELAXED);
}
