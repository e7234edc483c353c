/* SPDX-License-Identifier: MIT */
/*
 * The ranges of device addresses: the block that each of their slots belongs to, and the program's
 * reservations.
 *
 * As NVIDIA's driver does, this one divides them into chunks of 32 MiB. A chunk in which nothing is
 * left is given up: its addresses are free to all, and what is smaller than a chunk rather goes
 * into a hole of a chunk in use. So a reservation gets the address that the program asks for in a
 * chunk in use; in others only where no hole is large enough, and at the beginning of the chunk.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bar.h"
#include "bits.h"
#include "core.h"
#include "memory.h"

#define ARENA_MIN      (1ull << 34)
#define LOW_ARENA_SIZE (512ull << 20)
#define REMEMBERED     16 /* the ranges freed last, which are handed out again at once */
#define NOWHERE	       UINT64_MAX
#define CHUNK	       (SIM_CHUNK >> SIM_PAGE_SHIFT)

/*
 * Addresses for what the program reserves beyond SIM_ADDRESSES. The host has no memory there and
 * maps none: only the driver uses these addresses.
 */
#ifdef __aarch64__
#define FAR_ARENA_BASE (1ull << 48)
#else
#define FAR_ARENA_BASE (1ull << 47)
#endif
#define FAR_ARENA_SIZE (1ull << 46)

struct arena {
	uint64_t base;
	uint64_t slots;
	uint64_t *taken;
	uint64_t *starts; /* a bit where a reservation of the program begins */
	uint32_t *counts; /* its slots, at the first of them */
	struct sim_block **blocks;
};

struct range {
	uint64_t slot, count;
};

static struct arena arena, low_arena, far_arena;
static struct arena *const arenas[] = {&arena, &low_arena, &far_arena};
static struct range remembered[REMEMBERED];
static unsigned remembered_next;
static uint64_t next_fresh = NOWHERE; /* where one more chunk is looked for first */

/*
 * After the sanitizers have replaced mmap: theirs would prepare shadow memory for all of it. The
 * kernel chooses the place, so that the sanitizers work with it.
 */
static uint64_t reserve(uint64_t hint, uint64_t size, int flags)
{
	long address = syscall(SYS_mmap, hint, size, PROT_NONE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1L, 0L);

	return address == -1 ? 0 : (uint64_t)address;
}

static bool start_arena(struct arena *arena, uint64_t base, uint64_t size)
{
	uint64_t aligned = (base + SIM_CHUNK - 1) & ~(uint64_t)(SIM_CHUNK - 1);

	arena->base = aligned;
	arena->slots = (base + size - aligned) / SIM_CHUNK / 2 * 2 * CHUNK;
	/* Only the parts in use are ever touched. */
	arena->taken = calloc(arena->slots / 64 + 1, 8);
	arena->starts = calloc(arena->slots / 64 + 1, 8);
	arena->counts = calloc(arena->slots, sizeof(*arena->counts));
	arena->blocks = calloc(arena->slots, sizeof(*arena->blocks));
	return arena->taken && arena->starts && arena->counts && arena->blocks;
}

static uint64_t take(struct arena *in, uint64_t slot, uint64_t count)
{
	bits_put(in->taken, slot, count, true);
	return in->base + (slot << SIM_PAGE_SHIFT);
}

CUresult sim_memory_start(void)
{
	uint64_t size = sim_options.addresses, base = 0;

	while (size >= ARENA_MIN && !(base = reserve(0, size, 0)))
		size /= 2;
	if (!base || !start_arena(&arena, base, size)) {
		sim_complain("simulated libcuda: no range of addresses for device memory: %s",
			     strerror(errno));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	take(&arena, arena.slots / 2, 1); /* one chunk of reservations stays in use */
	return sim_stores_start();
}

/* ---- 32-bit addresses ----------------------------------------------------------------------- */

static bool start_low_arena(void)
{
	uint64_t hint, base;

	for (hint = 0x40000000; hint <= 0xc0000000; hint += 0x10000000) {
		base = reserve(hint, LOW_ARENA_SIZE, MAP_FIXED_NOREPLACE);
		if (base == hint)
			return start_arena(&low_arena, base, LOW_ARENA_SIZE);
		if (base)
			munmap((void *)base, LOW_ARENA_SIZE);
	}
	return false;
}

uint64_t sim_low_addresses_take(uint64_t size)
{
	uint64_t count = size >> SIM_PAGE_SHIFT, slot;

	if (!low_arena.base && !start_low_arena())
		return 0;
	slot = bits_find_clear(low_arena.taken, 0, low_arena.slots, count, 1);
	if (slot >= low_arena.slots)
		return 0;
	bits_put(low_arena.taken, slot, count, true);
	return low_arena.base + (slot << SIM_PAGE_SHIFT);
}

/* ---- all others ----------------------------------------------------------------------------- */

static struct arena *arena_of(uint64_t addr, uint64_t *slot)
{
	for (unsigned i = 0; i < sizeof(arenas) / sizeof(arenas[0]); i++) {
		*slot = (addr - arenas[i]->base) >> SIM_PAGE_SHIFT;
		if (likely(*slot < arenas[i]->slots))
			return arenas[i];
	}
	return NULL;
}

bool sim_in_arena(uint64_t addr)
{
	uint64_t slot;

	return arena_of(addr, &slot) != NULL;
}

static bool is_given_up(const struct arena *in, uint64_t slot)
{
	return bits_all_clear(in->taken, slot - slot % CHUNK, CHUNK);
}

/* The addresses of a chunk that was given up are no longer known. */
static bool remembered_place(uint64_t count, uint64_t *slot)
{
	unsigned i;

	for (i = 1; i <= REMEMBERED; i++) {
		struct range *range = &remembered[(remembered_next - i) % REMEMBERED];

		if (range->count != count || !bits_all_clear(arena.taken, range->slot, count) ||
		    is_given_up(&arena, range->slot))
			continue;
		*slot = range->slot;
		range->count = 0;
		return true;
	}
	return false;
}

/* The first hole in a chunk in use, or the limit. */
static uint64_t find_hole(uint64_t from, uint64_t limit, uint64_t count)
{
	uint64_t slot = from, chunk, hole;

	while ((slot = bits_next(arena.taken, slot, limit, false)) < limit) {
		if (is_given_up(&arena, slot)) {
			slot = bits_next(arena.taken, slot, limit, true);
			if (slot >= limit)
				break;
		}
		chunk = slot - slot % CHUNK;
		hole = bits_find_clear(arena.taken, chunk, chunk + CHUNK, count, 1);
		slot = chunk + CHUNK;
		if (hole < slot)
			return hole;
	}
	return limit;
}

/* Chunks that nobody uses, or any place. */
static uint64_t find_fresh(uint64_t count)
{
	uint64_t whole = (count + CHUNK - 1) / CHUNK * CHUNK, limit = arena.slots / 2;
	uint64_t slot = bits_find_clear(arena.taken, next_fresh, limit, whole, CHUNK);

	if (slot >= limit)
		slot = bits_find_clear(arena.taken, 0, limit, whole, CHUNK);
	if (slot >= limit)
		return bits_find_clear(arena.taken, 0, arena.slots, count, 1);
	next_fresh = NOWHERE;
	return slot;
}

uint64_t sim_addresses_take(uint64_t size, uint64_t home)
{
	uint64_t count = size >> SIM_PAGE_SHIFT, limit = arena.slots / 2, slot;

	if (!remembered_place(count, &slot)) {
		slot = home ? (home - arena.base) >> SIM_PAGE_SHIFT : 0;
		slot = find_hole(slot, limit, count);
		if (slot >= limit)
			slot = find_fresh(count);
	}
	return slot < arena.slots ? take(&arena, slot, count) : 0;
}

uint64_t sim_addresses_take_home(void)
{
	uint64_t slot = find_fresh(1);

	return slot < arena.slots ? take(&arena, slot, 1) : 0;
}

/* The chunk that was given up with it; NOWHERE: none was. */
static uint64_t drop(uint64_t addr, uint64_t size)
{
	uint64_t slot;
	struct arena *in = arena_of(addr, &slot);

	bits_put(in->taken, slot, size >> SIM_PAGE_SHIFT, false);
	if (in != &arena || slot >= arena.slots / 2)
		return NOWHERE;
	remembered[remembered_next % REMEMBERED].slot = slot;
	remembered[remembered_next % REMEMBERED].count = size >> SIM_PAGE_SHIFT;
	remembered_next++;
	return is_given_up(in, slot) ? slot - slot % CHUNK : NOWHERE;
}

void sim_addresses_drop(uint64_t addr, uint64_t size)
{
	uint64_t chunk = drop(addr, size);

	if (chunk != NOWHERE)
		next_fresh = chunk;
}

/* ---- reservations --------------------------------------------------------------------------- */

/* Holes are looked for among those of memory, or among those of reservations. */
static uint64_t hole_beside(uint64_t slot, uint64_t count)
{
	uint64_t half = arena.slots / 2, limit = slot < half ? half : arena.slots;
	uint64_t hole = find_hole(limit - half, limit, count);

	return hole < limit ? hole : NOWHERE;
}

static struct arena *wanted_place(uint64_t wanted, uint64_t count, uint64_t *slot)
{
	struct arena *in = arena_of(wanted, slot);
	uint64_t hole;

	if (!in || count > in->slots - *slot || !bits_all_clear(in->taken, *slot, count))
		return NULL;
	if (!is_given_up(in, *slot))
		return in;
	hole = in == &arena ? hole_beside(*slot, count) : NOWHERE;
	*slot = hole != NOWHERE ? hole : *slot - *slot % CHUNK;
	return in;
}

/* Has another thread been faster to take the place? SIM_LOST_HINTS says for how many hints. */
static bool hint_is_lost(void)
{
	if (likely(!sim_options.lost_hints))
		return false;
	sim_options.lost_hints--;
	return true;
}

SIM_API void sim_lose_hints(uint64_t count)
{
	sim_lock();
	sim_options.lost_hints = count;
	sim_unlock();
}

static bool other_place(struct arena *in, uint64_t from, uint64_t count, uint64_t align,
			uint64_t *slot)
{
	uint64_t least = count < CHUNK ? SIM_PAGE : SIM_CHUNK;
	uint64_t step = (align > least ? align : least) >> SIM_PAGE_SHIFT;
	/* Alignment is of addresses; the bit map counts from the start of the range. */
	uint64_t shift = (in->base >> SIM_PAGE_SHIFT) % step;

	for (*slot = from;; ++*slot) {
		*slot = bits_find_clear(in->taken, *slot, in->slots, count, 1);
		if (*slot >= in->slots || (*slot + shift) % step == 0)
			return *slot < in->slots;
	}
}

/* Where there is room, first among the addresses of the device. */
static struct arena *any_place(uint64_t count, uint64_t align, uint64_t *slot)
{
	if (other_place(&arena, arena.slots / 2, count, align, slot)) /* in its upper half */
		return &arena;
	if (!far_arena.slots && !start_arena(&far_arena, FAR_ARENA_BASE, FAR_ARENA_SIZE))
		return NULL;
	return other_place(&far_arena, 0, count, align, slot) ? &far_arena : NULL;
}

uint64_t sim_addresses_reserve(uint64_t size, uint64_t align, uint64_t wanted)
{
	uint64_t count = size >> SIM_PAGE_SHIFT, slot, lost;
	struct arena *in = wanted ? wanted_place(wanted, count, &slot) : NULL, *hint = in;

	if (in && hint_is_lost()) {
		lost = slot;
		bits_put(hint->taken, lost, count, true);
		in = any_place(count, align, &slot);
		bits_put(hint->taken, lost, count, false);
	} else if (!in) {
		in = any_place(count, align, &slot);
	}
	if (!in)
		return 0;
	bits_put(in->starts, slot, 1, true);
	in->counts[slot] = count;
	return take(in, slot, count);
}

bool sim_reservation_at(uint64_t addr, uint64_t *base, uint64_t *size)
{
	uint64_t slot, first;
	struct arena *in = arena_of(addr, &slot);

	first = in ? bits_last_set(in->starts, slot) : UINT64_MAX;
	if (first == UINT64_MAX || slot - first >= in->counts[first])
		return false;
	*base = in->base + (first << SIM_PAGE_SHIFT);
	*size = (uint64_t)in->counts[first] << SIM_PAGE_SHIFT;
	return true;
}

/* What a reservation has given up is not taken next, unless memory had just given it up. */
void sim_addresses_unreserve(uint64_t base, uint64_t size)
{
	uint64_t slot, chunk;
	struct arena *in = arena_of(base, &slot);

	bits_put(in->starts, slot, 1, false);
	chunk = drop(base, size);
	if (chunk != NOWHERE && chunk != next_fresh)
		next_fresh = chunk + (size + SIM_CHUNK - 1) / SIM_CHUNK * CHUNK;
}

/* ---- access --------------------------------------------------------------------------------- */

bool sim_addresses_open(uint64_t addr, uint64_t size)
{
	return mmap((void *)addr, size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

void sim_addresses_shut(uint64_t addr, uint64_t size)
{
	syscall(SYS_mmap, addr, size, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1L, 0L);
}

/* ---- blocks in their slots ------------------------------------------------------------------ */

static struct sim_block *spare_blocks;

static void fill_slots(uint64_t base, uint64_t size, struct sim_block *block)
{
	uint64_t slot, i;
	struct arena *in = arena_of(base, &slot);

	for (i = 0; i < size >> SIM_PAGE_SHIFT; i++)
		in->blocks[slot + i] = block;
}

struct sim_block *sim_block_place(uint64_t base, uint64_t size, int device,
				  struct sim_extent *extent, uint64_t extent_offset)
{
	struct sim_block *block = spare_blocks;

	if (block)
		spare_blocks = block->next;
	else
		block = malloc(sizeof(*block));
	if (!block)
		return NULL;
	memset(block, 0, sizeof(*block));
	block->base = base;
	block->size = size;
	block->device = device;
	block->extent = extent;
	block->extent_offset = extent_offset;
	if (sim_bar_is_there() && !sim_bar_map(block)) {
		block->next = spare_blocks;
		spare_blocks = block;
		return NULL;
	}
	fill_slots(base, size, block);
	return block;
}

void sim_block_remove(struct sim_block *block)
{
	fill_slots(block->base, block->size, NULL);
	if (sim_bar_is_there())
		sim_bar_unmap(block);
	if (block->extent)
		sim_extent_drop(block->extent);
	block->next = spare_blocks;
	spare_blocks = block;
}

void sim_move_all_memory(void)
{
	for (unsigned i = 0; i < sizeof(arenas) / sizeof(arenas[0]); i++) {
		const struct arena *in = arenas[i];
		uint64_t slot = 0;

		while ((slot = bits_next(in->taken, slot, in->slots, true)) < in->slots) {
			struct sim_block *block = in->blocks[slot];

			if (block && block->extent &&
			    block->base == in->base + (slot << SIM_PAGE_SHIFT))
				sim_extent_move(block->extent);
			slot++;
		}
	}
}

struct sim_block *sim_block_at(uint64_t addr)
{
	uint64_t slot;
	struct arena *in = arena_of(addr, &slot);

	return in ? in->blocks[slot] : NULL;
}

bool sim_block_has_live(const struct sim_block *block, uint64_t addr, uint64_t size)
{
	uint64_t from = (addr - block->base) / SIM_UNIT;
	uint64_t to = (addr + size - block->base + SIM_UNIT - 1) / SIM_UNIT;

	if (!block->packing)
		return block->whole != NULL;
	return bits_next(block->packing->used, from, to, true) < to;
}

struct sim_alloc *sim_alloc_at(uint64_t addr)
{
	struct sim_block *block = sim_block_at(addr);
	struct sim_alloc *alloc;
	uint64_t start;

	if (unlikely(!block))
		return sim_in_arena(addr) ? NULL : sim_registered_at(addr);
	alloc = block->whole;
	if (block->packing) {
		start = bits_last_set(block->packing->starts, (addr - block->base) / SIM_UNIT);
		alloc = start == UINT64_MAX ? NULL : block->packing->alloc[start];
	}
	return alloc && addr - alloc->addr < alloc->size ? alloc : NULL;
}

char *sim_view(uint64_t addr, uint64_t *length)
{
	struct sim_block *block = sim_block_at(addr);
	struct sim_alloc *alloc;

	if (!sim_in_arena(addr))
		return (char *)addr;
	alloc = block ? sim_alloc_at(addr) : NULL;
	if (!alloc || (alloc->kind == SIM_MAPPED && !alloc->flags))
		return NULL;
	if (alloc->addr + alloc->size - addr < *length)
		*length = alloc->addr + alloc->size - addr;
	if (!block->extent)
		return (char *)addr;
	return sim_extent_view(block->extent) + block->extent_offset + (addr - block->base);
}
