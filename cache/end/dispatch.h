/* SPDX-License-Identifier: MIT */
/* The last step of an end, without the lock. */
#ifndef PDN_DISPATCH_H
#define PDN_DISPATCH_H

#include "cache/end/work.h"

/*
 * Lock not held. Notify the subscribers, unpin the idle regions, let go of the others. Returns how
 * many regions there were.
 */
int pdn_ending_dispatch(struct pdn_ending *ending);

#endif
