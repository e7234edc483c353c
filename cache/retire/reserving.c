/* SPDX-License-Identifier: MIT */
/* Behind the driver's free: the address is reserved, or what becomes of it if it can't be. */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/show/account.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/base/test_point.h"
#include "cache/base/thread/thread.h"
#include "cache/end/work.h"
#include "cache/hit/region.h"
#include "cache/retire/records.h"
#include "cache/retire/turns.h"

PDN_WEAK_EVENT(address_retired, (uint32_t region));
PDN_WEAK_EVENT(address_not_retired, (uint32_t region));

uint32_t pdn_retired_most = 4096;
uint64_t pdn_retired_most_bytes = (uint64_t)4 << 40;

/* ---- blocks with other memory --------------------------------------------------------------- */

/* Regions of which the program holds registrations there. Under the lock. */
#define WAITING 64u
static struct {
	uint32_t region;
	uint64_t begin, end, buffer_id; /* of whole blocks */
} waiting[WAITING];
static unsigned next_waiting;

/* Lock held. Is it still the region that has waited? Buffer ids are used once. */
static bool is_kept_with(uint32_t region, uint64_t buffer_id)
{
	return region && pdn_state_of(region) == PDN_KEPT &&
	       pdn_regions[region].buffer_id == buffer_id;
}

static void wait_for_block(const struct pdn_range *range)
{
	waiting[next_waiting].region = range->region;
	waiting[next_waiting].begin = range->begin;
	waiting[next_waiting].end = range->end;
	waiting[next_waiting].buffer_id = range->buffer_id;
	next_waiting = (next_waiting + 1) % WAITING;
}

/* Lock held. The next region that has waited for only these blocks; 0: there is none. */
static uint32_t take_waiting(uint64_t begin, uint64_t end)
{
	for (unsigned i = 0; i < WAITING; i++) {
		uint32_t region = waiting[i].region;

		if (!region || waiting[i].begin < begin || waiting[i].end > end)
			continue;
		waiting[i].region = 0;
		if (is_kept_with(region, waiting[i].buffer_id))
			return region;
	}
	return 0;
}

/* Lock not held. The block is reserved: what was kept in it ends now. */
static void end_kept_in(uint32_t n, const struct pdn_range *range)
{
	uint32_t region;

	pdn_lock();
	region = is_kept_with(range->region, range->buffer_id) ? range->region : 0;
	while (region || (region = take_waiting(range->begin, range->end)) != 0) {
		pdn_ranges[n].region = region; /* for pdn_retired_hold() */
		PDN_NOTIFY(address_retired, region);
		region = 0;
	}
	pdn_unlock();
}

/* ---- what becomes of a range ---------------------------------------------------------------- */

static bool are_too_many(void)
{
	return pdn_retired_ranges() > pdn_retired_most ||
	       (pdn_retired_bytes > pdn_retired_most_bytes && pdn_retired_ranges() > 1);
}

static void say_too_many(void)
{
	static bool said;

	pdn_log_once(&said, PDN_LOG_WARN,
		     "the program holds registrations of more freed memory than pindown keeps the "
		     "addresses of (%u ranges, %llu GiB): the driver may use again those that it "
		     "freed first",
		     pdn_retired_most, (unsigned long long)(pdn_retired_most_bytes >> 30));
}

/* Lock held. RESERVED or WATCHED from now on. true: there were too many. */
static bool enter(uint32_t n)
{
	uint32_t oldest;
	bool too_many = false;

	pdn_counts.retired++;
	if (!pdn_ranges[n].holders)
		pdn_range_leave(n);
	while (are_too_many() && (oldest = pdn_range_oldest(PDN_RETIRED_RESERVED)) != 0) {
		pdn_range_drop(oldest);
		too_many = true;
	}
	pdn_account_process();
	return too_many;
}

/* Lock held. false: a signal handler has forked, and this is the child; or it has escaped. */
static bool is_unchanged(uint32_t n, const struct pdn_range *copy)
{
	return !pdn_process_is_off() && pdn_ranges[n].state == copy->state &&
	       pdn_ranges[n].turn == copy->turn;
}

/* Its registrations have ended. If the old memory is still there, the free has failed. */
static bool is_free(const struct pdn_range *range)
{
	return range->holders &&
	       pdn_compare_memory(range->addr, range->end, range->buffer_id, 0) != PDN_TRUE;
}

/* Lock not held. Nobody gets its address while it is held. */
static void settle_retired(uint32_t n, const struct pdn_range *range, bool is_reserved)
{
	/* Before another thread can drop the last registration. */
	uint64_t at = pdn_tracing(PDN_EV_RETIRE) ? pdn_ticks() : 0;
	bool held, too_many;

	pdn_lock();
	if (!is_unchanged(n, range)) {
		pdn_unlock();
		return;
	}
	held = pdn_ranges[n].holders;
	if (is_reserved)
		pdn_range_reserved(n, range->begin);
	else
		pdn_range_move(n, PDN_RETIRED_WATCHED);
	too_many = enter(n);
	pdn_unlock();
	pdn_range_trace(range, PDN_RETIRE_RESERVED, at);
	if (!held)
		pdn_range_trace(range, PDN_RETIRE_RELEASED, 0);
	if (too_many)
		say_too_many();
}

/* Lock not held. What was to end behind the free stays. */
static void settle_kept(uint32_t n, const struct pdn_range *range)
{
	bool stays;

	pdn_lock();
	if (!is_unchanged(n, range)) {
		pdn_unlock();
		return;
	}
	stays = range->is_shared && is_kept_with(range->region, range->buffer_id) &&
		pdn_regions[range->region].flags & PDN_REGION_OBJECTS;
	if (stays)
		wait_for_block(range);
	pdn_range_move(n, PDN_RETIRED_UNUSED);
	pdn_unlock();
	if (stays)
		PDN_NOTIFY(address_not_retired, range->region);
}

static void settle(uint32_t n, struct pdn_range *range)
{
	unsigned tries = range->is_shared ? 1 : PDN_MOST_TRIES;

	PDN_POINT(RETIRE_RESERVING, range->addr);
	if (pdn_driver_reserve(&range->begin, range->end, tries) == PDN_RESERVED) {
		if (range->is_shared)
			end_kept_in(n, range);
		settle_retired(n, range, true);
		pdn_retire_worked();
	} else if (!range->is_shared && is_free(range)) {
		settle_retired(n, range, false);
		pdn_retire_failed();
	} else {
		settle_kept(n, range);
	}
}

/* ---- after the free ------------------------------------------------------------------------- */

/* Lock not held. This thread's next one at the address, as a copy; 0: there is none. */
static uint32_t next_pending(uint64_t addr, struct pdn_range *copy)
{
	uint32_t me = pdn_my_tid(), n;

	pdn_lock();
	n = pdn_range_oldest(PDN_RETIRED_PENDING);
	while (n && (pdn_ranges[n].tid != me || pdn_ranges[n].addr != addr))
		n = pdn_ranges[n].newer;
	if (n)
		*copy = pdn_ranges[n];
	pdn_unlock();
	return n;
}

bool pdn_retired_begins_window(uint64_t addr)
{
	PDN_UNCANCELLED;
	struct pdn_range range;

	if (!next_pending(addr, &range))
		return false;
	pdn_retiring_begins();
	return true;
}

#define MOST_TRIES_LATER 4

/* Lock not held. The one that was tried the longest ago; 0: there is none. */
static uint32_t next_watched(struct pdn_range *copy)
{
	uint32_t n;

	pdn_lock();
	n = pdn_range_oldest(PDN_RETIRED_WATCHED);
	if (n) {
		pdn_range_move(n, PDN_RETIRED_WATCHED);
		*copy = pdn_ranges[n];
		pdn_ranges[n].tries++;
	}
	pdn_unlock();
	return n && copy->tries < MOST_TRIES_LATER ? n : 0;
}

/* The driver did not reserve this address behind its own free. It may now. */
static void reserve_watched(uint32_t n, struct pdn_range *range)
{
	bool is_wanted;

	if (pdn_driver_reserve(&range->begin, range->end, PDN_MOST_TRIES) != PDN_RESERVED)
		return;
	pdn_lock();
	is_wanted = is_unchanged(n, range);
	if (is_wanted)
		pdn_range_reserved(n, range->begin);
	pdn_unlock();
	if (!is_wanted)
		pdn_driver_unreserve(range->begin, pdn_range_size(range));
}

static void reserve_after_free(uint64_t addr)
{
	PDN_UNCANCELLED;
	int saved = errno;
	struct pdn_range range, earlier;
	uint32_t n, watched = pdn_retired_in(PDN_RETIRED_WATCHED) ? next_watched(&earlier) : 0;

	while ((n = next_pending(addr, &range)) != 0)
		settle(n, &range);
	if (watched)
		reserve_watched(watched, &earlier);
	pdn_retiring_ended();
	pdn_retired_give_back();
	errno = saved;
}

PDN_NOTIFIED(retiring_free_ended, reserve_after_free);
