/* SPDX-License-Identifier: MIT */
/* Memory for the index's nodes. */
#define _GNU_SOURCE
#include "cache/hit/index_nodes.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "cache/base/memory/address_space.h"

struct pdn_mid *pdn_mid_new(void)
{
	return pdn_map(sizeof(struct pdn_mid), PROT_READ | PROT_WRITE);
}

void pdn_mid_trim(struct pdn_mid *mid)
{
	pdn_advise(mid, sizeof(*mid), MADV_DONTNEED);
}

/* ---- leaves ------------------------------------------------------------------------------- */

/*
 * Leaves are cut from arenas. A bit in the arena says that a leaf is free, not a link in the leaf:
 * a late reader still takes the words of a leaf for numbers of regions.
 */
#define ARENA  PDN_HUGE_PAGE
#define LEAVES (ARENA / sizeof(struct pdn_leaf))
#define FEW    (LEAVES / 8) /* of a small arena */

struct arena {
	struct arena *before;
	uint32_t leaves;    /* up to here, and */
	uint32_t free;	    /* of these */
	uint32_t untouched; /* leaves from here on have never been used */
	uint32_t hint;	    /* words of `freed` before this one are zero */
	uint64_t freed[LEAVES / 64];
};
/* Leaves begin with a page, so that all of them can be given back without the head. */
#define HEAD	   ((sizeof(struct arena) + PDN_LARGEST_PAGE - 1) & ~(size_t)(PDN_LARGEST_PAGE - 1))
#define FIRST_LEAF ((uint32_t)(HEAD / sizeof(struct pdn_leaf)))

_Static_assert(LEAVES % 64 == 0, "a bit for each leaf");

static struct arena *arenas, *with_room;
static struct arena *first; /* the only one that need not begin at a multiple of ARENA */

static struct pdn_leaf *leaf_of(struct arena *arena, uint32_t number)
{
	return (struct pdn_leaf *)(void *)arena + number;
}

static struct arena *arena_of(struct pdn_leaf *leaf)
{
	if ((uintptr_t)leaf - (uintptr_t)first < FEW * sizeof(*leaf))
		return first;
	return (struct arena *)((uintptr_t)leaf & ~((uintptr_t)ARENA - 1));
}

static void reset_arena(struct arena *arena)
{
	arena->free = arena->leaves - FIRST_LEAF;
	arena->untouched = FIRST_LEAF;
	arena->hint = LEAVES / 64;
	memset(arena->freed, 0, sizeof(arena->freed));
}

static struct arena *arena_of_leaves(uint32_t leaves)
{
	size_t bytes = leaves * sizeof(struct pdn_leaf);
	struct arena *arena = pdn_allocate(bytes);

	if (!arena)
		return NULL;
	if (bytes == ARENA)
		pdn_prefer_huge(arena, bytes);
	arena->leaves = leaves;
	return arena;
}

/* Small, and of small pages, as most processes have few regions. */
static struct arena *first_arena(void)
{
	first = pdn_map(FEW * sizeof(struct pdn_leaf), PROT_READ | PROT_WRITE);
	if (first)
		first->leaves = FEW;
	return first;
}

/* Later ones are small, too, when address space is short. */
static struct arena *later_arena(void)
{
	struct arena *arena = arena_of_leaves(LEAVES);

	return arena ? arena : arena_of_leaves(FEW);
}

static struct arena *new_arena(void)
{
	struct arena *arena = arenas ? later_arena() : first_arena();

	if (!arena)
		return NULL;
	reset_arena(arena);
	arena->before = arenas;
	arenas = arena;
	return arena;
}

static struct arena *arena_with_room(void)
{
	if (with_room && with_room->free)
		return with_room;
	for (with_room = arenas; with_room; with_room = with_room->before)
		if (with_room->free)
			return with_room;
	with_room = new_arena();
	return with_room;
}

static uint32_t take_freed(struct arena *arena)
{
	uint64_t *word;
	uint32_t bit;

	while (!arena->freed[arena->hint])
		arena->hint++;
	word = &arena->freed[arena->hint];
	bit = (uint32_t)__builtin_ctzll(*word);
	*word &= *word - 1;
	return arena->hint * 64 + bit;
}

struct pdn_leaf *pdn_leaf_new(void)
{
	struct arena *arena = arena_with_room();

	if (!arena)
		return NULL;
	if (arena->free-- > arena->leaves - arena->untouched)
		return leaf_of(arena, take_freed(arena));
	return leaf_of(arena, arena->untouched++);
}

void pdn_leaf_free(struct pdn_leaf *leaf)
{
	struct arena *arena = arena_of(leaf);
	uint32_t number = (uint32_t)(leaf - leaf_of(arena, 0));

	arena->freed[number / 64] |= 1ull << number % 64;
	arena->free++;
	if (number / 64 < arena->hint)
		arena->hint = number / 64;
	if (!with_room || !with_room->free)
		with_room = arena;
}

void pdn_leaves_trim(void)
{
	for (struct arena *a = arenas; a; a = a->before) {
		pdn_advise((char *)a + HEAD, a->leaves * sizeof(struct pdn_leaf) - HEAD,
			   MADV_DONTNEED);
		reset_arena(a);
	}
}

/* ---- lists of a page ---------------------------------------------------------------------- */

#define MAX_SHARED (1u << 20)
#define MIN_SHARED (1u << 10)

struct pdn_shared *pdn_shared_nodes;
static uint32_t shared_max, shared_used, shared_usable, shared_free;

/* Fewer will do where address space is limited: see base/memory/address_space.h. */
static bool reserve_shared(void)
{
	const size_t bytes = sizeof(struct pdn_shared);
	uint64_t share = pdn_address_space_share();

	shared_max = MAX_SHARED;
	while (shared_max > MIN_SHARED && shared_max * bytes > share)
		shared_max /= 2;
	pdn_shared_nodes = pdn_reserve(shared_max * bytes);
	return pdn_shared_nodes;
}

uint32_t pdn_shared_new(void)
{
	uint32_t n = shared_free;
	const uint32_t step = 1024;

	if (n) {
		shared_free = pdn_shared_nodes[n].next;
		__atomic_store_n(&pdn_shared_nodes[n].next, 0, __ATOMIC_RELEASE);
		return n;
	}
	if (!pdn_shared_nodes && !reserve_shared())
		return 0;
	if (shared_used + 1 >= shared_usable) {
		if (shared_usable >= shared_max ||
		    !pdn_make_usable(&pdn_shared_nodes[shared_usable],
				     step * sizeof(struct pdn_shared)))
			return 0;
		shared_usable += step;
	}
	return ++shared_used;
}

/*
 * A late reader follows the link into other free nodes, whose places are empty, or into another
 * list.
 */
void pdn_shared_free(uint32_t n)
{
	__atomic_store_n(&pdn_shared_nodes[n].next, shared_free, __ATOMIC_RELEASE);
	shared_free = n;
}

void pdn_nodes_reset(void)
{
	arenas = with_room = first = NULL;
	pdn_shared_nodes = NULL;
	shared_max = shared_used = shared_usable = shared_free = 0;
}
