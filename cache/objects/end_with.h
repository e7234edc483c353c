/* SPDX-License-Identifier: MIT */
/* Objects end with their region. (pindown.h has the ends of their owner, and of their consumer.) */
#ifndef PDN_END_WITH_H
#define PDN_END_WITH_H

#include <stdint.h>

#include "cache/end/work.h"
#include "cache/objects/object.h"

/*
 * Lock held. The region is leaving the index: from here on each detach takes the lock. scope: as in
 * struct pdn_ending.
 */
void pdn_objects_unlink(uint32_t region, enum pindown_reason reason, const struct pdn_scope *scope);

/*
 * Lock not held; all subscribers have been notified of the region's end. Destroy its idle objects,
 * revoke or keep the held ones, and wait for other threads that are making or destroying some.
 */
void pdn_objects_end(uint32_t region, const struct pdn_scope *scope);

/* Lock not held. The driver has handed [begin, end) out again. */
void pdn_objects_end_reused(uint64_t begin, uint64_t end);

#endif
