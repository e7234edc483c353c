/* SPDX-License-Identifier: MIT */
/* Allocations, and frees that retire their address, take turns in the driver. */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/base/thread/cancel.h"
#include "cache/base/thread/lock.h"
#include "cache/base/thread/thread.h"
#include "cache/retire/turns.h"

uint64_t pdn_allocation_waits_ns = 20000000, pdn_retiring_waits_ns = 200000000;
PDN_NOT_INHERITED bool pdn_turns_are_taken;

/* All under the lock. */
static PDN_NOT_INHERITED uint32_t allocations; /* that are in the driver */
static PDN_NOT_INHERITED uint32_t retiring;   /* the thread whose free is there: its tid; 0: none */
static PDN_NOT_INHERITED uint32_t frees_wait; /* this many */
static PDN_NOT_INHERITED bool free_is_next;   /* an allocation had the last turn */
static PDN_NOT_INHERITED bool free_takes_long; /* no other allocation waits for it */

bool pdn_allocation_waits(void)
{
	PDN_UNCANCELLED;
	int saved = errno;
	uint64_t deadline = pdn_deadline(pdn_allocation_waits_ns);

	pdn_lock();
	while (!free_takes_long && retiring != pdn_my_tid() &&
	       (retiring || (frees_wait && free_is_next)))
		free_takes_long = !pdn_wait_for_work(deadline);
	allocations++;
	free_is_next = true;
	pdn_unlock();
	errno = saved;
	return true;
}

void pdn_allocation_ended(void)
{
	PDN_UNCANCELLED;
	int saved = errno;

	pdn_lock();
	allocations -= allocations != 0;
	if (!allocations)
		pdn_wake_waiters();
	pdn_unlock();
	errno = saved;
}

/* Allocations that have not ended in time are not waited for again. */
void pdn_retiring_begins(void)
{
	PDN_UNCANCELLED;
	int saved = errno;
	uint64_t deadline = pdn_deadline(pdn_retiring_waits_ns);
	bool in_time = true;

	pdn_lock();
	frees_wait++;
	while (in_time && (retiring || allocations))
		in_time = pdn_wait_for_work(deadline);
	frees_wait--;
	if (!in_time)
		allocations = 0;
	retiring = pdn_my_tid();
	pdn_unlock();
	errno = saved;
}

/* Lock held. */
static void leave(void)
{
	retiring = 0;
	free_is_next = free_takes_long = false;
	pdn_wake_waiters();
}

void pdn_retiring_ended(void)
{
	pdn_lock();
	if (retiring == pdn_my_tid())
		leave();
	pdn_unlock();
}

void pdn_turns_drop_own(void)
{
	if (retiring == pdn_my_tid())
		leave();
}
