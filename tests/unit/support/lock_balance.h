/* SPDX-License-Identifier: MIT */
#ifndef LOCK_BALANCE_H
#define LOCK_BALANCE_H

/* How often this thread has taken the cache's lock. */
extern __thread unsigned locks_taken;

#endif
