/* SPDX-License-Identifier: MIT */
/* The radix tree: inserting, removing and walking. */
#include "cache/base/process/process.h"
#include "cache/hit/index.h"

#include <string.h>

#include "cache/hit/index_nodes.h"
#include "cache/hit/region.h"

#define PAGE_SPAN  (1ull << PDN_PAGE_SHIFT)
#define BLOCK_SPAN (1ull << PDN_BLOCK_SHIFT)
#define TALLY_SPAN (BLOCK_SPAN << PDN_TALLY_BITS)
#define MID_SPAN   (1ull << PDN_MID_SHIFT)

struct pdn_mid *pdn_index_root[1 << PDN_ROOT_BITS];
struct pdn_seqcount pdn_index_changes;
PDN_NOT_INHERITED uint32_t pdn_occupied;

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The end of the aligned piece of `span` bytes that `at` lies in. */
static uint64_t end_of(uint64_t at, uint64_t span)
{
	return (at | (span - 1)) + 1;
}

/* ---- a page ------------------------------------------------------------------------------- */

static bool add_to_shared(uint32_t node, uint32_t region)
{
	for (;;) {
		struct pdn_shared *s = &pdn_shared_nodes[node];

		for (unsigned i = 0; i < PDN_SHARED_PLACES; i++)
			if (!s->place[i]) {
				__atomic_store_n(&s->place[i], region, __ATOMIC_RELEASE);
				return true;
			}
		if (!s->next) {
			uint32_t more = pdn_shared_new();

			if (!more)
				return false;
			__atomic_store_n(&s->next, more, __ATOMIC_RELEASE);
		}
		node = s->next;
	}
}

static bool add_to_page(uint32_t *slot, uint32_t region)
{
	uint32_t node;

	if (!*slot) {
		__atomic_store_n(slot, region, __ATOMIC_RELEASE);
		return true;
	}
	if (*slot & PDN_SHARED_TAG)
		return add_to_shared(*slot & ~PDN_SHARED_TAG, region);
	node = pdn_shared_new();
	if (!node)
		return false;
	__atomic_store_n(&pdn_shared_nodes[node].place[0], *slot, __ATOMIC_RELEASE);
	__atomic_store_n(&pdn_shared_nodes[node].place[1], region, __ATOMIC_RELEASE);
	__atomic_store_n(slot, node | PDN_SHARED_TAG, __ATOMIC_RELEASE);
	return true;
}

static void __attribute__((noinline)) remove_from_page(uint32_t *slot, uint32_t region)
{
	bool any = false;

	if (*slot == region) {
		__atomic_store_n(slot, 0, __ATOMIC_RELEASE);
		return;
	}
	if (!(*slot & PDN_SHARED_TAG))
		return;
	for (uint32_t n = *slot & ~PDN_SHARED_TAG; n; n = pdn_shared_nodes[n].next)
		for (unsigned i = 0; i < PDN_SHARED_PLACES; i++) {
			uint32_t *place = &pdn_shared_nodes[n].place[i];

			if (*place == region)
				__atomic_store_n(place, 0, __ATOMIC_RELEASE);
			any |= *place != 0;
		}
	if (any)
		return;
	for (uint32_t n = *slot & ~PDN_SHARED_TAG, next; n; n = next) {
		next = pdn_shared_nodes[n].next;
		pdn_shared_free(n);
	}
	__atomic_store_n(slot, 0, __ATOMIC_RELEASE);
}

/* ---- a block ------------------------------------------------------------------------------ */

/*
 * A slot is published with release, after the node that it names, for the readers' acquire loads
 * (index.h, and below).
 */
static void set_block(struct pdn_mid *mid, uint64_t addr, uintptr_t value)
{
	uintptr_t *slot = pdn_index_slot(mid, addr);
	uint32_t *used = &mid->used[addr / TALLY_SPAN % (1 << (PDN_MID_BITS - PDN_TALLY_BITS))];
	uint32_t now = *used + (value != 0) - (*slot != 0);

	/*
	 * Counted before it is there, and until it is gone: a reader may skip a piece whose count
	 * is 0.
	 */
	if (value)
		__atomic_store_n(used, now, __ATOMIC_RELEASE);
	__atomic_store_n(slot, value, __ATOMIC_RELEASE);
	if (!value)
		__atomic_store_n(used, now, __ATOMIC_RELEASE);
}

/* The pages of [begin, end), which lies in one block. */
static bool add_pages(struct pdn_leaf *leaf, uint32_t region, uint64_t begin, uint64_t end)
{
	for (uint64_t at = begin & ~(PAGE_SPAN - 1); at < end; at += PAGE_SPAN)
		if (!add_to_page(pdn_index_page(leaf, at), region))
			return false;
	return true;
}

static inline void remove_pages(struct pdn_leaf *leaf, uint32_t region, uint64_t begin,
				uint64_t end)
{
	uint32_t *last = pdn_index_page(leaf, end - 1);

	for (uint32_t *slot = pdn_index_page(leaf, begin); slot <= last; slot++)
		if (__builtin_expect(*slot == region, 1))
			__atomic_store_n(slot, 0, __ATOMIC_RELEASE);
		else
			remove_from_page(slot, region);
}

/* It begins at this address: next to pages that were emptied there are often others in use. */
static inline bool is_empty(struct pdn_leaf *leaf, uint64_t at)
{
	if (__builtin_expect(*pdn_index_page(leaf, at), 1))
		return false;
	for (unsigned i = 0; i < 1 << PDN_LEAF_BITS; i++)
		if (leaf->slot[i])
			return false;
	return true;
}

/* A region that had the block alone gets its pages in a leaf, before any reader sees that. */
static struct pdn_leaf *leaf_with(uint32_t region, uint64_t block)
{
	struct pdn_leaf *leaf = pdn_leaf_new();

	if (leaf)
		add_pages(leaf, region, most(pdn_regions[region].base, block),
			  least(pdn_regions[region].end, block + BLOCK_SPAN));
	return leaf;
}

/* [begin, end) lies in one block. false: no memory; remove_from_block() then undoes it. */
static bool add_to_block(uint32_t region, uint64_t begin, uint64_t end)
{
	struct pdn_mid **mid = &pdn_index_root[begin >> PDN_MID_SHIFT];
	uintptr_t slot;

	if (!*mid) {
		struct pdn_mid *new_mid = pdn_mid_new();

		if (!new_mid)
			return false;
		__atomic_store_n(mid, new_mid, __ATOMIC_RELEASE);
	}
	slot = *pdn_index_slot(*mid, begin);
	if (!slot) {
		set_block(*mid, begin, (uintptr_t)region << 1 | PDN_ALONE_TAG);
		return true;
	}
	if (slot & PDN_ALONE_TAG) {
		slot = (uintptr_t)leaf_with((uint32_t)(slot >> 1), begin & ~(BLOCK_SPAN - 1));
		if (!slot)
			return false;
		set_block(*mid, begin, slot);
	}
	return add_pages((struct pdn_leaf *)slot, region, begin, end);
}

static void remove_from_block(uint32_t region, uint64_t begin, uint64_t end)
{
	struct pdn_mid *mid = pdn_index_root[begin >> PDN_MID_SHIFT];
	uintptr_t slot = mid ? *pdn_index_slot(mid, begin) : 0;

	if (slot == ((uintptr_t)region << 1 | PDN_ALONE_TAG)) {
		set_block(mid, begin, 0);
	} else if (slot && !(slot & PDN_ALONE_TAG)) {
		struct pdn_leaf *leaf = (struct pdn_leaf *)slot;

		remove_pages(leaf, region, begin, end);
		if (is_empty(leaf, end)) {
			set_block(mid, begin, 0);
			pdn_leaf_free(leaf);
		}
	}
}

/* ---- changes: lock held ------------------------------------------------------------------- */

static void __attribute__((noinline)) remove_up_to(uint32_t region, uint64_t base, uint64_t end)
{
	for (uint64_t at = base; at < end; at = end_of(at, BLOCK_SPAN))
		remove_from_block(region, at, least(end, end_of(at, BLOCK_SPAN)));
}

bool pdn_index_insert(uint32_t region, uint64_t base, uint64_t end)
{
	bool ok = base < end && end <= PDN_ADDRESS_LIMIT;

	pdn_seqcount_write_begin(&pdn_index_changes);
	for (uint64_t at = base; ok && at < end; at = end_of(at, BLOCK_SPAN)) {
		uint64_t block_end = least(end, end_of(at, BLOCK_SPAN));

		ok = add_to_block(region, at, block_end);
		if (!ok)
			remove_up_to(region, base, block_end);
	}
	pdn_seqcount_write_end(&pdn_index_changes);
	return ok;
}

void pdn_index_remove(uint32_t region, uint64_t base, uint64_t end)
{
	pdn_seqcount_write_begin(&pdn_index_changes);
	remove_up_to(region, base, end);
	pdn_seqcount_write_end(&pdn_index_changes);
}

void pdn_index_trim(void)
{
	pdn_seqcount_write_begin(&pdn_index_changes);
	for (unsigned i = 0; i < 1 << PDN_ROOT_BITS; i++)
		if (pdn_index_root[i])
			pdn_mid_trim(pdn_index_root[i]);
	pdn_leaves_trim();
	pdn_seqcount_write_end(&pdn_index_changes);
}

void pdn_index_reset(void)
{
	memset(pdn_index_root, 0, sizeof(pdn_index_root));
	pdn_nodes_reset();
	pdn_seqcount_reset(&pdn_index_changes);
}

/* ---- readers ------------------------------------------------------------------------------ */

uint32_t pdn_index_in_shared(uint32_t node, uint64_t begin, uint64_t end)
{
	while (node) {
		const struct pdn_shared *s = &pdn_shared_nodes[node];

		for (unsigned i = 0; i < PDN_SHARED_PLACES; i++) {
			uint32_t region = __atomic_load_n(&s->place[i], __ATOMIC_ACQUIRE);

			if (region && pdn_region_overlaps(&pdn_regions[region], begin, end))
				return region;
		}
		node = __atomic_load_n(&s->next, __ATOMIC_ACQUIRE);
	}
	return 0;
}

uint32_t pdn_index_find(uint64_t addr)
{
	return pdn_index_choose(pdn_index_peek(addr), addr);
}

/*
 * A list is in no order, but a caller that continues from the end of one must not have passed
 * another.
 */
static uint32_t lowest_in_shared(uint32_t node, uint64_t begin, uint64_t end)
{
	uint32_t lowest = 0;

	while (node) {
		const struct pdn_shared *s = &pdn_shared_nodes[node];

		for (unsigned i = 0; i < PDN_SHARED_PLACES; i++) {
			uint32_t region = __atomic_load_n(&s->place[i], __ATOMIC_ACQUIRE);

			if (region && pdn_region_overlaps(&pdn_regions[region], begin, end) &&
			    (!lowest || pdn_region_base_now(region) < pdn_region_base_now(lowest)))
				lowest = region;
		}
		node = __atomic_load_n(&s->next, __ATOMIC_ACQUIRE);
	}
	return lowest;
}

static uint32_t next_in_leaf(struct pdn_leaf *leaf, uint64_t *at, uint64_t end)
{
	while (*at < end) {
		uint64_t page_end = least(end, end_of(*at, PAGE_SPAN));
		uint32_t region = __atomic_load_n(pdn_index_page(leaf, *at), __ATOMIC_ACQUIRE);

		if (region & PDN_SHARED_TAG)
			region = lowest_in_shared(region & ~PDN_SHARED_TAG, *at, page_end);
		if (region && pdn_region_overlaps(&pdn_regions[region], *at, page_end))
			return region;
		*at = page_end;
	}
	return 0;
}

static uint32_t next_in_block(struct pdn_mid *mid, uint64_t *at, uint64_t end)
{
	uintptr_t slot = __atomic_load_n(pdn_index_slot(mid, *at), __ATOMIC_ACQUIRE);
	uint32_t region = (uint32_t)(slot >> 1);

	if (slot && !(slot & PDN_ALONE_TAG))
		return next_in_leaf((struct pdn_leaf *)slot, at, end);
	if (slot && pdn_region_overlaps(&pdn_regions[region], *at, end))
		return region;
	*at = end;
	return 0;
}

static bool has_any(struct pdn_mid *mid, uint64_t at)
{
	return __atomic_load_n(&mid->used[at / TALLY_SPAN % (1 << (PDN_MID_BITS - PDN_TALLY_BITS))],
			       __ATOMIC_ACQUIRE);
}

uint32_t pdn_index_next(uint64_t *at, uint64_t end)
{
	end = least(end, PDN_ADDRESS_LIMIT);
	while (*at < end) {
		struct pdn_mid *mid = pdn_index_mid(*at);
		uint32_t region;

		if (!mid) {
			*at = end_of(*at, MID_SPAN);
			continue;
		}
		if (!has_any(mid, *at)) {
			*at = end_of(*at, TALLY_SPAN);
			continue;
		}
		region = next_in_block(mid, at, least(end, end_of(*at, BLOCK_SPAN)));
		if (region)
			return region;
	}
	return 0;
}
