/* SPDX-License-Identifier: MIT */
/* Regions that were replaced (growth.h) while objects on them were held. */
#ifndef PDN_REPLACED_H
#define PDN_REPLACED_H

#include "cache/pindown.h"
#include "cache/end/work.h"

/*
 * Lock not held. The memory is about to end. For the objects that are held on regions which others
 * have replaced it ends only now: they are named, revoked or kept.
 */
void pdn_end_replaced(const struct pdn_scope *scope, enum pindown_reason reason);

#endif
