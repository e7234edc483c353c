/* SPDX-License-Identifier: MIT */
/*
 * Which region makes room for another (§2.1 and §2.5 of the guide): S3-FIFO (Yang et al., "FIFO
 * queues are all you need for cache eviction", SOSP 2023), by bytes. docs/internals/measured.md
 * says how it was chosen.
 *
 * A hit must not touch a list that others share: it counts up to three in the region, and then not
 * even that. Newcomers go through a queue of their own, which has a tenth of the pinned bytes; a
 * newcomer that is not used there leaves soon, and is remembered for a while as a ghost. A region
 * that was used there, or comes back as a ghost, is settled: in the other queue it gets another
 * turn for each use.
 */
#include "cache/show/account.h"
#include "cache/backend/backend.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/thread/lock.h"
#include "cache/base/notify.h"
#include "cache/base/test_point.h"
#include "cache/base/visible.h"
#include "cache/room/evict.h"
#include "cache/room/ghosts.h"
#include "cache/pin/growth.h"
#include "cache/dmabuf/region_dmabuf.h"
#include "cache/hit/index.h"
#include "cache/end/invalidate.h"
#include "cache/objects/end.h"
#include "cache/pindown.h"
#include "cache/room/queues.h"
#include "cache/end/work.h"
#include "cache/hit/region.h"

static bool is_there(uint32_t number, int place)
{
	const struct pindown_region *region = &pdn_regions[number];

	switch (place) {
	case -1:
		return true;
	case PDN_WITH_DMABUF:
		return pdn_region_fd(region) >= 0;
	case PDN_WITH_OBJECTS:
		return pdn_first_object(number);
	default:
		return region->device == place;
	}
}

/* As far as can be told without a barrier; pdn_ending_add_idle() makes sure. */
static bool is_held(uint32_t number)
{
	return pdn_region_in_use(number) || pdn_objects_hold(number);
}

static bool can_go(uint32_t number, int place)
{
	return is_there(number, place) && !is_held(number);
}

/* Out of the way of evictions, if it is held. */
static bool set_aside(uint32_t number)
{
	unsigned queue = pdn_regions[number].queue;

	if (!is_held(number))
		return false;
	if (!(queue & PDN_HELD))
		pdn_queues_move(number, queue | PDN_HELD);
	return true;
}

/* Look at a held region: an idle one comes back, behind the last one that did. */
static bool comes_back(uint32_t number, uint32_t last[PDN_HELD])
{
	unsigned queue = pdn_regions[number].queue & ~PDN_HELD;

	if (is_held(number))
		return false;
	pdn_queues_come_back(number, queue, last[queue]);
	last[queue] = number;
	return true;
}

/*
 * A put does not tell when a region becomes idle, so each eviction looks at a few of the held ones,
 * and at all of them only where nothing else can go: first at those that were not looked at for
 * longest, then at the newest one, as one that was just met in use is often idle by the next
 * eviction, while others are held for good. true: one of these may go.
 */
#define HELD_LOOKS 2u
bool pdn_evict_look(int place)
{
	const struct pdn_queue *held = &pdn_live[PDN_HELD].queue;
	uint32_t left = held->count < HELD_LOOKS ? held->count : HELD_LOOKS;
	uint32_t last[PDN_HELD] = {0}, number;
	bool more = held->count > left, any = false;

	for (; left; left--) {
		number = pdn_queues_next_held();
		any |= comes_back(number, last) && is_there(number, place);
	}
	number = held->newest;
	if (more)
		any |= comes_back(number, last) && is_there(number, place);
	return any;
}

/* It is live, as all regions in the queues. false: somebody holds it. */
static bool evict(struct pdn_ending *ending, uint32_t number)
{
	PDN_POINT(EVICT_CHOSEN, pdn_region_base_now(number));
	pdn_regions[number].next = 0;
	pdn_ending_add_idle(ending, number, PINDOWN_REASON_EVICTED);
	return ending->first != 0;
}

/* Hits may be counting meanwhile: one use more or less makes no difference. */
static uint32_t uses_of(uint32_t number)
{
	return __atomic_load_n(&pdn_briefs[number].used, __ATOMIC_RELAXED);
}

static void set_uses(uint32_t number, uint32_t used)
{
	__atomic_store_n(&pdn_briefs[number].used, used, __ATOMIC_RELAXED);
}

/*
 * The oldest of all but the `keep` newest that was not used; those that were used are settled on
 * the way.
 */
static bool evict_newcomer(struct pdn_ending *ending, int device, uint32_t keep)
{
	const struct pdn_queue *newcomers = &pdn_live[PDN_NEWCOMERS].queue;

	for (uint32_t number = newcomers->oldest, next; newcomers->count > keep && number;
	     number = next) {
		next = pdn_regions[number].newer;
		if (set_aside(number))
			continue;
		if (uses_of(number)) {
			set_uses(number, 0);
			pdn_queues_move(number, PDN_SETTLED);
		} else if (is_there(number, device) && evict(ending, number)) {
			pdn_ghost_remember(&pdn_regions[number]);
			return true;
		}
	}
	return false;
}

/* This many get another turn in one eviction, which holds the lock all the while. */
#define MAX_TURNS 256u

static bool evict_settled(struct pdn_ending *ending, int device)
{
	unsigned turns = MAX_TURNS;

	for (uint32_t number = pdn_live[PDN_SETTLED].queue.oldest, next; number; number = next) {
		uint32_t used = uses_of(number);

		next = pdn_regions[number].newer;
		if (set_aside(number))
			continue;
		if (used && turns) {
			turns--;
			set_uses(number, used - 1);
			pdn_queues_move(number, PDN_SETTLED);
			if (!next) /* it was the last one, and is again */
				next = number;
		} else if (is_there(number, device) && evict(ending, number)) {
			return true;
		}
	}
	return false;
}

/*
 * A few newcomers stay in any case: often there is room for a few regions only, and received data
 * is soon sent on.
 */
static uint32_t newcomers_to_keep(void)
{
	const uint32_t few = 4;
	uint32_t half =
		(pdn_live[PDN_NEWCOMERS].queue.count + pdn_live[PDN_SETTLED].queue.count) / 2;

	return half < few ? half : few;
}

static bool evict_idle(struct pdn_ending *ending, int device)
{
	bool too_many = pdn_live[PDN_NEWCOMERS].bytes >=
			(pdn_live[PDN_NEWCOMERS].bytes + pdn_live[PDN_SETTLED].bytes) / 10;

	return (too_many && evict_newcomer(ending, device, newcomers_to_keep())) ||
	       evict_settled(ending, device) || evict_newcomer(ending, device, 0) ||
	       evict_settled(ending, device);
}

bool pdn_evict_looked(struct pdn_ending *ending, int device)
{
	uint32_t all;

	if (evict_idle(ending, device))
		return true;
	/* Not earlier: evict_idle() adds regions to the queue. The loop takes some off. */
	all = pdn_live[PDN_HELD].queue.count;
	for (uint32_t looked = 0; looked < all; looked += HELD_LOOKS)
		if (pdn_evict_look(device) && evict_idle(ending, device))
			return true;
	return false;
}

bool pdn_evict_one(struct pdn_ending *ending, int device)
{
	pdn_evict_look(device);
	return pdn_evict_looked(ending, device);
}

bool pdn_idle_is_enough(uint64_t bytes, uint64_t regions)
{
	for (uint32_t n = pdn_queues_first(), next; n && (bytes || regions); n = next) {
		uint64_t more = pdn_region_pin_length(&pdn_regions[n]);

		next = pdn_queues_next(n);
		if (set_aside(n))
			continue;
		bytes -= more < bytes ? more : bytes;
		regions -= regions != 0;
	}
	return !bytes && !regions;
}

/* ---- pin space ---------------------------------------------------------------------------- */

/*
 * For a pin that the driver refuses, regions of twice its bytes are evicted at most, or this many
 * regions if that is more. Its own bytes are not always enough, as pin space may be in pieces, and
 * another thread may take what becomes free. If twice as much does not help, the refusal has
 * another reason.
 */
#define REGIONS_TO_EVICT 16u

static bool may_evict(const struct pdn_pressure *pressure)
{
	return !pressure->is_hopeless &&
	       (pressure->regions < REGIONS_TO_EVICT || pressure->bytes / 2 < pressure->wanted);
}

bool pdn_evict_for(struct pdn_pressure *pressure)
{
	struct pdn_ending ending = {0};
	bool again;

	if (pressure->place == PDN_WITH_DMABUF && pdn_dmabuf_close_kept())
		return true;
	pdn_lock();
	again = may_evict(pressure) && pdn_evict_one(&ending, pressure->place);
	if (again) {
		pressure->regions++;
		pressure->bytes += pdn_region_pin_length(&pdn_regions[ending.first]);
	} else {
		again = pdn_endings_of_others();
		pressure->would_wait = again && pressure->nowait;
		again = again && !pressure->nowait && pdn_wait_for_work(pdn_race_deadline());
	}
	pdn_unlock();
	pdn_ending_dispatch(&ending);
	if (!again && pressure->place == PDN_WITH_DMABUF)
		pdn_dmabuf_tell_none_left();
	return again;
}

uint64_t pdn_idle_bytes(int device, uint64_t enough)
{
	uint64_t bytes = 0;

	pdn_lock();
	for (uint32_t n = pdn_queues_first(), next; n && bytes < enough; n = next) {
		next = pdn_queues_next(n);
		if (is_there(n, device) && !set_aside(n))
			bytes += pdn_region_pin_length(&pdn_regions[n]);
	}
	pdn_unlock();
	return bytes;
}

/*
 * Lock held. Are there no regions, after there were many? Giving back the memory of a few would
 * cost the next pin its page faults again.
 */
static bool is_worth_trimming(void)
{
	return pdn_region_high_water() >= 1024 && pdn_pinned_regions() == 0 && !pdn_works_any();
}

bool pdn_evict_replaced(const struct pdn_allocation *what)
{
	struct pdn_ending ending = {0};
	uint64_t at = what->memory.base;
	uint32_t number, candidates = 0;

	pdn_lock();
	while ((number = pdn_index_next(&at, what->memory.end)) != 0) {
		at = pdn_regions[number].end;
		if (pdn_region_in_use(number) || pdn_growth_finds_stale(what, &pdn_regions[number]))
			continue;
		pdn_regions[number].next = candidates;
		candidates = number;
	}
	if (candidates)
		pdn_ending_add_idle(&ending, candidates, PINDOWN_REASON_EVICTED);
	pdn_unlock();
	return pdn_ending_dispatch(&ending) != 0;
}

void pdn_give_back(uint64_t bytes, int device)
{
	for (uint64_t given = 0; given < bytes;) {
		struct pdn_ending ending = {0};

		pdn_lock();
		if (pdn_evict_one(&ending, device))
			given += pdn_region_pin_length(&pdn_regions[ending.first]);
		else
			given = bytes;
		pdn_unlock();
		pdn_ending_dispatch(&ending);
	}
}

PDN_NOTIFIED(space_wanted, pdn_give_back);

PDN_EXPORT int pindown_flush(void)
{
	PDN_UNCANCELLED;
	struct pdn_ending ending = {0};
	uint32_t candidates = 0, *last = &candidates;
	int count;

	pdn_lock();
	for (uint32_t n = pdn_queues_first(); n; n = pdn_queues_next(n))
		if (can_go(n, -1)) {
			*last = n;
			last = &pdn_regions[n].next;
		}
	*last = 0;
	if (candidates)
		pdn_ending_add_idle(&ending, candidates, PINDOWN_REASON_FLUSHED);
	pdn_unlock();
	count = pdn_ending_dispatch(&ending);
	pdn_lock();
	if (is_worth_trimming()) {
		pdn_index_trim();
		pdn_region_trim();
	}
	pdn_unlock();
	return count;
}
