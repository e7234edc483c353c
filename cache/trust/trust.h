/* SPDX-License-Identifier: MIT */
/* Whether a hit goes by what the cache knows, or its region is compared with the driver. */
#ifndef PDN_TRUST_H
#define PDN_TRUST_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/thread/thread.h"
#include "cache/driver/driver.h"
#include "cache/hit/region.h"

/* Lock held. The state of a live region; `checked`: PDN_REGION_CHECKED, any of its flags. */
enum pdn_state pdn_state_for(unsigned checked);

/*
 * Lock held. The region's record is filled in, or is live: lookups find it from here on, unless its
 * memory is of the past (past.h).
 */
void pdn_region_goes_live(uint32_t number, unsigned checked);

/*
 * Lock held. A live region has these flags from here on, and the state that goes with them. Hits go
 * by the state, which pairs with hold_if(); a hit under way may have read the old one: it began
 * before this call.
 */
void pdn_region_set_checked(uint32_t number, unsigned flags);

/* Lock held. Are frees watched, and has nothing shown that one was missed? */
bool pdn_is_intercepting(void);

/* Has something shown that not every free is seen? */
bool pdn_is_distrusted(void);

/*
 * Lock held. A free of memory that is not volatile was missed: as pdn_distrust(), but without its
 * line, which pdn_tell_of_miss() prints.
 */
void pdn_trust_ends(void);

/* Lock not held. That line, about the region whose free it was, which is still the caller's. */
void pdn_tell_of_miss(const struct pindown_region *region, const char *how);

/*
 * Lock not held. Is a held region still what the driver has at its address? UNKNOWN, too, if it
 * has ended. A free of its memory waits for the answer.
 */
enum pdn_truth pdn_compare(struct pindown_region *region);

/* The same in a flight of its memory, also of a region that was replaced. */
enum pdn_truth pdn_compare_in_flight(struct pindown_region *region);

/*
 * In each thread, one hit in this many on average is compared with the driver in any case, chosen
 * by chance. The thread's counter (base/thread/thread.h) says how many hits there are until the
 * next.
 */
extern uint32_t pdn_hits_for_a_look; /* tests have others */
bool pdn_look_now(struct pdn_thread *self, const struct pindown_region *region);

#endif
