/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "asym.h"
#include "thread.h"

uint32_t pd_payer = PD_EACH_MUST;
uint32_t pd_barriers;
struct pd_asym_limits pd_asym_limits = {.few = 64, .many = 256};

static bool has_membarrier; /* constant after pd_asym_init() */

/* Acquire and release: who sees it set may use membarrier. Set by a pin before it takes off. */
static bool registered;

static int membarrier(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

void pd_asym_init(void)
{
	int saved = errno;
	int commands = PD_CAN_ASYM ? membarrier(MEMBARRIER_CMD_QUERY) : -1;

	has_membarrier = commands > 0 && commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED;
	if (has_membarrier)
		__atomic_store_n(&pd_payer, PD_RARE_PAYS, __ATOMIC_RELAXED);
	errno = saved;
}

bool pd_asym_is_registered(void)
{
	return !has_membarrier || __atomic_load_n(&registered, __ATOMIC_ACQUIRE);
}

bool pd_asym_register(void)
{
	int saved = errno;

	if (pd_asym_is_registered())
		return true;
	if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0)
		__atomic_store_n(&registered, true, __ATOMIC_RELEASE);
	errno = saved;
	return registered;
}

/* ---- who pays ----------------------------------------------------------------------------- */

#define AT_A_TIME 8u /* barriers */

/* Threads that come here at once count wrong, and at worst change too early or too late. */
static bool hits_are_few(void)
{
	static uint32_t since;
	static uint64_t hits_before;
	uint32_t barriers = __atomic_load_n(&since, __ATOMIC_RELAXED) + 1;
	uint64_t hits, before;

	__atomic_store_n(&since, barriers % AT_A_TIME, __ATOMIC_RELAXED);
	if (barriers < AT_A_TIME)
		return false;
	hits = pd_counter_sum(offsetof(struct pd_counters, hits));
	before = __atomic_exchange_n(&hits_before, hits, __ATOMIC_RELAXED);
	return hits - before < (uint64_t)pd_asym_limits.few * AT_A_TIME;
}

static bool begin_change(void)
{
	uint32_t rare = PD_RARE_PAYS;

	return hits_are_few() && __atomic_compare_exchange_n(&pd_payer, &rare, PD_CHANGING, false,
							     __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Release: who is told EACH_PAYS sees what the membarrier has made known. */
static void end_change(void)
{
	__atomic_store_n(&pd_payer, PD_EACH_PAYS, __ATOMIC_RELEASE);
}

void pd_heavy_barrier(void)
{
	int saved;
	bool change;

	/* Our stores, whatever their order, come before the look at who else is there, and who pays. */
	pd_own_fence();
	if (pd_thread_is_alone())
		return;
	__atomic_store_n(&pd_barriers, __atomic_load_n(&pd_barriers, __ATOMIC_RELAXED) + 1,
			 __ATOMIC_RELAXED);
	/* Acquire: pairs with end_change(). */
	if (__atomic_load_n(&pd_payer, __ATOMIC_ACQUIRE) >= PD_EACH_PAYS)
		return;
	/* Once registered, it can't fail. Before that there is nobody to be told. */
	if (__atomic_load_n(&registered, __ATOMIC_ACQUIRE)) {
		change = begin_change();
		saved = errno;
		membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
		errno = saved;
		if (change)
			end_change();
	}
	/* membarrier orders the others; this orders us: what follows is not loaded before. */
	pd_own_fence();
}

/* One thread is left, which may have been forked in the middle of another's change. */
void pd_asym_fork_child(void)
{
	if (has_membarrier)
		__atomic_store_n(&pd_payer, PD_RARE_PAYS, __ATOMIC_RELAXED);
	if (registered) {
		registered = false;
		pd_asym_register();
	}
}
