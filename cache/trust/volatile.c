/* SPDX-License-Identifier: MIT */
/*
 * Ranges in which calls that end memory can't all be seen: graphs own their memory and free it as
 * they run. A region there is checked by buffer id on each hit (§3.5 of the guide). Some of them
 * are leaving: the program has freed them in stream order, and the driver has them until the
 * stream's turn.
 */
#define _GNU_SOURCE
#include <stddef.h>

#include "cache/base/thread/cancel.h"
#include "cache/base/memory/hashed.h"
#include "cache/base/thread/lock.h"
#include "cache/base/memory/tree.h"
#include "cache/hook_events.h"
#include "cache/hit/index.h"
#include "cache/hit/region.h"
#include "cache/trust/trust.h"
#include "cache/trust/volatile.h"

/*
 * The ranges of a set neither overlap nor touch each other, and form a tree in the order of their
 * addresses. The table has the records of all sets; nothing is looked up by its hash. All of this
 * is under the lock.
 */
struct range {
	struct pdn_hashed_link link; /* must be first */
	uint64_t begin, end;
	struct pdn_tree_node node;
};
static struct pdn_hashed ranges = PDN_HASHED(struct range);

/*
 * Ranges that there is no record for, as memory is short: all from the first of them to the last
 * is in the set, because checks cost time, and trust could cost data. Empty: both are 0. What is
 * left of it gets records of its own as soon as a part of it leaves the set and there are some.
 */
struct unrecorded {
	uint64_t begin, end;
};
static PDN_NOT_INHERITED struct set {
	uint32_t root;
	struct unrecorded unrecorded;
} checked, leaving; /* all that is leaving is checked, too */

static struct range *range_at(uint32_t number)
{
	return pdn_hashed_at(&ranges, number);
}

static bool is_before(uint32_t a, uint32_t b)
{
	return range_at(a)->begin < range_at(b)->begin;
}

static uint64_t end_of(uint32_t number)
{
	return range_at(number)->end;
}

static const struct pdn_tree by_address = {
	.records = &ranges,
	.node = offsetof(struct range, node),
	.is_before = is_before,
	.end_of = end_of,
};

/* A range with a part in [begin, end); 0: none. They don't overlap: one walk down finds it. */
static uint32_t any_in(const struct set *set, uint64_t begin, uint64_t end)
{
	uint32_t number = set->root;

	while (number && (range_at(number)->end <= begin || end <= range_at(number)->begin)) {
		const struct range *range = range_at(number);

		number = end <= range->begin ? range->node.left : range->node.right;
	}
	return number;
}

static bool is_unrecorded(const struct set *set, uint64_t begin, uint64_t end)
{
	return set->unrecorded.begin < end && begin < set->unrecorded.end;
}

static bool has(const struct set *set, uint64_t begin, uint64_t end)
{
	return any_in(set, begin, end) || is_unrecorded(set, begin, end);
}

bool pdn_is_volatile(uint64_t begin, uint64_t end)
{
	return has(&checked, begin, end);
}

bool pdn_is_leaving(uint64_t begin, uint64_t end)
{
	return has(&leaving, begin, end);
}

/* No part of it is in another range. The counts: see pdn_occupied. */
static void record(struct set *set, uint64_t begin, uint64_t end)
{
	struct unrecorded *unrecorded = &set->unrecorded;
	uint32_t number = pdn_hashed_add(&ranges, pdn_hash(begin));

	if (number) {
		range_at(number)->begin = begin;
		range_at(number)->end = end;
		pdn_tree_insert(&by_address, &set->root, number);
		pdn_occupied_add(1);
		return;
	}
	pdn_occupied_add(!unrecorded->end);
	if (!unrecorded->end || begin < unrecorded->begin)
		unrecorded->begin = begin;
	if (end > unrecorded->end)
		unrecorded->end = end;
}

static void drop(struct set *set, uint32_t number)
{
	pdn_tree_remove(&by_address, &set->root, number);
	pdn_hashed_remove(&ranges, number);
	pdn_occupied_add(-1u);
}

/* Lock held. Regions that are there already are checked from now on. */
static void check_from_now_on(uint64_t begin, uint64_t end)
{
	uint32_t number;

	for (uint64_t at = begin; (number = pdn_index_next(&at, end)) != 0;
	     at = pdn_regions[number].end)
		pdn_region_set_checked(number, pdn_regions[number].flags | PDN_REGION_VOLATILE);
}

/* Ranges that it overlaps or touches become one with it. */
static void add(struct set *set, uint64_t begin, uint64_t end)
{
	uint32_t number;

	if (begin >= end)
		return;
	while ((number = any_in(set, begin - (begin != 0), end + (end != ~0ull))) != 0) {
		const struct range *range = range_at(number);

		if (range->begin <= begin && end <= range->end)
			return;
		begin = range->begin < begin ? range->begin : begin;
		end = range->end > end ? range->end : end;
		drop(set, number);
	}
	record(set, begin, end);
}

void __attribute__((cold)) pdn_volatile(uint64_t addr, uint64_t length)
{
	PDN_UNCANCELLED;
	uint64_t end = addr + (length ? length : 1);

	pdn_lock();
	add(&checked, addr, end);
	check_from_now_on(addr, end);
	pdn_unlock();
}

bool __attribute__((cold)) pdn_ends_later(uint64_t addr, uint64_t length)
{
	PDN_UNCANCELLED;
	bool was_leaving;

	pdn_volatile(addr, length);
	pdn_lock();
	was_leaving = has(&leaving, addr, addr + length);
	add(&leaving, addr, addr + length);
	pdn_unlock();
	return !was_leaving;
}

/* Take [begin, end) out of a range that overlaps it; the parts before and behind stay. */
static void cut(struct set *set, uint32_t number, uint64_t begin, uint64_t end)
{
	struct range old = *range_at(number);

	drop(set, number);
	add(set, old.begin, begin);
	add(set, end, old.end);
}

static void cut_unrecorded(struct set *set, uint64_t begin, uint64_t end)
{
	struct unrecorded old = set->unrecorded;

	set->unrecorded = (struct unrecorded){0};
	pdn_occupied_add(-1u);
	add(set, old.begin, begin);
	add(set, end, old.end);
}

static bool forget(struct set *set, uint64_t begin, uint64_t end)
{
	bool any = false;
	uint32_t number;

	while ((number = any_in(set, begin, end)) != 0) {
		cut(set, number, begin, end);
		any = true;
	}
	if (is_unrecorded(set, begin, end)) {
		cut_unrecorded(set, begin, end);
		any = true;
	}
	return any;
}

bool pdn_volatile_forget(uint64_t begin, uint64_t end)
{
	forget(&leaving, begin, end);
	return forget(&checked, begin, end);
}

void pdn_volatile_trust(uint64_t begin, uint64_t end)
{
	uint32_t number;

	for (uint64_t at = begin; (number = pdn_index_next(&at, end)) != 0;
	     at = pdn_regions[number].end)
		if ((pdn_regions[number].flags & PDN_REGION_CHECKED) == PDN_REGION_VOLATILE &&
		    !pdn_is_volatile(pdn_regions[number].base, pdn_regions[number].end))
			pdn_region_set_checked(number,
					       pdn_regions[number].flags & ~PDN_REGION_VOLATILE);
}
