/* SPDX-License-Identifier: MIT */
/*
 * From an address to the number of the region whose allocation holds it: a radix tree with three
 * levels. Allocations never overlap, so a 64 KiB page belongs to one region, except for pages that
 * small neighbours share; those have a short list.
 *
 * Changes are made under the cache's lock. Readers take none: the region that they find is a hint,
 * since the tree may be changing. A get validates the region (get.c); a free, which must not
 * overlook one, reads between pdn_index_read_begin() and pdn_index_unchanged() and takes the lock
 * when the answer is no. Nodes are used again, but never unmapped, and always hold numbers of
 * regions: so a late reader reads outdated numbers, not other data.
 */
#ifndef PDN_INDEX_H
#define PDN_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/thread/seqcount.h"
#include "cache/base/visible.h"

#define PDN_PAGE_SHIFT 16

/* Lock held. false: no memory, and nothing was changed. */
bool pdn_index_insert(uint32_t region, uint64_t base, uint64_t end);
void pdn_index_remove(uint32_t region, uint64_t base, uint64_t end);

/* Give the nodes' memory back. Lock held, and the index empty. */
void pdn_index_trim(void);

/* In a forked child: forget everything. */
void pdn_index_reset(void);

/*
 * The first region, by address, that overlaps [*at, end), or 0. *at moves up to where it was found
 * and stays there: a caller that wants the next one unlinks this one first, or continues from its
 * end.
 */
uint32_t pdn_index_next(uint64_t *at, uint64_t end);

extern PDN_HIDDEN struct pdn_seqcount pdn_index_changes;

static inline uint64_t pdn_index_read_begin(void)
{
	return pdn_seqcount_read_begin(&pdn_index_changes);
}

static inline bool pdn_index_unchanged(uint64_t begin)
{
	return pdn_seqcount_unchanged(&pdn_index_changes, begin);
}

/* Regions in the index, and ranges that are volatile: 0 means that nothing can be found. */
extern PDN_HIDDEN uint32_t pdn_occupied;

/*
 * Lock held. Release: pairs with nothing_at_all() in hook_events.c, which looks at the list of work
 * before this. A thread that finds something counted here no more has seen that there is work, or
 * sees that the index has changed.
 */
static inline void pdn_occupied_add(uint32_t change)
{
	__atomic_store_n(&pdn_occupied, __atomic_load_n(&pdn_occupied, __ATOMIC_RELAXED) + change,
			 __ATOMIC_RELEASE);
}

/* The only region that can hold addr, or 0. It need not hold it: compare with its base and end. */
uint32_t pdn_index_find(uint64_t addr);

/* ---- the tree, here for pdn_index_peek() to be inlined -------------------------------------- */

/*
 * 48 bits of address: 11 for the root, 16 for a block of 2 MiB, 5 for a page in it, and 16 within
 * the page. A block is empty, or has one region alone (which need not fill it), or has a leaf. A
 * leaf's page is empty, has one region, or a list of those that share it. As the driver hands out
 * memory in blocks, most regions need no leaf.
 */
#define PDN_LEAF_BITS	5
#define PDN_BLOCK_SHIFT (PDN_PAGE_SHIFT + PDN_LEAF_BITS)
#define PDN_MID_BITS	16
#define PDN_MID_SHIFT	(PDN_BLOCK_SHIFT + PDN_MID_BITS)
#define PDN_ROOT_BITS	11
#define PDN_SHARED_TAG	0x80000000u /* of a leaf's slot: the number of a list */
#define PDN_ALONE_TAG	1u	    /* of a block's slot: region << 1 */

struct pdn_leaf {
	uint32_t slot[1 << PDN_LEAF_BITS];
};

/*
 * Blocks in use are counted for every 2 GiB, so that a walk over a wide range can skip the others.
 */
#define PDN_TALLY_BITS 10
struct pdn_mid {
	uintptr_t slot[1 << PDN_MID_BITS]; /* struct pdn_leaf *, or region << 1 | PDN_ALONE_TAG */
	uint32_t used[1 << (PDN_MID_BITS - PDN_TALLY_BITS)];
};

extern __attribute__((visibility("hidden"))) struct pdn_mid *pdn_index_root[1 << PDN_ROOT_BITS];

/* The region in this shared page that overlaps [begin, end), or 0. */
uint32_t pdn_index_in_shared(uint32_t node, uint64_t begin, uint64_t end);

static inline uint32_t *pdn_index_page(struct pdn_leaf *leaf, uint64_t addr)
{
	return &leaf->slot[addr >> PDN_PAGE_SHIFT & ((1 << PDN_LEAF_BITS) - 1)];
}

static inline struct pdn_mid *pdn_index_mid(uint64_t addr)
{
	return __atomic_load_n(&pdn_index_root[addr >> PDN_MID_SHIFT], __ATOMIC_ACQUIRE);
}

static inline uintptr_t *pdn_index_slot(struct pdn_mid *mid, uint64_t addr)
{
	return &mid->slot[addr >> PDN_BLOCK_SHIFT & ((1 << PDN_MID_BITS) - 1)];
}

/*
 * As pdn_index_find(), but a page that several regions share is not searched: PDN_SHARED_TAG is
 * set.
 */
static inline uint32_t pdn_index_peek(uint64_t addr)
{
	struct pdn_mid *mid;
	uintptr_t slot;

	if (__builtin_expect(addr >> PDN_MID_SHIFT >= 1 << PDN_ROOT_BITS, 0))
		return 0;
	mid = pdn_index_mid(addr);
	if (__builtin_expect(!mid, 0))
		return 0;
	slot = __atomic_load_n(pdn_index_slot(mid, addr), __ATOMIC_ACQUIRE);
	if (slot & PDN_ALONE_TAG)
		return (uint32_t)(slot >> 1);
	if (__builtin_expect(!slot, 0))
		return 0;
	return __atomic_load_n(pdn_index_page((struct pdn_leaf *)slot, addr), __ATOMIC_ACQUIRE);
}

/* The region of a number that pdn_index_peek() has found. */
static inline uint32_t pdn_index_choose(uint32_t found, uint64_t addr)
{
	if (__builtin_expect(found & PDN_SHARED_TAG, 0))
		return pdn_index_in_shared(found & ~PDN_SHARED_TAG, addr, addr + 1);
	return found;
}

#endif
