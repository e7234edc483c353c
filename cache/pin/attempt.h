/* SPDX-License-Identifier: MIT */
/*
 * An attempt to pin the memory of a miss (pin.c), and what it does where frees and other pins are
 * under way (attempt.c). Each function of those that return a result ends the flight, but for
 * PINDOWN_OK. Lock not held for any of these.
 */
#ifndef PDN_ATTEMPT_H
#define PDN_ATTEMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/backend/backend.h"
#include "cache/driver/driver.h"
#include "cache/pin/growth.h"
#include "cache/pindown.h"
#include "cache/end/work.h"

/* The outcome of an attempt: a pindown_result, or this: something has changed, try again. */
#define PDN_AGAIN 1
/* The same, but nothing has ended yet: the driver is asked about a wider range at once. */
#define PDN_WIDER 2

struct pdn_attempt {
	uint64_t addr, length;
	struct pdn_growth growth; /* of mapped memory: what is pinned beside the request */
	struct pdn_flight flight;
	struct pdn_allocation what;
	struct pdn_pin pin;
	uint16_t flags;	  /* PDN_REGION_* */
	bool has_evicted; /* regions, for a pin that was refused all the same */
	bool narrows;	  /* another one that reaches less far may work */
	int driver_error;
	bool was_refused; /* a pin for the request */
	unsigned losses;
	unsigned rounds;    /* of all kinds */
	unsigned refusals;  /* how often the driver has refused memory of a pool */
	unsigned memories;  /* how often an eviction was made for a record's memory */
	uint64_t index_seq; /* see pdn_pin() */
	uint64_t begin;	    /* ticks */
	struct pindown_region *region;
};

static inline uint64_t pdn_page_floor(uint64_t addr)
{
	return addr & ~(uint64_t)(PINDOWN_PAGE_SIZE - 1);
}

static inline uint64_t pdn_page_ceil(uint64_t addr)
{
	return pdn_page_floor(addr + PINDOWN_PAGE_SIZE - 1);
}

/* Does the driver still describe the same memory at this address? */
bool pdn_is_same_buffer(const struct pdn_attempt *a);

/*
 * Another thread is ending some of the memory. Wait without a flight, or the free would wait for
 * this thread in turn; an attempt that reaches too far is made again with the request alone.
 */
int pdn_attempt_wait_for_frees(struct pdn_attempt *a);

/* A subscriber may ask for the memory that this thread is about to end: BUSY. */
int pdn_attempt_meets_own_free(struct pdn_attempt *a);

/*
 * What is pinned are whole pages, or a piece of a pool. Where that reaches over the memory, the
 * driver looks up other allocations as well, whose frees wait from here on.
 */
int pdn_attempt_reaches_neighbours(struct pdn_attempt *a);

/*
 * The driver is to be asked about what lies beside the growth's range, up to its size: about
 * mappings that the program frees as it likes.
 */
int pdn_attempt_asks_wider(struct pdn_attempt *a);

/* Another thread is pinning the same: wait until that is over. */
int pdn_attempt_wait_for_same_pin(struct pdn_attempt *a);

/* Nothing has gone wrong but that the attempt reached too far. */
int pdn_attempt_narrower(struct pdn_attempt *a);

/* Let the free that was faster proceed, and look again. */
int pdn_attempt_again(struct pdn_attempt *a);

#endif
