/* SPDX-License-Identifier: MIT */
/* Finding an object of a region: by its key, or one that serves for it by the consumer's rules. */
#ifndef PDN_LOOKUP_H
#define PDN_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/pindown.h"

/*
 * The object with the key, also one that is being made or ends; or a live one that serves for it by
 * the consumer's rules. 0: there is none. The calling thread has announced the region and seen it
 * live, or holds the lock. Without the lock, an object is overlooked if any comes or goes
 * meanwhile; and another thread may end it before the caller holds it.
 */
uint32_t pdn_object_find(uint32_t region, uint32_t consumer, const struct pindown_key *key);

/* Lock held, for these. An object is to be found by its key (false: no room), or not any more. */
bool pdn_object_enter(uint32_t number);
void pdn_object_leave(uint32_t number);

/*
 * From here on a LIVE object is found for other keys than its own, too; or, as it may end, is not.
 */
void pdn_object_serve(uint32_t number);
void pdn_object_serve_no_more(uint32_t number);

/* A KEPT object on a live region: it stays in the list, but no look-up finds it by its key. */
void pdn_object_hide(uint32_t number);

#endif
