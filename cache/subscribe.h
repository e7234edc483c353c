/* SPDX-License-Identifier: MIT */
/* Notifying subscribers that a region has ended. */
#ifndef PD_SUBSCRIBE_H
#define PD_SUBSCRIBE_H

#include <stdbool.h>

#include "cache/pindown.h"

bool pd_has_subscribers(void);
bool pd_subscriber_runs_here(void); /* this thread is in a callback */

/* Lock not held. */
void pd_tell_subscribers(const struct pindown_region *region, bool in_use);

void pd_subscribe_fork_child(void);

#endif
