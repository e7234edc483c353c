/* SPDX-License-Identifier: MIT */
/*
 * The process's page for `pindown top` (format.h): made at the first use of the driver or of the
 * cache, gone at exit. Costs what the counters cost anyway: relaxed stores, into memory that others
 * can read. Without room, or with PINDOWN_TOP=0, there is none, and nothing is said.
 */
#ifndef PD_LIVE_H
#define PD_LIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/pindown.h"
#include "cache/base/notify.h"
#include "cache/base/thread.h"

/* Somebody will call pd_live_close() at exit: without this no page is made. */
void pd_live_allow(void);

/*
 * Makes the page, once in a process. Lock not held. Keeps errno. The event: it is new; lock held.
 */
void pd_live_open(void);
PD_EVENT(page_made, (void));

/* Does the page, if there is one, count this thread's hits? */
bool pd_live_counts(const struct pd_counters *counters);
bool pd_live_counts_all(void); /* those of all threads that have a record */

/*
 * Lock held. What is pinned has changed: between these two the statistics are stored into the page, with release,
 * but for what the slots count. NULL: there is no page, and no end to be made.
 */
struct pindown_stats *pd_live_begin(void);
void pd_live_put_device(unsigned device, uint64_t bytes, uint64_t regions);
void pd_live_end(void);

/* At exit: the file goes; threads may count on. */
void pd_live_close(void);

/* In a forked child, when no counter is in the page any more. */
void pd_live_fork_child(void);

#endif
