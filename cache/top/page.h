/* SPDX-License-Identifier: MIT */
/*
 * The process's page for `pindown top` (format.h): made at the first use of the driver or of the
 * cache, removed at exit. Counting into it costs the same relaxed stores as without it. If there is
 * no room for it, or with PINDOWN_TOP=0, there is no page, and no message says so.
 */
#ifndef PD_LIVE_H
#define PD_LIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/pindown.h"
#include "cache/base/notify.h"
#include "cache/base/thread.h"

/* Promises that pd_live_close() will be called at exit; without this no page is made. */
void pd_live_allow(void);

/* Lock not held. Makes the page, once in a process. Keeps errno. The event: with the lock held. */
void pd_live_open(void);
PD_EVENT(page_made, (void));

/* Does the page, if there is one, count this thread's hits? */
bool pd_live_counts(const struct pd_counters *counters);
bool pd_live_counts_all(void); /* those of all threads that have a record */

/*
 * Lock held, when what is pinned has changed: between begin and end the statistics are stored into
 * the page, with release, except those that the slots count. NULL: there is no page; skip the end.
 */
struct pindown_stats *pd_live_begin(void);
void pd_live_put_device(unsigned device, uint64_t bytes, uint64_t regions);
void pd_live_end(void);

/* At exit: removes the file. Threads may continue to count. */
void pd_live_close(void);

/* In a forked child, after all counters have left the page. */
void pd_live_fork_child(void);

#endif
