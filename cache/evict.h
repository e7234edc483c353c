/* SPDX-License-Identifier: MIT */
/* The order in which regions are evicted, the budgets, and making room under them. */
#ifndef PD_EVICT_H
#define PD_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/invalidate.h"
#include "cache/race.h"

/* ---- queues of regions; lock held for all of these ----------------------------------------- */

/* Linked through ->older and ->newer. A region is in one queue at most. */
struct pd_queue {
	uint32_t oldest, newest, count;
};

void pd_queue_append(struct pd_queue *queue, uint32_t number);
void pd_queue_remove(struct pd_queue *queue, uint32_t number);

/* A region is live from here on, or no longer; its buffer id and its pin are set. */
void pd_queues_add(uint32_t number);
void pd_queues_remove(uint32_t number);
void pd_queues_fork_child(void);

/* All live regions, in no order of use: 0 at the end. */
uint32_t pd_queues_first(void);
uint32_t pd_queues_next(uint32_t number);

/* ---- eviction ------------------------------------------------------------------------------ */

/*
 * Lock held. Pick the idle region that is to make room (of this device, unless negative) and unlink
 * it into victims; false when there is none.
 */
bool pd_evict_one(struct pd_victims *victims, int device);

/* In place of a device: any region, but only one with a descriptor, or with consumer objects. */
#define PD_WITH_DMABUF	(-2)
#define PD_WITH_OBJECTS (-3)

/* Lock held. If there is room for this many bytes under the budgets, reserve it for the flight. */
void pd_take_room(struct pd_flight *flight, uint64_t bytes);

/*
 * Lock not held. Make room for this many bytes under the budgets and reserve it for the flight.
 * PINDOWN_ERR_NO_SPACE when too much else is in use; then nothing was evicted.
 */
int pd_make_room(struct pd_flight *flight, uint64_t bytes);

/* A pin or an export that was refused for lack of space, and what was evicted for it so far. */
struct pd_pressure {
	int place;	  /* which regions may go: as in pd_evict_one() */
	uint64_t wanted;  /* bytes of that device; 0: the shortage is not one of bytes */
	bool is_hopeless; /* it would be refused if all idle regions went: then none goes */
	uint32_t regions;
	uint64_t bytes;
};

/*
 * Lock not held. Evict one idle region, or wait for another thread that is unpinning some; false
 * when nothing is left to be done.
 */
bool pd_evict_for(struct pd_pressure *pressure);

/* Lock not held. The bytes that idle regions of a device have pinned; it counts up to `enough`. */
uint64_t pd_idle_bytes(int device, uint64_t enough);

/* Lock not held. Evict idle regions of this many bytes, if there are as many. */
void pd_give_back(uint64_t bytes);

/* The count budget in force. */
uint64_t pd_max_regions(void);

#endif
