/* SPDX-License-Identifier: MIT */
/*
 * Ranges in which calls that end memory can't all be seen: graphs own their memory and free it as
 * they run. A region there is checked by buffer id on each hit (§3.5).
 */
#define _GNU_SOURCE
#include <stddef.h>

#include "cache/base/cancel.h"
#include "cache/base/hashed.h"
#include "cache/base/lock.h"
#include "cache/base/tree.h"
#include "cache/hook_events.h"
#include "cache/index.h"
#include "cache/region.h"
#include "cache/trust.h"
#include "cache/volatile.h"

/*
 * The ranges, which neither overlap nor touch each other: in a tree in the order of addresses. The
 * hash finds none of them: the table is used for its records. All of this is under the lock.
 */
struct range {
	struct pdn_hashed_link link; /* must be first */
	uint64_t begin, end;
	struct pdn_tree_node node;
};
static struct pdn_hashed ranges = PDN_HASHED(struct range);
static uint32_t root;

/*
 * Ranges that there is no record for, as memory is short: all from the first of them to the last
 * is volatile, because checks cost time, and trust could cost data. Empty: both are 0. What is left
 * of it gets records of its own as soon as a part of it is no longer volatile and there are some.
 */
static struct {
	uint64_t begin, end;
} unrecorded;

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
static uint32_t any_in(uint64_t begin, uint64_t end)
{
	uint32_t number = root;

	while (number && (range_at(number)->end <= begin || end <= range_at(number)->begin)) {
		const struct range *range = range_at(number);

		number = end <= range->begin ? range->node.left : range->node.right;
	}
	return number;
}

static bool is_unrecorded(uint64_t begin, uint64_t end)
{
	return unrecorded.begin < end && begin < unrecorded.end;
}

bool pdn_is_volatile(uint64_t begin, uint64_t end)
{
	return any_in(begin, end) || is_unrecorded(begin, end);
}

/* No part of it is in another range. The counts: see pdn_occupied. */
static void record(uint64_t begin, uint64_t end)
{
	uint32_t number = pdn_hashed_add(&ranges, pdn_hash(begin));

	if (number) {
		range_at(number)->begin = begin;
		range_at(number)->end = end;
		pdn_tree_insert(&by_address, &root, number);
		pdn_occupied_add(1);
		return;
	}
	pdn_occupied_add(!unrecorded.end);
	if (!unrecorded.end || begin < unrecorded.begin)
		unrecorded.begin = begin;
	if (end > unrecorded.end)
		unrecorded.end = end;
}

static void drop(uint32_t number)
{
	pdn_tree_remove(&by_address, &root, number);
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
static void add(uint64_t begin, uint64_t end)
{
	uint32_t number;

	if (begin >= end)
		return;
	while ((number = any_in(begin - (begin != 0), end + (end != ~0ull))) != 0) {
		const struct range *range = range_at(number);

		if (range->begin <= begin && end <= range->end)
			return;
		begin = range->begin < begin ? range->begin : begin;
		end = range->end > end ? range->end : end;
		drop(number);
	}
	record(begin, end);
}

void __attribute__((cold)) pdn_volatile(uint64_t addr, uint64_t length)
{
	PDN_UNCANCELLED;
	uint64_t end = addr + (length ? length : 1);

	pdn_lock();
	add(addr, end);
	check_from_now_on(addr, end);
	pdn_unlock();
}

/* Take [begin, end) out of a range that overlaps it; the parts before and behind stay volatile. */
static void cut(uint32_t number, uint64_t begin, uint64_t end)
{
	struct range old = *range_at(number);

	drop(number);
	add(old.begin, begin);
	add(end, old.end);
}

static void cut_unrecorded(uint64_t begin, uint64_t end)
{
	uint64_t old_begin = unrecorded.begin, old_end = unrecorded.end;

	unrecorded.begin = unrecorded.end = 0;
	pdn_occupied_add(-1u);
	add(old_begin, begin);
	add(end, old_end);
}

bool pdn_volatile_forget(uint64_t begin, uint64_t end)
{
	bool any = false;
	uint32_t number;

	while ((number = any_in(begin, end)) != 0) {
		cut(number, begin, end);
		any = true;
	}
	if (is_unrecorded(begin, end)) {
		cut_unrecorded(begin, end);
		any = true;
	}
	return any;
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

void pdn_volatile_fork_child(void)
{
	pdn_hashed_clear(&ranges);
	root = 0;
	unrecorded.begin = unrecorded.end = 0;
}
