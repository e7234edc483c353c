/* SPDX-License-Identifier: MIT */
/*
 * From an address to the number of the region whose allocation holds it: a radix tree over 64 KiB
 * pages with three levels. Allocations never overlap, so a page belongs to one region, but for
 * pages that small neighbours share; those have a short list.
 *
 * Changes are made under the cache's lock. Readers take none: what they find is a hint, since the
 * tree may be changing. A get validates the region it found (get.c); a free, which must not
 * overlook one, reads between pd_index_read_begin() and pd_index_unchanged() and takes the lock
 * when the answer is no. Nodes are never unmapped, so a late reader reads old news, not somebody's
 * memory.
 */
#ifndef PD_INDEX_H
#define PD_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#define PD_PAGE_SHIFT	 16
#define PD_ADDRESS_LIMIT (1ull << 48) /* no device address lies above it */

/* Lock held. false: no memory, and nothing was changed. */
bool pd_index_insert(uint32_t region, uint64_t base, uint64_t end);
void pd_index_remove(uint32_t region, uint64_t base, uint64_t end);

/* Give the nodes' memory back. Lock held, and the index empty. */
void pd_index_trim(void);

/* In a forked child: forget everything. */
void pd_index_reset(void);

/* The only region that can hold addr, or 0. It need not: compare with its base and end. */
uint32_t pd_index_find(uint64_t addr);

/*
 * Some region that overlaps [*at, end), or 0. *at moves up to where it was found and stays there:
 * who wants the next one unlinks this one first.
 */
uint32_t pd_index_next(uint64_t *at, uint64_t end);

extern uint64_t pd_index_seq; /* odd while the tree changes */

static inline uint64_t pd_index_read_begin(void)
{
	return __atomic_load_n(&pd_index_seq, __ATOMIC_ACQUIRE);
}

/* All loads of the tree are acquire loads, so this one can't move before them. */
static inline bool pd_index_unchanged(uint64_t begin)
{
	return !(begin & 1) && __atomic_load_n(&pd_index_seq, __ATOMIC_RELAXED) == begin;
}

#endif
