/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "asym.h"
#include "thread.h"

bool pd_asymmetric;

static int membarrier(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* Acquire and release: who sees it set may use membarrier. Set by a pin before it takes off. */
static bool registered;

void pd_asym_init(void)
{
	int saved = errno;
	int commands = PD_CAN_ASYM ? membarrier(MEMBARRIER_CMD_QUERY) : -1;

	pd_asymmetric = commands > 0 && commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED;
	errno = saved;
}

bool pd_asym_is_registered(void)
{
	return !pd_asymmetric || __atomic_load_n(&registered, __ATOMIC_ACQUIRE);
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

static void full_barrier(void)
{
#if PD_CAN_ASYM
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
	/* Otherwise, under ThreadSanitizer, all stores and loads concerned are sequentially consistent. */
}

void pd_heavy_barrier(void)
{
	int saved = errno;

	/* Our stores, whatever their order, come before the look at who else is there. */
	full_barrier();
	if (pd_thread_is_alone())
		return;
	/* Once registered, it can't fail. Before that there is nobody to be told. */
	if (__atomic_load_n(&registered, __ATOMIC_ACQUIRE))
		membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
		/* membarrier orders the others; this orders us: what follows is not loaded before. */
#if PD_CAN_ASYM
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
	errno = saved;
}

void pd_asym_fork_child(void)
{
	if (registered) {
		registered = false;
		pd_asym_register();
	}
}
