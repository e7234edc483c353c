/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "index.h"
#include "region.h"

/*
 * 48 bits of address: 11 for the root, 11 for a middle node (128 GiB), 10 for a leaf (64 MiB), and
 * 16 within the page. A middle slot is empty, a leaf, or one region that covers all of its 64 MiB;
 * a leaf slot is empty, one region, or a list of those that share the page.
 */
#define LEAF_BITS  10
#define MID_BITS   11
#define ROOT_BITS  11
#define LEAF_SPAN  (1ull << (PD_PAGE_SHIFT + LEAF_BITS))
#define PAGE_SPAN  (1ull << PD_PAGE_SHIFT)
#define SHARED_TAG 0x80000000u
#define WHOLE_TAG  1u

struct leaf {
	uint32_t slot[1 << LEAF_BITS];
};

struct mid {
	uintptr_t slot[1 << MID_BITS]; /* struct leaf *, or region << 1 | WHOLE_TAG */
};

/* A list of regions that share a page; 0 is an empty place. Named by number, as regions are. */
#define SHARED_PLACES 15
struct shared {
	uint32_t place[SHARED_PLACES];
	uint32_t next;
};

static struct mid *root[1 << ROOT_BITS];
uint64_t pd_index_seq;

/* ---- memory for nodes: never unmapped ---------------------------------------------------- */

#define ARENA	    (1u << 20)
#define SHARED_MOST (1u << 20)

/* Leaves are cut from arenas; an arena begins with a link to the one before it. */
struct arena {
	struct arena *before;
	size_t used;
};
static struct arena *arenas;

static struct shared *shared_nodes; /* [0] is never used */
static uint32_t shared_used, shared_usable, shared_free;

static void *map(size_t bytes, int protection)
{
	int saved = errno;
	void *p = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	errno = saved;
	return p == MAP_FAILED ? NULL : p;
}

static struct leaf *new_leaf(void)
{
	struct arena *a = arenas;

	if (!a || a->used + sizeof(struct leaf) > ARENA) {
		a = map(ARENA, PROT_READ | PROT_WRITE);
		if (!a)
			return NULL;
		a->before = arenas;
		a->used = sizeof(struct leaf); /* keeps leaves page-aligned */
		arenas = a;
	}
	a->used += sizeof(struct leaf);
	return (struct leaf *)(void *)((char *)a + a->used - sizeof(struct leaf));
}

static uint32_t new_shared(void)
{
	uint32_t n = shared_free;
	const uint32_t step = 1024;

	if (n) {
		shared_free = shared_nodes[n].next;
		__atomic_store_n(&shared_nodes[n].next, 0, __ATOMIC_RELEASE);
		return n;
	}
	if (!shared_nodes) {
		shared_nodes = map((size_t)SHARED_MOST * sizeof(struct shared), PROT_NONE);
		if (!shared_nodes)
			return 0;
	}
	if (shared_used + 1 >= shared_usable) {
		int saved = errno;
		bool ok = shared_usable < SHARED_MOST &&
			  mprotect(&shared_nodes[shared_usable], step * sizeof(struct shared),
				   PROT_READ | PROT_WRITE) == 0;

		errno = saved;
		if (!ok)
			return 0;
		shared_usable += step;
	}
	return ++shared_used;
}

static void free_shared(uint32_t n)
{
	__atomic_store_n(&shared_nodes[n].next, shared_free, __ATOMIC_RELEASE);
	shared_free = n;
}

/* ---- changes: lock held ------------------------------------------------------------------ */

static void change_begin(void)
{
	__atomic_fetch_add(&pd_index_seq, 1, __ATOMIC_SEQ_CST);
}

static void change_end(void)
{
	__atomic_fetch_add(&pd_index_seq, 1, __ATOMIC_SEQ_CST);
}

static uintptr_t *mid_slot(uint64_t addr, bool make)
{
	struct mid **where = &root[addr >> (PD_PAGE_SHIFT + LEAF_BITS + MID_BITS)];
	struct mid *mid = *where;

	if (!mid && make) {
		mid = map(sizeof(*mid), PROT_READ | PROT_WRITE);
		__atomic_store_n(where, mid, __ATOMIC_RELEASE);
	}
	return mid ? &mid->slot[(addr / LEAF_SPAN) % (1 << MID_BITS)] : NULL;
}

static uint32_t *leaf_slot(uintptr_t *slot, uint64_t addr, bool make)
{
	struct leaf *leaf = (struct leaf *)*slot;

	if (*slot & WHOLE_TAG)
		return NULL; /* one region has all of it, so this one can't be here */
	if (!leaf && make) {
		leaf = new_leaf();
		__atomic_store_n(slot, (uintptr_t)leaf, __ATOMIC_RELEASE);
	}
	return leaf ? &leaf->slot[(addr / PAGE_SPAN) % (1 << LEAF_BITS)] : NULL;
}

static bool add_to_shared(uint32_t node, uint32_t region)
{
	for (;;) {
		struct shared *s = &shared_nodes[node];

		for (unsigned i = 0; i < SHARED_PLACES; i++)
			if (!s->place[i]) {
				__atomic_store_n(&s->place[i], region, __ATOMIC_RELEASE);
				return true;
			}
		if (!s->next) {
			uint32_t more = new_shared();

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
	if (*slot & SHARED_TAG)
		return add_to_shared(*slot & ~SHARED_TAG, region);
	node = new_shared();
	if (!node)
		return false;
	__atomic_store_n(&shared_nodes[node].place[0], *slot, __ATOMIC_RELEASE);
	__atomic_store_n(&shared_nodes[node].place[1], region, __ATOMIC_RELEASE);
	__atomic_store_n(slot, node | SHARED_TAG, __ATOMIC_RELEASE);
	return true;
}

static void remove_from_page(uint32_t *slot, uint32_t region)
{
	bool any = false;

	if (*slot == region) {
		__atomic_store_n(slot, 0, __ATOMIC_RELEASE);
		return;
	}
	if (!(*slot & SHARED_TAG))
		return;
	for (uint32_t n = *slot & ~SHARED_TAG; n; n = shared_nodes[n].next)
		for (unsigned i = 0; i < SHARED_PLACES; i++) {
			uint32_t *place = &shared_nodes[n].place[i];

			if (*place == region)
				__atomic_store_n(place, 0, __ATOMIC_RELEASE);
			any |= *place != 0;
		}
	if (any)
		return;
	for (uint32_t n = *slot & ~SHARED_TAG, next; n; n = next) {
		next = shared_nodes[n].next;
		free_shared(n);
	}
	__atomic_store_n(slot, 0, __ATOMIC_RELEASE);
}

/* One step of a walk over a region's pages: a whole middle slot where it covers one, else a page.
 */
static uint64_t step_of(uint64_t at, uint64_t base, uint64_t end, const uintptr_t *slot)
{
	bool whole = at % LEAF_SPAN == 0 && at >= base && end - at >= LEAF_SPAN;

	return whole && (!*slot || *slot & WHOLE_TAG) ? LEAF_SPAN : PAGE_SPAN;
}

static bool insert_pages(uint32_t region, uint64_t base, uint64_t end, uint64_t *at)
{
	for (*at = base & ~(PAGE_SPAN - 1); *at < end;) {
		uintptr_t *slot = mid_slot(*at, true);
		uint64_t step;
		uint32_t *page;

		if (!slot)
			return false;
		step = step_of(*at, base, end, slot);
		if (step == LEAF_SPAN) {
			__atomic_store_n(slot, (uintptr_t)region << 1 | WHOLE_TAG,
					 __ATOMIC_RELEASE);
		} else {
			page = leaf_slot(slot, *at, true);
			if (!page || !add_to_page(page, region))
				return false;
		}
		*at += step;
	}
	return true;
}

static void remove_pages(uint32_t region, uint64_t base, uint64_t end)
{
	const uintptr_t whole = (uintptr_t)region << 1 | WHOLE_TAG;

	for (uint64_t at = base & ~(PAGE_SPAN - 1); at < end;) {
		uintptr_t *slot = mid_slot(at, false);
		uint32_t *page;

		if (slot && *slot == whole) {
			__atomic_store_n(slot, 0, __ATOMIC_RELEASE);
			at += LEAF_SPAN;
			continue;
		}
		page = slot && *slot ? leaf_slot(slot, at, false) : NULL;
		if (page)
			remove_from_page(page, region);
		at += PAGE_SPAN;
	}
}

bool pd_index_insert(uint32_t region, uint64_t base, uint64_t end)
{
	uint64_t reached;
	bool ok;

	if (base >= end || end > PD_ADDRESS_LIMIT)
		return false;
	change_begin();
	ok = insert_pages(region, base, end, &reached);
	if (!ok)
		remove_pages(region, base, reached);
	change_end();
	return ok;
}

void pd_index_remove(uint32_t region, uint64_t base, uint64_t end)
{
	change_begin();
	remove_pages(region, base, end);
	change_end();
}

void pd_index_trim(void)
{
	int saved = errno;

	change_begin();
	for (struct arena *a = arenas; a; a = a->before)
		madvise((char *)a + sizeof(struct leaf), ARENA - sizeof(struct leaf),
			MADV_DONTNEED);
	change_end();
	errno = saved;
}

void pd_index_reset(void)
{
	memset(root, 0, sizeof(root));
	arenas = NULL;
	shared_nodes = NULL;
	shared_used = shared_usable = shared_free = 0;
	pd_index_seq = 0;
}

/* ---- readers ----------------------------------------------------------------------------- */

static uint32_t in_shared(uint32_t node, uint64_t begin, uint64_t end)
{
	while (node) {
		const struct shared *s = &shared_nodes[node];

		for (unsigned i = 0; i < SHARED_PLACES; i++) {
			uint32_t region = __atomic_load_n(&s->place[i], __ATOMIC_ACQUIRE);

			if (region && pd_region_overlaps(&pd_regions[region], begin, end))
				return region;
		}
		node = __atomic_load_n(&s->next, __ATOMIC_ACQUIRE);
	}
	return 0;
}

static uint32_t in_page(const uint32_t *slot, uint64_t begin, uint64_t end)
{
	uint32_t region = __atomic_load_n(slot, __ATOMIC_ACQUIRE);

	if (__builtin_expect(region & SHARED_TAG, 0))
		return in_shared(region & ~SHARED_TAG, begin, end);
	return region;
}

static struct mid *mid_at(uint64_t addr)
{
	return __atomic_load_n(&root[addr >> (PD_PAGE_SHIFT + LEAF_BITS + MID_BITS)],
			       __ATOMIC_ACQUIRE);
}

uint32_t pd_index_find(uint64_t addr)
{
	const struct mid *mid;
	uintptr_t slot;

	if (addr >= PD_ADDRESS_LIMIT)
		return 0;
	mid = mid_at(addr);
	if (!mid)
		return 0;
	slot = __atomic_load_n(&mid->slot[(addr / LEAF_SPAN) % (1 << MID_BITS)], __ATOMIC_ACQUIRE);
	if (slot & WHOLE_TAG)
		return (uint32_t)(slot >> 1);
	if (!slot)
		return 0;
	return in_page(&((struct leaf *)slot)->slot[(addr / PAGE_SPAN) % (1 << LEAF_BITS)], addr,
		       addr + 1);
}

/* In a shared page any of its regions may come first: the caller unlinks it and asks again. */
uint32_t pd_index_next(uint64_t *at, uint64_t end)
{
	if (end > PD_ADDRESS_LIMIT)
		end = PD_ADDRESS_LIMIT;
	while (*at < end) {
		const struct mid *mid = mid_at(*at);
		const uint64_t mid_span = LEAF_SPAN << MID_BITS;
		uint64_t page_end = (*at | (PAGE_SPAN - 1)) + 1;
		uintptr_t slot;
		uint32_t region;

		if (!mid) {
			*at = (*at | (mid_span - 1)) + 1;
			continue;
		}
		slot = __atomic_load_n(&mid->slot[(*at / LEAF_SPAN) % (1 << MID_BITS)],
				       __ATOMIC_ACQUIRE);
		if (!slot || slot & WHOLE_TAG) {
			if (slot)
				return (uint32_t)(slot >> 1);
			*at = (*at | (LEAF_SPAN - 1)) + 1;
			continue;
		}
		region = in_page(&((struct leaf *)slot)->slot[(*at / PAGE_SPAN) % (1 << LEAF_BITS)],
				 *at, page_end < end ? page_end : end);
		if (region && pd_region_overlaps(&pd_regions[region], *at, end))
			return region;
		*at = page_end;
	}
	return 0;
}
