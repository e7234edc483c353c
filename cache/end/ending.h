/* SPDX-License-Identifier: MIT */
/*
 * Regions that are ending, from the moment when they are live no longer until they are unpinned or
 * left to their holders. Each is one thread's to end: in a list on that thread's stack, or, where
 * a kept region has lost its last holder, in a queue. Frees of other threads find them here, and
 * wait. Under the lock, but for what is said otherwise.
 */
#ifndef PDN_ENDING_H
#define PDN_ENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/barrier.h"
#include "cache/end/race.h"
#include "cache/hit/region.h"

/*
 * Regions that are being ended by one thread, on whose stack this is; linked through ->victim, in
 * the order in which they were added. From the first pdn_victims_add() up to the end of
 * pdn_victims_dispatch() other threads find it. A region leaves it when it is unpinned, or is kept
 * for its holders; they leave it in order.
 */
struct pdn_victims {
	uint32_t first, last;
	uint32_t ender;		  /* the thread's tid */
	struct pdn_victims *next; /* other lists, of any thread; under the lock */
	/*
	 * How it is known that their frees were noticed only after the driver had made them, as the
	 * end of a sentence; NULL: they were noticed in time. Volatile regions are not counted so.
	 */
	const char *missed;
	const struct pdn_scope *scope; /* whose end ends them; NULL: none, each ends by itself */
	bool are_replaced; /* by a region that reaches over them: no eviction for lack of room */
};

/* Other threads find the list from here on. */
void pdn_victims_begin(struct pdn_victims *victims);

static inline void pdn_victims_append(struct pdn_victims *victims, uint32_t number)
{
	if (__builtin_expect(victims->first != 0, 1)) {
		pdn_regions[victims->last].victim = number;
	} else {
		pdn_victims_begin(victims);
		victims->first = number;
	}
	victims->last = number;
	pdn_regions[number].victim = 0;
}

/* A kept region is now this thread's, and no list's. */
void pdn_dying_append(uint32_t number);

/* It is no longer ending: the first of a list, or in the queue (victims is NULL). */
void pdn_ending_leave(struct pdn_victims *victims, uint32_t number);

/* All that are ending: the lists, through ->next; and the queue, through ->newer. */
const struct pdn_victims *pdn_first_ending(void);
uint32_t pdn_first_dying(void);
bool pdn_ending_any(void);

/* Is another thread unpinning a region that the scope covers? Any region? */
uint32_t pdn_dying_under(const struct pdn_scope *scope);
bool pdn_dying_any(void);

/* This thread is about to end, and does not unpin the regions that it was to. */
void pdn_dying_drop_own(void);

/*
 * The region's memory, to be compared with a scope: it stands until the record is free. Of a window
 * it is the allocation, whose end ends the window.
 */
struct pdn_memory pdn_memory_of(const struct pindown_region *region);
bool pdn_region_is_under(uint32_t number, const struct pdn_scope *scope);

/*
 * Store, barrier, load: pairs with hits, which announce the region and then load its state (get.c,
 * hold_if()), and with puts, which drop their hold and then load it.
 */
static inline void pdn_region_set_state(uint32_t number, enum pdn_state state)
{
	__atomic_store_n(&pdn_briefs[number].state, state, PDN_BEFORE_BARRIER);
}

#endif
