/* SPDX-License-Identifier: MIT */
/*
 * Ranges in which calls that end memory can't all be seen: graphs own their memory and free it as
 * they run. A region there is checked by buffer id on each hit (§3.5).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#include "cache.h"
#include "config.h"
#include "events.h"

struct range {
	uint64_t begin, end;
};

#define MOST 4096u

/* Under the lock. Unsorted: there are few, and only pins and allocations look. */
static struct range *ranges;
static uint32_t count;
static bool everywhere; /* more ranges than there is room for: all memory is volatile */

bool pd_intercepting;

enum pd_state pd_state_for(bool is_volatile)
{
	switch (pd_config()->verify) {
	case PD_VERIFY_ALWAYS:
		return PD_CHECKED;
	case PD_VERIFY_NEVER:
		return PD_LIVE;
	case PD_VERIFY_AUTO:
		break;
	}
	return is_volatile || !pd_intercepting ? PD_CHECKED : PD_LIVE;
}

void pd_set_intercepting(bool yes)
{
	pd_intercepting = yes;
}

static bool is_in(const struct range *range, uint64_t begin, uint64_t end)
{
	return range->begin < end && begin < range->end;
}

bool pd_is_volatile(uint64_t begin, uint64_t end)
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

/* Occupied, so that allocations come and look: pairs with the load in pd_allocated(). */
static void add_one(void)
{
	__atomic_store_n(&count, count + 1, __ATOMIC_RELAXED);
	pd_occupied_add(1);
}

/* Lock held. Regions that are there already are checked from now on. */
static void check_from_now_on(uint64_t begin, uint64_t end)
{
	for (uint32_t n = pd_queues_first(); n; n = pd_queues_next(n)) {
		struct pindown_region *region = &pd_regions[n];

		if (!pd_region_overlaps(region, begin, end))
			continue;
		/*
		 * Relaxed: pairs with pd_region_is_volatile(); for hits it is the state that says
		 * so.
		 */
		__atomic_fetch_or(&pd_details_of(region)->flags, PD_REGION_VOLATILE,
				  __ATOMIC_RELAXED);
		/*
		 * Pairs with hold_if(). A hit under way may have read the other one: it began
		 * before we were called.
		 */
		__atomic_store_n(&pd_brief_of(region)->state, pd_state_for(true), __ATOMIC_SEQ_CST);
	}
}

void pd_volatile(uint64_t addr, uint64_t length)
{
	uint64_t end = addr + (length ? length : 1);
	struct range *range;

	pd_lock();
	if (end > addr && !lies_in_one(addr, end)) {
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
	pd_unlock();
}

/* As in add_one(). */
static void drop(struct range *range)
{
	*range = ranges[count - 1];
	__atomic_store_n(&count, count - 1, __ATOMIC_RELAXED);
	pd_occupied_add(-1u);
}

/*
 * Take [begin, end) out of a range that overlaps it; what lies before and behind stays volatile.
 * Without room for a second piece all of it does: that costs checks, and trust could cost data.
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

void pd_volatile_forget(uint64_t begin, uint64_t end)
{
	/* Downwards: what drop() and cut() move to another place has been looked at, or needn't be.
	 */
	for (uint32_t i = count; i-- > 0;)
		if (is_in(&ranges[i], begin, end))
			cut(&ranges[i], begin, end);
}

/* Lock held. Regions that lie in no volatile range any more need no check. */
static void trust_from_now_on(uint64_t begin, uint64_t end)
{
	for (uint32_t n = pd_queues_first(); n; n = pd_queues_next(n)) {
		struct pindown_region *region = &pd_regions[n];

		if (!(pd_details_of(region)->flags & PD_REGION_VOLATILE) ||
		    !pd_region_overlaps(region, begin, end) ||
		    pd_is_volatile(region->base, region->end))
			continue;
		/* As in check_from_now_on(). */
		__atomic_fetch_and(&pd_details_of(region)->flags, (uint16_t)~PD_REGION_VOLATILE,
				   __ATOMIC_RELAXED);
		__atomic_store_n(&pd_brief_of(region)->state, pd_state_for(false),
				 __ATOMIC_SEQ_CST);
	}
}

/* Up to now frees may have gone unseen: what is not true any more must not be trusted. */
void pd_trusted(uint64_t addr, uint64_t length)
{
	uint64_t end = addr + (length ? length : 1);
	int saved = errno;

	pd_drop_changed(addr, end);
	errno = saved;
	pd_lock();
	pd_volatile_forget(addr, end);
	trust_from_now_on(addr, end);
	pd_unlock();
}

void pd_volatile_fork_child(void)
{
	count = 0;
	everywhere = false;
}
