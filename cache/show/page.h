/* SPDX-License-Identifier: MIT */
/*
 * The process's page for `pindown top` (format.h): made at the first use of the cache, removed at
 * exit. A process that uses CUDA and registers nothing has none: CRIU dumps no process with such
 * memory. Counting into it costs the same relaxed stores as without it. If there is no room for it,
 * or with PINDOWN_TOP=0, there is no page, and no message says so.
 */
#ifndef PDN_PAGE_H
#define PDN_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/pindown.h"
#include "cache/base/notify.h"
#include "cache/base/thread/thread.h"
#include "cache/base/visible.h"

/* Promises that pdn_top_close() will be called at exit; without this no page is made. */
void pdn_top_allow(void);

/*
 * Lock not held. Makes the page, once in a process. Keeps errno. The event: with the lock held.
 * Acquire: pairs with the release in pdn_top_decide(): whether there is a page is decided.
 */
extern PDN_HIDDEN bool pdn_top_decided;
void pdn_top_decide(void);
static inline void pdn_top_open(void)
{
	if (__builtin_expect(!__atomic_load_n(&pdn_top_decided, __ATOMIC_ACQUIRE), 0))
		pdn_top_decide();
}
PDN_EVENT(page_made, (void));

/* Does the page, if there is one, count the hits of all threads that ever had a record? */
bool pdn_top_counts_all(void);

/*
 * Lock held, when what is pinned has changed: between begin and end the statistics and the devices'
 * figures are stored into the page, with release, except those that the slots count. NULL: there is
 * no page; skip the end.
 */
struct pdn_top_page;
struct pdn_top_page *pdn_top_begin(void);
void pdn_top_end(struct pdn_top_page *live);

/*
 * Lock not held, and taken. The page goes, with its file, and its memory is the process's own from
 * then on: threads may continue to count. The next use makes another one. The tool gets the answer
 * in the page. false: there is no memory for that; the page stays, and says so.
 */
struct pdn_top_quiesce;
bool pdn_top_withdraw(struct pdn_top_quiesce *answer);
PDN_EVENT(quiesce_wanted, (struct pdn_top_quiesce * answer));

/* At exit: removes the file. Threads may continue to count. */
void pdn_top_close(void);

/* In a forked child, after all counters have left the page. */
void pdn_top_fork_child(void);

#endif
