/* SPDX-License-Identifier: MIT */
/*
 * The driver hands out an address that is retired, as it was not possible to reserve it, or not
 * yet. Allocations by cuMemAlloc and reservations are put aside then, and the driver is asked
 * again. What comes by another road stays there: the address has escaped.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/show/account.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/thread/lock.h"
#include "cache/base/thread/thread.h"
#include "cache/retire/handed_out.h"
#include "cache/retire/records.h"
#include "cache/retire/turns.h"

/* Registrations of what is shared end only if it is reserved. Its own a thread has not freed. */
static bool has_ended(const struct pdn_range *range)
{
	return range->state == PDN_RETIRED_WATCHED ||
	       (!range->is_shared && range->tid != pdn_my_tid());
}

/* Lock held. */
static uint32_t find(enum pdn_retired_state state, uint64_t begin, uint64_t end)
{
	uint32_t n = pdn_range_oldest(state);

	while (n && !(pdn_range_meets(&pdn_ranges[n], begin, end) && has_ended(&pdn_ranges[n])))
		n = pdn_ranges[n].newer;
	return n;
}

static uint32_t find_retired(uint64_t begin, uint64_t end)
{
	uint32_t n = find(PDN_RETIRED_WATCHED, begin, end);

	return n ? n : find(PDN_RETIRED_PENDING, begin, end);
}

static bool any_is_not_reserved(void)
{
	return pdn_retired_in(PDN_RETIRED_WATCHED) || pdn_retired_in(PDN_RETIRED_PENDING);
}

/* Lock not held. Gets a copy. It is worth trying to reserve it again. */
static bool is_retired(uint64_t begin, uint64_t end, struct pdn_range *copy)
{
	uint32_t n;

	pdn_lock();
	n = find_retired(begin, end);
	if (n) {
		pdn_ranges[n].tries = 0;
		*copy = pdn_ranges[n];
	}
	pdn_unlock();
	return n;
}

/*
 * The driver has cut the range to pieces of this size, or smaller: small allocations would get
 * thousands of them. So what is left of it is put aside in pieces that are as large as they can be.
 */
static void put_rest_aside(struct pdn_aside *aside, const struct pdn_range *range, uint64_t least)
{
	uint64_t size = pdn_range_size(range), addr;

	while (size > least && aside->count < PDN_MOST_ASIDE) {
		size = size / 2 > least ? size / 2 : least;
		while (aside->count < PDN_MOST_ASIDE && (addr = pdn_driver_allocate(size)) != 0) {
			if (!pdn_range_meets(range, addr, addr + size)) {
				pdn_driver_free(addr);
				break;
			}
			aside->addrs[aside->count++] = addr;
		}
	}
}

static void give_back(struct pdn_aside *aside, uint64_t size)
{
	while (aside->count) {
		uint64_t addr = aside->addrs[--aside->count];

		if (aside->are_reservations)
			pdn_driver_unreserve(addr, size);
		else
			pdn_driver_free(addr);
	}
}

bool pdn_retired_again(struct pdn_aside *aside, uint64_t addr, uint64_t size)
{
	PDN_UNCANCELLED;
	int saved = errno;
	bool again = false;
	struct pdn_range range;

	if (addr && aside->count < PDN_MOST_ASIDE && !aside->is_last && any_is_not_reserved() &&
	    is_retired(addr, addr + size, &range)) {
		aside->addrs[aside->count++] = addr;
		if (!aside->are_reservations)
			put_rest_aside(aside, &range, size);
		again = true;
	} else if (aside->count) {
		give_back(aside, size);
		again = aside->is_last = !addr;
	}
	errno = saved;
	return again;
}

/* Lock not held. The next one that has escaped, as a copy. */
static bool take_escaped(uint64_t begin, uint64_t end, struct pdn_range *copy)
{
	uint32_t n;

	pdn_lock();
	n = find_retired(begin, end);
	if (n) {
		*copy = pdn_ranges[n];
		pdn_range_move(n, PDN_RETIRED_UNUSED);
		pdn_counts.escapes++;
		pdn_account_process();
	}
	pdn_unlock();
	return n;
}

void pdn_retired_handed_out(uint64_t begin, uint64_t end)
{
	struct pdn_range range;

	while (any_is_not_reserved() && take_escaped(begin, end, &range))
		pdn_range_trace(&range, PDN_RETIRE_ESCAPED, 0);
}
