/* SPDX-License-Identifier: MIT */
/*
 * Retired addresses (PINDOWN_HELD=retire). A program frees memory while it holds a registration of
 * it. A cache by address in its middleware would find that registration again when the driver hands
 * the address out for other memory. So the free ends the registration, and the address is reserved
 * right behind the driver's free: nobody gets it until the program has dropped the registration.
 *
 * The driver reserves whole blocks of 2 MiB. Where memory has its blocks to itself, only another
 * thread's allocation can take the address: its registrations end before the driver's free. A
 * smaller allocation shares a block. Its registrations are kept over the free, and end only if the
 * block can be reserved then, as nothing else is left in it; if not, that is tried again when other
 * memory there is freed under a registration.
 *
 *	PENDING -> RESERVED or WATCHED -> GOING -> given back to the driver
 *
 * PENDING: from the beginning of the free, by the thread that frees. RESERVED: up to the last drop
 * of a registration, or until there are too many: then the oldest goes. WATCHED: the same, but the
 * driver did not reserve it. It is asked again behind the next such frees, and what it hands out
 * there is not let through (handed_out.h). GOING: ibv_dereg_mr makes no driver call, as its caller
 * may hold any lock, have no context, or be in a signal handler; the next allocation or free that
 * the program makes gives the range back.
 */
#ifndef PDN_RETIRED_H
#define PDN_RETIRED_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/driver/cuda_abi.h"
#include "cache/driver/driver.h"
#include "cache/base/notify.h"
#include "cache/base/visible.h"
#include "cache/hit/region.h"
#include "cache/trace/writer/events.h"

/* The bounds of what is reserved at a time; tests set lower ones. */
extern PDN_HIDDEN uint32_t pdn_retired_most;
extern PDN_HIDDEN uint64_t pdn_retired_most_bytes;

enum pdn_retired_state {
	PDN_RETIRED_UNUSED,
	PDN_RETIRED_PENDING,
	PDN_RETIRED_RESERVED,
	PDN_RETIRED_WATCHED,
	PDN_RETIRED_GOING,
	PDN_RETIRED_STATES
};

/* Ranges by state; bytes of those that are kept from reuse. Changed under the lock. */
extern PDN_HIDDEN uint32_t pdn_retired_count[PDN_RETIRED_STATES];
extern PDN_HIDDEN uint64_t pdn_retired_bytes;

/* Relaxed: what this thread has changed it sees, and the rest is asked again under the lock. */
static inline uint32_t pdn_retired_in(enum pdn_retired_state state)
{
	return __atomic_load_n(&pdn_retired_count[state], __ATOMIC_RELAXED);
}

/* Kept from reuse. */
static inline uint32_t pdn_retired_ranges(void)
{
	return pdn_retired_in(PDN_RETIRED_RESERVED) + pdn_retired_in(PDN_RETIRED_WATCHED);
}

/*
 * Lock not held. The program is about to free this address with cuMemFree: may held registrations
 * end with it? Asks the driver whether it reserves addresses at all (once), and whether this free
 * can fail.
 */
bool pdn_retire_possible(uint64_t addr);

/*
 * Lock held. Is this memory, which is freed at its begin, what can be retired: all of an allocation
 * by cuMemAlloc? Mapped memory may be mapped elsewhere, too; pools keep their addresses.
 */
bool pdn_region_may_retire(uint32_t region, uint64_t begin);

enum pdn_retires {
	PDN_RETIRES_NOT,    /* no record is free */
	PDN_RETIRES_BEFORE, /* held registrations end before the driver's free */
	PDN_RETIRES_AFTER,  /* if at all, they end behind it */
};

/* Lock held. The region's memory ends in such a free, and has objects. */
enum pdn_retires pdn_retire_begin(uint32_t region);

/* Lock not held. Has this thread begun to retire the region's memory? */
bool pdn_retire_is_pending(const struct pindown_region *region);

/* Lock held. Nothing of the region's memory is held after all. */
void pdn_retire_cancel(uint32_t region);

/*
 * Lock held. A held registration of the region has ended: the number of its range, for
 * pdn_retired_let_go(); 0: its address is not retired.
 */
uint32_t pdn_retired_hold(uint32_t region);
bool pdn_retired_let_go(uint32_t number, struct pdn_trace_note *released);

/*
 * Lock not held. pdn_retired_let_go() has returned true: it was the last one, which the trace is to
 * say. at: when it was, in ticks; 0: now.
 */
void pdn_retired_trace(const struct pdn_trace_note *released, uint64_t at);

/*
 * Behind the driver's free. The address of a kept region is retired, and objects on it that may end
 * do (lock held, and dropped); or it is not, and they stay (lock not held).
 */
PDN_EVENT(address_retired, (uint32_t region));
PDN_EVENT(address_not_retired, (uint32_t region));

/*
 * Lock not held, in a call of the program's that the driver would refuse where it refuses to give
 * an address back. One load if there is none; which call gives it back does not matter (relaxed).
 */
void pdn_retired_give_back_some(void);
static inline void pdn_retired_give_back(void)
{
	if (__builtin_expect(pdn_retired_in(PDN_RETIRED_GOING), 0))
		pdn_retired_give_back_some();
}

/*
 * Lock not held; its guard is up. This thread is about to make the driver's free of this address:
 * is that PENDING? Then its turn has come (turns.h), and its guard gets PDN_GUARD_RETIRES.
 */
bool pdn_retired_begins_window(uint64_t addr);

/* Lock not held. The program asks for these addresses: they are given back before their turn. */
void pdn_retired_yield(uint64_t addr, uint64_t length);

void pdn_retired_drop_own(void); /* lock held: see thread_quits (base/thread/thread.h) */

#endif
