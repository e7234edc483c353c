/* SPDX-License-Identifier: MIT */
/* Kept regions that wait for the next use, or for the end, of their memory. */
#include "cache/awaiting.h"
#include "cache/index.h"
#include "cache/queues.h"
#include "cache/region.h"

static struct pdn_queue awaiting; /* the list of pdn_first_awaiting(); under the lock */
static uint32_t awaiting_count;	  /* changed under the lock */

/*
 * Relaxed: a thread that gets the memory again has it from the driver, which has it from the thread
 * that freed it.
 */
bool pdn_awaits_reuse(void)
{
	return __atomic_load_n(&awaiting_count, __ATOMIC_RELAXED) != 0;
}

uint32_t pdn_first_awaiting(void)
{
	return awaiting.oldest;
}

/* Lock held. It counts as occupied, so that allocations look here. */
static void count_awaiting(uint32_t change)
{
	__atomic_store_n(&awaiting_count, awaiting_count + change, __ATOMIC_RELAXED);
	pdn_occupied_add(change);
}

void pdn_await_reuse(uint32_t number)
{
	if (pdn_regions[number].flags & PDN_REGION_AWAITS)
		return;
	pdn_queue_append(&awaiting, number);
	pdn_region_set_flags(&pdn_regions[number], pdn_regions[number].flags | PDN_REGION_AWAITS);
	count_awaiting(1);
}

void pdn_stop_awaiting(uint32_t number)
{
	if (!(pdn_regions[number].flags & PDN_REGION_AWAITS))
		return;
	pdn_queue_remove(&awaiting, number);
	pdn_region_set_flags(&pdn_regions[number], pdn_regions[number].flags & ~PDN_REGION_AWAITS);
	count_awaiting(-1u);
}

void __attribute__((cold)) pdn_awaiting_fork_child(void)
{
	awaiting = (struct pdn_queue){0};
	awaiting_count = 0;
}
