/* SPDX-License-Identifier: MIT */
/* Which region makes room for another, and making room in the pin space of a device. */
#ifndef PDN_EVICT_H
#define PDN_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/end/work.h"
#include "cache/room/queues.h"

/*
 * Lock held. Pick the idle region that is to make room (of this device, unless negative) and unlink
 * it into *ending; false when there is none.
 */
bool pdn_evict_one(struct pdn_ending *ending, int device);

/*
 * Lock held. The two steps of it, for a caller that asks something in between: a few regions that
 * were in use are looked at again (true: one of these may go), and then one goes.
 */
bool pdn_evict_look(int device);
bool pdn_evict_looked(struct pdn_ending *ending, int device);

/*
 * Lock held. Would so much become free if all idle regions went? It looks at no more of them than
 * it must.
 */
bool pdn_idle_is_enough(uint64_t bytes, uint64_t regions);

/* In place of a device: any region, but only one with a descriptor, or with consumer objects. */
#define PDN_WITH_DMABUF	 (-2)
#define PDN_WITH_OBJECTS (-3)

/* A pin or an export that was refused for lack of space, and what was evicted for it so far. */
struct pdn_pressure {
	int place;	  /* which regions may go: as in pdn_evict_one() */
	uint64_t wanted;  /* bytes of that device; 0: the shortage is not one of bytes */
	bool is_hopeless; /* it would be refused if all idle regions went: then none goes */
	bool nowait;	  /* no waiting for other threads: */
	bool would_wait;  /* out: it is given up for that */
	uint32_t regions;
	uint64_t bytes;
};

/*
 * Lock not held. Evict one idle region, or wait for another thread that is unpinning some; false
 * when nothing is left to be done.
 */
bool pdn_evict_for(struct pdn_pressure *pressure);

/*
 * Lock not held. Room is short for a pin of this memory, which is to replace the regions that it
 * overlaps: the idle ones among them go now, before any other. false: there was none.
 */
bool pdn_evict_replaced(const struct pdn_allocation *what);

/* Lock not held. The bytes that idle regions of a device have pinned; it counts up to `enough`. */
uint64_t pdn_idle_bytes(int device, uint64_t enough);

/* Lock not held. Evict idle regions of this many bytes, of a device or (-1) of all. */
void pdn_give_back(uint64_t bytes, int device);

#endif
