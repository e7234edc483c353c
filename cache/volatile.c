/* SPDX-License-Identifier: MIT */
/*
 * Ranges in which calls that end memory can't all be seen: graphs own their memory and free it as
 * they run. A region there is checked by buffer id on each hit (§3.5).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#include "cache/base/cancel.h"
#include "cache/base/lock.h"
#include "cache/hook_events.h"
#include "cache/index.h"
#include "cache/region.h"
#include "cache/trust.h"
#include "cache/volatile.h"

struct range {
	uint64_t begin, end;
};

#define MOST 4096u

/* Under the lock. Unsorted: there are few, and only pins and allocations look. */
static struct range *ranges;
static uint32_t count;
static bool everywhere; /* more ranges than there is room for: all memory is volatile */

static bool is_in(const struct range *range, uint64_t begin, uint64_t end)
{
	return range->begin < end && begin < range->end;
}

bool pdn_is_volatile(uint64_t begin, uint64_t end)
{
	if (everywhere)
		return true;
	for (uint32_t i = 0; i < count; i++)
		if (is_in(&ranges[i], begin, end))
			return true;
	return false;
}

/* Then there is nothing to remember. Overlap is not enough: the rest would be trusted. */
static bool lies_in_one(uint64_t begin, uint64_t end)
{
	if (everywhere)
		return true;
	for (uint32_t i = 0; i < count; i++)
		if (ranges[i].begin <= begin && end <= ranges[i].end)
			return true;
	return false;
}

static struct range *room_for_one(void)
{
	int saved = errno;

	if (!ranges) {
		void *p = mmap(NULL, MOST * sizeof(*ranges), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		ranges = p == MAP_FAILED ? NULL : p;
	}
	errno = saved;
	return ranges && count < MOST ? &ranges[count] : NULL;
}

/* It counts as occupied, so that allocations look here: pairs with the load in pdn_allocated(). */
static void add_one(void)
{
	__atomic_store_n(&count, count + 1, __ATOMIC_RELAXED);
	pdn_occupied_add(1);
}

/*
 * Lock held. Is this region volatile from now on? Relaxed: pairs with pdn_region_is_volatile().
 * Hits go by the state, which pairs with hold_if(); a hit under way may have read the old one: it
 * began before this call.
 */
static void set_volatile(uint32_t number, bool is_volatile)
{
	unsigned flags = pdn_details[number].flags & ~PDN_REGION_VOLATILE;

	pdn_region_set_flags(&pdn_regions[number], flags | (is_volatile ? PDN_REGION_VOLATILE : 0));
	__atomic_store_n(&pdn_briefs[number].state, pdn_state_for(is_volatile), __ATOMIC_SEQ_CST);
}

/* Lock held. Regions that are there already are checked from now on. */
static void check_from_now_on(uint64_t begin, uint64_t end)
{
	uint32_t number;

	for (uint64_t at = begin; (number = pdn_index_next(&at, end)) != 0;
	     at = pdn_regions[number].end)
		set_volatile(number, true);
}

void pdn_volatile(uint64_t addr, uint64_t length)
{
	PDN_UNCANCELLED;
	uint64_t end = addr + (length ? length : 1);
	struct range *range;

	pdn_lock();
	if (end > addr && !lies_in_one(addr, end)) {
		pdn_volatile_forget(addr, end); /* or it would be there twice */
		range = room_for_one();
		if (range) {
			*range = (struct range){addr, end};
			add_one();
		} else {
			everywhere = true;
			addr = 0;
			end = ~0ull;
		}
	}
	check_from_now_on(addr, end);
	pdn_unlock();
}

/* As in add_one(). */
static void drop(struct range *range)
{
	*range = ranges[count - 1];
	__atomic_store_n(&count, count - 1, __ATOMIC_RELAXED);
	pdn_occupied_add(-1u);
}

/*
 * Take [begin, end) out of a range that overlaps it; the parts before and behind stay volatile.
 * Without room for a second part all of it stays so: that costs checks, and trust could cost data.
 */
static void cut(struct range *range, uint64_t begin, uint64_t end)
{
	struct range before = {range->begin, begin}, behind = {end, range->end};
	bool keeps_before = before.begin < before.end, keeps_behind = behind.begin < behind.end;

	if (keeps_before && keeps_behind) {
		struct range *second = room_for_one();

		if (!second)
			return;
		*second = behind;
		*range = before;
		add_one();
	} else if (keeps_before) {
		*range = before;
	} else if (keeps_behind) {
		*range = behind;
	} else {
		drop(range);
	}
}

bool pdn_volatile_forget(uint64_t begin, uint64_t end)
{
	bool any = false;

	/*
	 * Downwards: a range that drop() or cut() moves to another place was looked at, or need not
	 * be.
	 */
	for (uint32_t i = count; i-- > 0;)
		if (is_in(&ranges[i], begin, end)) {
			cut(&ranges[i], begin, end);
			any = true;
		}
	return any;
}

void pdn_volatile_trust(uint64_t begin, uint64_t end)
{
	uint32_t number;

	for (uint64_t at = begin; (number = pdn_index_next(&at, end)) != 0;
	     at = pdn_regions[number].end)
		if (pdn_region_is_volatile(&pdn_regions[number]) &&
		    !pdn_is_volatile(pdn_regions[number].base, pdn_regions[number].end))
			set_volatile(number, false);
}

void pdn_volatile_fork_child(void)
{
	count = 0;
	everywhere = false;
}
