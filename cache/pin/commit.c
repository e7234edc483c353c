/* SPDX-License-Identifier: MIT */
/* A pin becomes a region: in the index, the queues and the accounts; others that lie there end. */
#include "cache/show/account.h"
#include "cache/base/thread/lock.h"
#include "cache/base/test_point.h"
#include "cache/base/thread/thread.h"
#include "cache/pin/commit.h"
#include "cache/hit/index.h"
#include "cache/end/invalidate.h"
#include "cache/trust/past.h"
#include "cache/room/queues.h"
#include "cache/trust/recheck.h"
#include "cache/hit/region.h"
#include "cache/trust/trust.h"
#include "cache/trust/volatile.h"

/*
 * Lock held. Regions still indexed where this memory lies are stale, or are replaced: end them.
 * Returns how often the replaced ones were used, as in struct pdn_brief.
 */
static uint8_t end_overlapping(const struct pdn_allocation *what, struct pdn_ending *stale,
			       struct pdn_ending *replaced)
{
	uint64_t at = what->memory.base;
	uint8_t used = 0;
	uint32_t number;

	while ((number = pdn_index_next(&at, what->memory.end)) != 0) {
		uint8_t uses = __atomic_load_n(&pdn_briefs[number].used, __ATOMIC_RELAXED);

		if (pdn_growth_finds_stale(what, &pdn_regions[number])) {
			pdn_ending_add(stale, number, PINDOWN_REASON_STALE);
			continue;
		}
		/* A settled region may have used its uses up, and has been used all the same. */
		if (!uses && pdn_regions[number].queue & PDN_QUEUE_SETTLED)
			uses = 1;
		if (uses > used)
			used = uses;
		pdn_ending_add(replaced, number, PINDOWN_REASON_EVICTED);
	}
	return used;
}

/* Lock held, and the record is filled in. */
static void set_pages(struct pdn_brief *brief, const struct pindown_region *region)
{
	uint64_t first = pdn_page_ceil(region->base), end = pdn_page_floor(region->end);
	uint64_t pages = end > first && !region->word ? (end - first) / PINDOWN_PAGE_SIZE : 0;

	__atomic_store_n(&brief->first_page, (uint32_t)(first / PINDOWN_PAGE_SIZE),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&brief->pages, (uint16_t)(pages < UINT16_MAX ? pages : UINT16_MAX),
			 __ATOMIC_RELAXED);
}

/* Lock held. false: no room for a record. */
static bool insert(struct pdn_attempt *a)
{
	const struct pdn_memory *memory = &a->what.memory;
	uint32_t number = pdn_region_alloc();
	struct pindown_region *region = &pdn_regions[number];

	if (!number)
		return false;
	if (!pdn_index_insert(number, memory->base, memory->end)) {
		pdn_region_free(number);
		return false;
	}
	if (pdn_is_volatile(memory->base, memory->end))
		a->flags |= PDN_REGION_VOLATILE;
	if (pdn_is_leaving(memory->base, memory->end))
		a->flags |= PDN_REGION_LEAVING;
	pdn_region_fill(region, &a->what, &a->pin, a->flags);
	set_pages(&pdn_briefs[number], region);
	pdn_queues_add(number);
	/* Before the flight ends: nothing_at_all() sees this, or the flight. */
	pdn_occupied_add(1);
	pdn_account_pin(region);
	pdn_hold(pdn_self_or_anonymous(), number);
	/* Its release pairs with get.c's acquire: a hit that finds it live finds the above. */
	pdn_region_goes_live(number, a->flags & PDN_REGION_VOLATILE);
	a->region = region;
	return true;
}

/* For the eviction the region is no newcomer. Relaxed: as pdn_touch(). */
static void inherit_uses(struct pindown_region *region, uint8_t used)
{
	__atomic_store_n(&pdn_brief_of(region)->used, used, __ATOMIC_RELAXED);
}

#define FOUND_GONE "a pin found it gone"

/* Lock held, and let go: see pdn_pin_commit(). There are regions where the new one is to be. */
static int commit_over_others(struct pdn_attempt *a)
{
	struct pdn_ending dead = {.missed = FOUND_GONE};
	struct pdn_ending replaced = {.are_replaced = true};
	uint8_t used = end_overlapping(&a->what, &dead, &replaced);
	bool ok = insert(a);

	if (ok && used)
		inherit_uses(a->region, used);
	pdn_ending_split_idle_and_held(&dead);
	pdn_ending_split_idle_and_held(&replaced);
	if (ok)
		pdn_flight_end(&a->flight);
	pdn_unlock();
	pdn_ending_dispatch(&dead);
	pdn_ending_dispatch(&replaced);
	return ok ? PINDOWN_OK : PINDOWN_ERR_NO_MEMORY;
}

/* Lock held. Within a page, one look at the index tells, as a rule. */
static bool is_empty(const struct pdn_memory *memory)
{
	uint64_t at = memory->base;

	if ((at ^ (memory->end - 1)) < PINDOWN_PAGE_SIZE && !pdn_index_peek(at))
		return true;
	return !pdn_index_next(&at, memory->end);
}

int pdn_pin_commit(struct pdn_attempt *a)
{
	int result = PINDOWN_OK;

	PDN_POINT(PIN_SAME, a->addr);
	/*
	 * Of the mappings that a replaced region is over, one may have been replaced unseen: only a
	 * comparison of the region itself tells.
	 */
	if (a->what.mapped)
		pdn_drop_changed(a->what.memory.base, a->what.memory.end, FOUND_GONE);
	pdn_lock();
	/* Whether it was pinned before memory became the past is not known. */
	if (pdn_flight_lost(&a->flight) || pdn_past_any()) {
		result = PDN_AGAIN;
	} else if (!is_empty(&a->what.memory)) {
		return commit_over_others(a);
	} else if (insert(a)) {
		pdn_flight_end(&a->flight);
	} else {
		result = PINDOWN_ERR_NO_MEMORY;
	}
	pdn_unlock();
	return result;
}

/*
 * Hits have been able to find it up to here. They are compared with the driver, as it is volatile.
 */
void pdn_end_leaving(uint32_t number)
{
	struct pdn_ending ending = {.missed = NULL};

	pdn_lock();
	if (pdn_state_is_live(pdn_briefs[number].state))
		pdn_ending_add(&ending, number, PINDOWN_REASON_ORDERED);
	pdn_ending_split_idle_and_held(&ending);
	pdn_unlock();
	pdn_ending_dispatch(&ending);
}
