/* SPDX-License-Identifier: MIT */
/*
 * Ending regions: unlinked at once, unpinned when nobody holds them. The steps, in order:
 *	pdn_collect()	collect.h; lock held: unlink each region; no lookup finds it any more
 *	pdn_ending_split_idle_and_held()	in_use.h; lock held: which of them are in use?
 *	pdn_ending_dispatch()	dispatch.h; lock not held: notify subscribers, unpin the idle ones
 *
 * Each file calls those below it: invalidate.c and replaced.c; dispatch.c and in_use.c; collect.c,
 * which unlinks, and kept.c, which unpins; work.c, which knows what is under way.
 */
#ifndef PDN_INVALIDATE_H
#define PDN_INVALIDATE_H

#include "cache/end/dispatch.h"
#include "cache/end/in_use.h"
#include "cache/pindown.h"
#include "cache/end/work.h"
#include "cache/end/collect.h"

/*
 * Lock not held. End all regions that the scope covers, and wait for other threads that are pinning
 * or unpinning some. Returns how many regions were ended here.
 */
int pdn_end_scope(const struct pdn_scope *scope, enum pindown_reason reason);

#endif
