/* SPDX-License-Identifier: MIT */
/* Unpinning regions that nobody uses, and giving back their records. */
#define _GNU_SOURCE
#include "cache/account.h"
#include "cache/backend/backend.h"
#include "cache/base/cancel.h"
#include "cache/base/lock.h"
#include "cache/base/test_point.h"
#include "cache/region.h"
#include "cache/region_trace.h"
#include "cache/trace/writer.h"
#include "cache/unpin.h"

/* In a child the handle may be that of another pin, of the child's own. */
static void __attribute__((noinline)) unpin_backed(struct pindown_region *region)
{
	PDN_UNCANCELLED;
	struct pdn_pin pin = pdn_region_pin(region);
	const struct pdn_backend *backend = pdn_backend_of(&pin);

	if (pdn_region_is_abandoned(pdn_region_number(region)))
		return;
	if (backend)
		backend->unpin(&pin);
	pdn_region_drop_dmabuf(region);
}

/*
 * The region is DYING and this thread's: unpin it, without the lock. To others it is dying until
 * its record is free. Most often its backend has something of it.
 */
static inline void unpin_untraced(uint32_t number)
{
	PDN_POINT(END_UNPINNING, pdn_region_base_now(number));
	if (pdn_region_flags(&pdn_regions[number]) & PDN_REGION_BACKED)
		unpin_backed(&pdn_regions[number]);
	PDN_POINT(END_UNPINNED, pdn_region_base_now(number));
}

void __attribute__((noinline)) pdn_unpin(uint32_t number, bool was_kept)
{
	PDN_UNCANCELLED;
	uint64_t begin = pdn_tracing(PDN_EV_UNPIN) ? pdn_ticks() : 0;

	unpin_untraced(number);
	if (pdn_tracing(PDN_EV_UNPIN))
		pdn_trace_about(PDN_EV_UNPIN, &pdn_regions[number], 0,
				was_kept ? PDN_TRACE_IN_USE : 0, begin, pdn_ticks());
}

/* Lock held. Accounts for the regions up to `last`. */
static void account_unpinned(uint32_t first, uint32_t last)
{
	int device = pdn_regions[first].device;
	uint32_t count = 0;
	uint64_t bytes = 0;

	for (uint32_t n = first;; n = pdn_regions[n].victim) {
		const struct pindown_region *region = &pdn_regions[n];

		if (__builtin_expect(region->device != device, 0)) {
			pdn_account_unpins(device, count, bytes);
			device = region->device;
			count = 0;
			bytes = 0;
		}
		count++;
		bytes += pdn_region_pin_length(region);
		if (n == last)
			break;
	}
	pdn_account_unpins(device, count, bytes);
}

void pdn_unpinned_give_back(struct pdn_victims *victims, struct pdn_unpinned *unpinned)
{
	uint32_t next;

	if (!unpinned->count)
		return;
	pdn_lock();
	if (pdn_victims_are_listed(victims)) {
		next = pdn_regions[unpinned->last].victim;
		account_unpinned(victims->first, unpinned->last);
		pdn_regions_free(victims->first, unpinned->last);
		pdn_victims_leave(victims, next);
	}
	pdn_unlock();
	unpinned->count = 0;
}

void __attribute__((cold)) pdn_unpin_after_last_put(struct pdn_victims *victims, uint32_t number)
{
	pdn_unpin(number, true);
	pdn_lock();
	if (!pdn_region_is_abandoned(number)) {
		pdn_account_unpin(&pdn_regions[number], true);
		pdn_ending_leave(victims, number);
		pdn_region_free(number);
	}
	pdn_unlock();
}

static inline void unpin_idle(uint32_t number)
{
	if (pdn_tracing(PDN_EV_UNPIN))
		pdn_unpin(number, false);
	else
		unpin_untraced(number);
}

void pdn_unpin_next(struct pdn_unpinned *unpinned, uint32_t number)
{
	/* A signal handler has forked, and this is the child. */
	if (pdn_region_is_abandoned(number))
		return;
	unpin_idle(number);
	unpinned->last = number;
	unpinned->count++;
}

int pdn_unpin_one(struct pdn_victims *victims)
{
	uint32_t number = victims->first;
	const struct pindown_region *region = &pdn_regions[number];

	PDN_POINT(END_TELLING, pdn_region_base_now(number));
	unpin_idle(number);
	pdn_lock();
	if (pdn_victims_are_listed(victims)) {
		pdn_account_unpins(region->device, 1, pdn_region_pin_length(region));
		pdn_region_free(number);
		pdn_victims_end(victims);
		pdn_wake_waiters();
	}
	pdn_unlock();
	return 1;
}
