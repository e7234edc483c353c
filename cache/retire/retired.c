/* SPDX-License-Identifier: MIT */
/* Retired addresses from the beginning of a free to its end, and who holds them: see retired.h. */
#define _GNU_SOURCE
#include "cache/base/thread/lock.h"
#include "cache/base/thread/thread.h"
#include "cache/end/work.h"
#include "cache/hit/region.h"
#include "cache/retire/records.h"
#include "cache/retire/turns.h"

/* ---- pending -------------------------------------------------------------------------------- */

/* This thread's, of the region's memory; 0: there is none. Windows of one allocation share it. */
static uint32_t find_pending(uint32_t region)
{
	const uint64_t base = pdn_memory_of(&pdn_regions[region]).base;
	uint32_t me = pdn_my_tid(), n = pdn_range_oldest(PDN_RETIRED_PENDING);

	while (n && (pdn_ranges[n].tid != me ||
		     (pdn_ranges[n].region != region && pdn_ranges[n].addr != base)))
		n = pdn_ranges[n].newer;
	return n;
}

enum pdn_retires pdn_retire_begin(uint32_t region)
{
	const struct pdn_memory memory = pdn_memory_of(&pdn_regions[region]);
	uint32_t n = find_pending(region);

	if (!n) {
		n = pdn_range_new((struct pdn_range){
			.addr = memory.base,
			.begin = memory.base & -PDN_BLOCK,
			.end = (memory.end + PDN_BLOCK - 1) & -PDN_BLOCK,
			.buffer_id = pdn_regions[region].buffer_id,
			.tid = pdn_my_tid(),
			.region = region,
			.is_shared =
				memory.base % PDN_BLOCK || memory.end - memory.base < PDN_BLOCK,
		});
		__atomic_store_n(&pdn_turns_are_taken, true, __ATOMIC_RELAXED);
	}
	if (!n)
		return PDN_RETIRES_NOT;
	pdn_ranges[n].regions++;
	return pdn_ranges[n].is_shared ? PDN_RETIRES_AFTER : PDN_RETIRES_BEFORE;
}

bool pdn_retire_is_pending(const struct pindown_region *region)
{
	bool is;

	pdn_lock();
	is = find_pending(pdn_region_number(region)) != 0;
	pdn_unlock();
	return is;
}

/*
 * Not by a window in which nothing was held, beside one of the same allocation that has begun the
 * range. In a shared block only the first window is known to have begun it: a range that one more
 * had begun, too, is reserved for nobody, and goes back.
 */
static bool has_begun(uint32_t n, uint32_t region)
{
	return pdn_ranges[n].region == region || pdn_regions[region].flags & PDN_REGION_ENDS_HELD;
}

void pdn_retire_cancel(uint32_t region)
{
	uint32_t n = find_pending(region);

	if (n && has_begun(n, region) && --pdn_ranges[n].regions == 0 && !pdn_ranges[n].holders)
		pdn_range_move(n, PDN_RETIRED_UNUSED);
}

void pdn_retired_drop_own(void)
{
	uint32_t me = pdn_my_tid();

	for (uint32_t n = pdn_range_oldest(PDN_RETIRED_PENDING), newer; n; n = newer) {
		newer = pdn_ranges[n].newer;
		if (pdn_ranges[n].tid == me)
			pdn_range_move(n, PDN_RETIRED_UNUSED);
	}
}

/* ---- holders -------------------------------------------------------------------------------- */

uint32_t pdn_retired_hold(uint32_t region)
{
	uint32_t n = pdn_retired_in(PDN_RETIRED_PENDING) ? find_pending(region) : 0;

	if (!n)
		return 0;
	pdn_ranges[n].holders++;
	return pdn_ranges[n].turn * PDN_RANGES + n;
}

/* The number of a record that has been used again is no range's. PENDING: its thread looks. */
bool pdn_retired_let_go(uint32_t number, struct pdn_trace_note *released)
{
	uint32_t n = number % PDN_RANGES;

	if (!n || number / PDN_RANGES != pdn_ranges[n].turn % (UINT32_MAX / PDN_RANGES + 1) ||
	    --pdn_ranges[n].holders || pdn_ranges[n].state == PDN_RETIRED_PENDING)
		return false;
	*released = pdn_range_note(&pdn_ranges[n], PDN_RETIRE_RELEASED);
	pdn_range_leave(n);
	return true;
}
