/* SPDX-License-Identifier: MIT */
/*
 * Announcements: a thread that looks at a region says so first (get.c, objects/attach.c), and who
 * has made the region's state another one waits until such looks are over.
 */
#ifndef PDN_ANNOUNCED_H
#define PDN_ANNOUNCED_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/thread/thread.h"

/*
 * Lock held, after a heavy barrier. Wait until that thread no longer announces this region.
 * Acquire: pairs with the release that ends the announcement (get.c, objects/attach.c).
 */
void pdn_wait_for_reader(const struct pdn_thread *thread, uint32_t number);

/*
 * Lock held, after a heavy barrier, which has said whether this thread is alone. Wait until no
 * other one announces a region that is DYING. If this thread is alone, another one that gets its
 * record from here on finds no live state.
 */
void pdn_announced_of_others_pass(void);
static inline void pdn_announced_pass(bool alone)
{
	if (!alone)
		pdn_announced_of_others_pass();
}

/*
 * Lock not held. The region is live no longer, or it is any region and a guard on all memory of a
 * context is up; and a heavy barrier has followed. Wait until no other thread compares it with the
 * driver (trust.h), or a free gives up waiting.
 */
#define PDN_ANY_REGION 0
void pdn_comparisons_pass(uint32_t number);

#endif
