/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "asym.h"

bool pd_asymmetric;

static int membarrier(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

/*
 * Called once, by the first thread that gets a record. Threads that publish before pd_asymmetric is
 * set use the full exchange, which is right with either kind of rare side.
 */
void pd_asym_init(void)
{
	int saved = errno;

	if (PD_CAN_ASYM && !pd_asymmetric &&
	    membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0)
		__atomic_store_n(&pd_asymmetric, true, __ATOMIC_SEQ_CST);
	errno = saved;
}

void pd_heavy_barrier(void)
{
	int saved = errno;

	/* Once registered, it can't fail; the fence is for this thread's own stores before it. */
	if (pd_light())
		membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
#if PD_CAN_ASYM
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
	errno = saved;
}

void pd_asym_fork_child(void)
{
	if (pd_asymmetric) {
		pd_asymmetric = false;
		pd_asym_init();
	}
}
