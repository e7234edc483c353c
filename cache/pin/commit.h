/* SPDX-License-Identifier: MIT */
/* Pinned memory becomes a region. */
#ifndef PDN_COMMIT_H
#define PDN_COMMIT_H

#include "cache/pin/attempt.h"

/*
 * Lock not held. Commit point, under the lock: a free of the memory that has looked since the
 * flight said what it pins has marked it lost, and a free that begins after this finds the region
 * in the index. On success the flight ends here, and the region is held.
 */
int pdn_pin_commit(struct pdn_attempt *a);

/*
 * Lock not held; the caller holds the region, whose memory a stream frees later (pdn_ends_later()).
 * It ends, and stays pinned for those who hold it.
 */
void pdn_end_leaving(uint32_t number);

#endif
