/* SPDX-License-Identifier: MIT */
/*
 * Queues of regions. A region is in one at most: while it is live, in one of those from which
 * evictions choose (evict.c).
 */
#define _GNU_SOURCE

#include "cache/base/process/process.h"
#include "cache/room/ghosts.h"
#include "cache/room/queues.h"
#include "cache/hit/region.h"

/* As the next newer one than `older`; 0: as the oldest. */
static void insert_behind(struct pdn_queue *queue, uint32_t older, uint32_t number)
{
	struct pindown_region *all = pdn_regions;
	uint32_t newer = older ? all[older].newer : queue->oldest;

	all[number].older = older;
	all[number].newer = newer;
	if (older)
		all[older].newer = number;
	else
		queue->oldest = number;
	if (newer)
		all[newer].older = number;
	else
		queue->newest = number;
	queue->count++;
}

void pdn_queue_append(struct pdn_queue *queue, uint32_t number)
{
	insert_behind(queue, queue->newest, number);
}

void pdn_queue_remove(struct pdn_queue *queue, uint32_t number)
{
	struct pindown_region *all = pdn_regions;
	uint32_t older = all[number].older, newer = all[number].newer;

	if (older)
		all[older].newer = newer;
	else
		queue->oldest = newer;
	if (newer)
		all[newer].older = older;
	else
		queue->newest = older;
	queue->count--;
}

/* ---- live regions ------------------------------------------------------------------------- */

PDN_NOT_INHERITED struct pdn_live pdn_live[3];
static PDN_NOT_INHERITED uint32_t next_held; /* to be looked at in the third one; 0: the oldest */

/* PDN_HELD may be added to the queue that the region comes from. */
static unsigned place_of(uint32_t number)
{
	unsigned queue = pdn_regions[number].queue;

	return queue & PDN_HELD ? PDN_HELD : queue;
}

/* `queue` as in a region's record; `older` as in insert_behind(). */
static void enter(uint32_t number, unsigned queue, uint32_t older)
{
	pdn_regions[number].queue = (uint8_t)queue;
	pdn_live[place_of(number)].bytes += pdn_region_pin_length(&pdn_regions[number]);
	insert_behind(&pdn_live[place_of(number)].queue, older, number);
}

static void append(uint32_t number, unsigned queue)
{
	enter(number, queue, pdn_live[queue & PDN_HELD ? PDN_HELD : queue].queue.newest);
}

void pdn_queues_remove(uint32_t number)
{
	if (number == next_held)
		next_held = pdn_regions[number].newer;
	pdn_live[place_of(number)].bytes -= pdn_region_pin_length(&pdn_regions[number]);
	pdn_queue_remove(&pdn_live[place_of(number)].queue, number);
}

void pdn_queues_move(uint32_t number, unsigned queue)
{
	pdn_queues_remove(number);
	append(number, queue);
}

void pdn_queues_come_back(uint32_t number, unsigned queue, uint32_t older)
{
	pdn_queues_remove(number);
	enter(number, queue, older);
}

uint32_t pdn_queues_next_held(void)
{
	uint32_t number = next_held ? next_held : pdn_live[PDN_HELD].queue.oldest;

	next_held = pdn_regions[number].newer;
	return number;
}

static uint32_t first_from(unsigned place)
{
	while (place < PDN_HELD && !pdn_live[place].queue.oldest)
		place++;
	return place <= PDN_HELD ? pdn_live[place].queue.oldest : 0;
}

uint32_t pdn_queues_first(void)
{
	return first_from(PDN_NEWCOMERS);
}

uint32_t pdn_queues_next(uint32_t number)
{
	uint32_t newer = pdn_regions[number].newer;

	return newer ? newer : first_from(place_of(number) + 1);
}

void pdn_queues_add(uint32_t number)
{
	__atomic_store_n(&pdn_briefs[number].used, 0, __ATOMIC_RELAXED);
	if (pdn_ghost_comes_back(&pdn_regions[number]))
		append(number, PDN_SETTLED);
	else
		append(number, PDN_NEWCOMERS);
}
