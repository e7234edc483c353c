/* SPDX-License-Identifier: MIT */
/* Retired addresses go back to the driver, in a call of the program's. */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/base/thread/cancel.h"
#include "cache/base/thread/lock.h"
#include "cache/retire/records.h"

#define AT_ONCE 4 /* ranges that one call of the program gives back */

/* Lock not held. The oldest that is going, as a copy. */
static bool take_going(struct pdn_range *range)
{
	uint32_t n;

	pdn_lock();
	n = pdn_range_oldest(PDN_RETIRED_GOING);
	if (n) {
		*range = pdn_ranges[n];
		pdn_range_move(n, PDN_RETIRED_UNUSED);
	}
	pdn_unlock();
	return n;
}

void pdn_retired_give_back_some(void)
{
	PDN_UNCANCELLED;
	int saved = errno;
	struct pdn_range range;

	for (int i = 0; i < AT_ONCE && take_going(&range); i++) {
		if (range.is_reserved)
			pdn_driver_unreserve(range.begin, pdn_range_size(&range));
		pdn_range_trace(&range,
				range.was_dropped ? PDN_RETIRE_DROPPED : PDN_RETIRE_GIVEN_BACK, 0);
	}
	errno = saved;
}

/* Lock held. The next one of this state in [begin, end); 0: there is none. */
static uint32_t find_in(enum pdn_retired_state state, uint64_t begin, uint64_t end)
{
	uint32_t n = pdn_range_oldest(state);

	while (n && !pdn_range_meets(&pdn_ranges[n], begin, end))
		n = pdn_ranges[n].newer;
	return n;
}

/* Cold: a program that asks for an address asks seldom, and no such range is there as a rule. */
void pdn_retired_yield(uint64_t addr, uint64_t length)
{
	PDN_UNCANCELLED;
	uint32_t n;

	if (!pdn_retired_ranges() && !pdn_retired_in(PDN_RETIRED_GOING))
		return;
	pdn_lock();
	while ((n = find_in(PDN_RETIRED_RESERVED, addr, addr + length)) != 0 ||
	       (n = find_in(PDN_RETIRED_WATCHED, addr, addr + length)) != 0)
		pdn_range_drop(n);
	pdn_unlock();
	while (pdn_retired_in(PDN_RETIRED_GOING))
		pdn_retired_give_back_some();
}
