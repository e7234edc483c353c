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
#include "cache/growth.h"
#include "cache/pindown.h"
#include "cache/race.h"

/* The outcome of an attempt: a pindown_result, or this: something has changed, try again. */
#define PDN_AGAIN 1
/* The same, but nothing has ended yet: the driver is asked about a wider range at once. */
#define PDN_WIDER 2

struct pdn_attempt {
	uint64_t addr, length;
	struct pdn_growth growth; /* of mapped memory: what is pinned beside the request */
	struct pdn_flight flight;
	bool frees_before; /* some began before the flight said what it pins */
	struct pdn_allocation what;
	struct pdn_pin pin;
	uint16_t flags;	  /* PDN_REGION_* */
	bool has_evicted; /* regions, for a pin that was refused all the same */
	bool narrows;	  /* another one that reaches less far may work */
	int driver_error;
	bool was_refused; /* a pin for the request */
	unsigned waits;	  /* for guards that may be on the memory to be asked about */
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

/* Some guard is up. May it be on memory that the driver would be asked about? Then wait for it. */
bool pdn_attempt_must_wait(const struct pdn_attempt *a);
int pdn_attempt_wait_before_asking(struct pdn_attempt *a);

/*
 * The memory's own frees have been looked for. From here on, to the end of the flight, frees of
 * what lies beside it in the pin wait, too. PINDOWN_OK; or the flight has ended: PDN_AGAIN, or a
 * result.
 */
int pdn_attempt_asks_about_neighbours(struct pdn_attempt *a);

/*
 * With mappings beside the request, up to the wanted size, the driver is asked about memory that
 * the program frees as it likes.
 */
bool pdn_attempt_may_ask_wider(struct pdn_attempt *a);

/* The flight has said what it pins, and some frees began before that. Were they of this memory? */
int pdn_attempt_look_for_frees(struct pdn_attempt *a);

/* Another thread is pinning the same: wait until that has settled. */
int pdn_attempt_wait_for_company(struct pdn_attempt *a);

/* Nothing has gone wrong but that the attempt reached too far. */
int pdn_attempt_narrower(struct pdn_attempt *a);

/* Let the free that was faster proceed, and look again. */
int pdn_attempt_again(struct pdn_attempt *a);

#endif
