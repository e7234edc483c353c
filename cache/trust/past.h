/* SPDX-License-Identifier: MIT */
/*
 * Memory of the past: a checkpoint that another process makes of this one (cuda-checkpoint, CRIU)
 * replaces all device memory. Addresses and buffer ids stay, what was pinned before is of the old
 * memory, and no question to the driver tells. hook/ notices it in the thread of libcuda that does
 * the work (hook/cuda/checkpoint.c), and calls pdn_past_begins() there.
 *
 * That thread may be the only one that runs: CRIU stops all others, which may hold any lock. So it
 * takes none, calls nobody, and frees nothing. It raises a count, and then turns each live region
 * into a PAST one, which no lookup returns. The regions end when a thread of the program next needs
 * one, or makes a watched call: pdn_past_look().
 *
 * Who makes a region live under the lock (pdn_region_goes_live()) stores its state first and then
 * looks at the count: one of the two sees the other's store. What is pinned or exported meanwhile
 * is given up (commit.c, foreign_dmabufs.c).
 */
#ifndef PDN_PAST_H
#define PDN_PAST_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/notify.h"
#include "cache/base/visible.h"

/* How often memory became the past, and up to where it has ended. */
extern PDN_HIDDEN uint32_t pdn_past_count, pdn_past_ended;

/* Is there any that has not ended? Sequentially consistent: see above. */
static inline bool pdn_past_any(void)
{
	return __atomic_load_n(&pdn_past_count, __ATOMIC_SEQ_CST) !=
	       __atomic_load_n(&pdn_past_ended, __ATOMIC_SEQ_CST);
}

/* All that is pinned or exported now is of the past. Takes no lock, and makes no system call. */
void pdn_past_begins(void);

/* Lock not held. Ends all that is pinned or was exported: what is needed is pinned again. */
void pdn_past_end(void);

/* Would that wait for other threads, which are pinning or unpinning? */
bool pdn_past_would_wait(void);

static inline void pdn_past_look(void)
{
	if (__builtin_expect(pdn_past_any(), 0))
		pdn_past_end();
}

/*
 * Before a pin or an export: from here on a checkpoint has to be noticed. The event comes until
 * hook/ has answered that it is, or that it can't be; in several threads, if they pin at once.
 */
void pdn_past_is_possible(void);
void pdn_past_is_noticed(void);
PDN_EVENT(past_is_possible, (void));
PDN_EVENT(past_ends, (void)); /* pdn_past_end() */

#endif
