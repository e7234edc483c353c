/* SPDX-License-Identifier: MIT */
/* Notifying subscribers that a region has ended. */
#ifndef PDN_SUBSCRIBE_H
#define PDN_SUBSCRIBE_H

#include <stdbool.h>

#include "cache/pindown.h"

/* Lock not held. */
void pdn_tell_subscribers(const struct pindown_region *region, bool in_use);

#endif
