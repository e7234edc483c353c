/* SPDX-License-Identifier: MIT */
/*
 * Unlinking many regions together: those that lie side by side, and were pinned one after the
 * other, leave the index, the queues and the accounts as one.
 */
#include "cache/account.h"
#include "cache/base/test_point.h"
#include "cache/collect.h"
#include "cache/index.h"
#include "cache/queues.h"
#include "cache/race.h"
#include "cache/region.h"
#include "cache/unlink.h"

static void sweep_index(struct pdn_sweep *sweep)
{
	if (sweep->base < sweep->end)
		pdn_index_remove_all(sweep->base, sweep->end);
}

static inline void sweep_from_index(struct pdn_sweep *sweep, uint32_t number)
{
	uint64_t base = pdn_regions[number].base, end = pdn_regions[number].end;

	if (__builtin_expect((base | end) & ((1u << PDN_PAGE_SHIFT) - 1), 0)) {
		pdn_index_remove(number, base, end);
		return;
	}
	if (base != sweep->end) {
		sweep_index(sweep);
		sweep->base = base;
	}
	sweep->end = end;
}

static inline void sweep_from_queues(struct pdn_leaving *leaving, uint32_t number)
{
	uint64_t bytes = pdn_region_pin_length(&pdn_regions[number]);

	if (leaving->last && pdn_regions[leaving->last].newer == number) {
		leaving->last = number;
		leaving->count++;
		leaving->bytes += bytes;
		return;
	}
	if (leaving->last)
		pdn_queues_left(leaving);
	*leaving =
		(struct pdn_leaving){.first = number, .last = number, .count = 1, .bytes = bytes};
}

static void sweep_outs(const struct pdn_sweep *sweep)
{
	pdn_account_outs(sweep->device, sweep->outs, sweep->reason);
	pdn_occupied_add(-sweep->outs);
}

static inline void sweep_from_accounts(struct pdn_sweep *sweep, uint32_t number)
{
	int device = pdn_regions[number].device;

	if (__builtin_expect(device != sweep->device, 0)) {
		sweep_outs(sweep);
		sweep->device = device;
		sweep->outs = 0;
	}
	sweep->outs++;
}

static inline __attribute__((always_inline)) void sweep_one(struct pdn_sweep *sweep,
							    uint32_t number)
{
	pdn_begin_end(sweep->victims, number, sweep->reason);
	sweep_from_index(sweep, number);
	sweep_from_queues(&sweep->leaving, number);
	sweep_from_accounts(sweep, number);
}

void __attribute__((noinline)) pdn_sweep_add(struct pdn_sweep *sweep, uint32_t number)
{
	sweep_one(sweep, number);
}

void pdn_sweep_end(struct pdn_sweep *sweep)
{
	if (!sweep->victims->first)
		return;
	sweep_index(sweep);
	pdn_queues_left(&sweep->leaving);
	sweep_outs(sweep);
	PDN_POINT(END_UNLINKED, pdn_regions[sweep->victims->first].base);
}

/* ---- by scope ----------------------------------------------------------------------------- */

/* The next regions from *at on, which moves behind them: as pdn_index_run(), but 0 is the end. */
static unsigned next_in_range(uint64_t *at, uint64_t end, uint32_t found[PDN_INDEX_RUN])
{
	unsigned count = pdn_index_run(at, end, found);

	if (!count && (found[0] = pdn_index_next(at, end)) != 0)
		count = 1;
	if (count && pdn_regions[found[count - 1]].end > *at)
		*at = pdn_regions[found[count - 1]].end;
	return count;
}

static void collect_range(uint64_t begin, uint64_t end, struct pdn_victims *victims,
			  enum pindown_reason reason)
{
	struct pdn_sweep sweep = {.victims = victims, .reason = reason};
	uint32_t found[PDN_INDEX_RUN];
	uint64_t at = begin;
	unsigned count;

	/* A region that has a block alone may have ended before the part that was looked at. */
	while ((count = next_in_range(&at, end, found)) != 0) {
		for (unsigned i = 0; i < count; i++)
			if ((i > 0 && i < count - 1) ||
			    pdn_region_overlaps(&pdn_regions[found[i]], begin, end))
				sweep_one(&sweep, found[i]);
		begin = at;
	}
	pdn_sweep_end(&sweep);
}

static void __attribute__((noinline, cold))
collect_matching(const struct pdn_scope *scope, struct pdn_victims *victims,
		 enum pindown_reason reason)
{
	struct pdn_sweep sweep = {.victims = victims, .reason = reason};

	for (uint32_t number = pdn_queues_first(), next; number; number = next) {
		struct pdn_memory memory = pdn_memory_of(&pdn_regions[number]);

		next = pdn_queues_next(number);
		if (pdn_scope_covers(scope, &memory))
			pdn_sweep_add(&sweep, number);
	}
	pdn_sweep_end(&sweep);
}

void pdn_collect(const struct pdn_scope *scope, struct pdn_victims *victims,
		 enum pindown_reason reason)
{
	if (scope->kind != PDN_GUARD_RANGE)
		collect_matching(scope, victims, reason);
	else
		collect_range(scope->begin, scope->end, victims, reason);
}
