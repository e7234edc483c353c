/* SPDX-License-Identifier: MIT */
/*
 * Ending regions: unlinked at once, unpinned when nobody holds them. The steps, in order:
 *	pdn_victims_add()	unlink.h; lock held: unlink each region; no lookup finds it any more
 *	pdn_victims_split_idle_and_held()	in_use.h; lock held: which of them are in use?
 *	pdn_victims_dispatch()	dispatch.h; lock not held: notify subscribers, unpin the idle ones
 *
 * Each file calls those below it: invalidate.c and replaced.c; dispatch.c and in_use.c; collect.c
 * and unlink.c, which unlink, and kept.c; probes.c, unpin.c and awaiting.c; ending.c, which knows
 * what is under way.
 */
#ifndef PDN_INVALIDATE_H
#define PDN_INVALIDATE_H

#include "cache/dispatch.h"
#include "cache/in_use.h"
#include "cache/index.h"
#include "cache/pindown.h"
#include "cache/race.h"
#include "cache/unlink.h"

/*
 * Lock not held. End all regions that the scope covers, and wait for other threads that are pinning
 * or unpinning some. `hint`: of a range, what the index had at its beginning; else zeroes. Returns
 * how many regions were ended here.
 */
int pdn_end_scope(const struct pdn_scope *scope, struct pdn_hint hint, enum pindown_reason reason);

void pdn_end_fork_child(void);

#endif
