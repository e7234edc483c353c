/* SPDX-License-Identifier: MIT */
/*
 * Queues of regions, and among them those of the live ones, from which evictions choose (evict.c).
 * Lock held for all of these.
 */
#ifndef PDN_QUEUES_H
#define PDN_QUEUES_H

#include <stdint.h>

#include "cache/hit/region.h"

/* Linked through ->older and ->newer. A region is in one queue at most. */
struct pdn_queue {
	uint32_t oldest, newest, count;
};

void pdn_queue_append(struct pdn_queue *queue, uint32_t number);
void pdn_queue_remove(struct pdn_queue *queue, uint32_t number);

/* A region is live from here on, or no longer; its buffer id and its pin are set. */
void pdn_queues_add(uint32_t number);
void pdn_queues_remove(uint32_t number);

/* All live regions, in no order of use: 0 at the end. */
uint32_t pdn_queues_first(void);
uint32_t pdn_queues_next(uint32_t number);

/* ---- for evictions ------------------------------------------------------------------------- */

/*
 * An eviction that meets a region in use moves it to the third queue, or each later one would have
 * to pass it again. A region that is found idle there comes back to its queue, which PDN_HELD is
 * added to in its record. `bytes`: pinned by the regions in each.
 */
#define PDN_NEWCOMERS 0u
#define PDN_SETTLED   PDN_QUEUE_SETTLED
#define PDN_HELD      2u
extern PDN_HIDDEN struct pdn_live {
	struct pdn_queue queue;
	uint64_t bytes;
} pdn_live[3];

/* To the new end of another queue, or of the same. */
void pdn_queues_move(uint32_t number, unsigned queue);

/* From the third queue back to this one: behind `older`, or to the old end where that is 0. */
void pdn_queues_come_back(uint32_t number, unsigned queue, uint32_t older);

/* One of the third queue, each in turn; it is not empty. */
uint32_t pdn_queues_next_held(void);

#endif
