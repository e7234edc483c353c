/* SPDX-License-Identifier: MIT */
/*
 * Heaps: small allocations packed into blocks of 2 MiB, large ones in blocks of their own. The
 * memory freed last is handed out again first, at the same address.
 */
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "contexts.h"
#include "core.h"
#include "memory.h"
#include "sim.h"

static struct sim_alloc *spare_allocs;
static struct sim_packing *spare_packing[2]; /* one of each size, all zero */
static uint64_t last_id;
static uint64_t live_allocs;

/* ---- allocation records --------------------------------------------------------------------- */

uint64_t sim_next_id(void)
{
	return ++last_id;
}

struct sim_alloc *sim_alloc_new(enum sim_kind kind, uint64_t addr, uint64_t size, int device)
{
	struct sim_alloc *alloc = spare_allocs;

	if (alloc)
		spare_allocs = alloc->next;
	else
		alloc = malloc(sizeof(*alloc));
	if (!alloc)
		return NULL;
	memset(alloc, 0, sizeof(*alloc));
	alloc->kind = kind;
	alloc->addr = addr;
	alloc->size = size;
	alloc->device = device;
	alloc->id = sim_next_id();
	live_allocs++;
	return alloc;
}

void sim_alloc_to_context(struct sim_alloc *alloc, struct sim_context *context)
{
	alloc->context = context;
	alloc->prev = NULL;
	alloc->next = context->allocs;
	if (alloc->next)
		alloc->next->prev = alloc;
	context->allocs = alloc;
}

void sim_alloc_delete(struct sim_alloc *alloc)
{
	if (alloc->context) {
		if (alloc->prev)
			alloc->prev->next = alloc->next;
		else
			alloc->context->allocs = alloc->next;
		if (alloc->next)
			alloc->next->prev = alloc->prev;
	}
	if (unlikely(alloc->record))
		sim_record_end(alloc->block->extent->store, alloc->record);
	alloc->next = spare_allocs;
	spare_allocs = alloc;
	live_allocs--;
}

SIM_API uint64_t sim_live_allocations(void)
{
	return __atomic_load_n(&live_allocs, __ATOMIC_RELAXED);
}

/* ---- small allocations ---------------------------------------------------------------------- */

static struct sim_packing **spare_of(unsigned units)
{
	static struct sim_packing *other;

	if (units == SIM_PAGE / SIM_UNIT)
		return &spare_packing[0];
	return units == SIM_CHUNK / SIM_UNIT ? &spare_packing[1] : &other;
}

/* One piece of memory; its unused parts are never touched. */
static struct sim_packing *new_packing(uint64_t size)
{
	unsigned units = size / SIM_UNIT;
	struct sim_packing *packing = *spare_of(units);

	if (packing && packing->units != units)
		packing = NULL;
	else
		*spare_of(units) = NULL;
	if (!packing) {
		packing = calloc(1, sizeof(*packing) + units / 8 * 2 + units * sizeof(void *));
		if (!packing)
			return NULL;
		packing->units = units;
		packing->used = (uint64_t *)(packing + 1);
		packing->starts = packing->used + units / 64;
		packing->alloc = (struct sim_alloc **)(packing->starts + units / 64);
	}
	packing->free_units = units;
	packing->last_units = 0;
	return packing;
}

static void delete_packing(struct sim_packing *packing)
{
	if (*spare_of(packing->units))
		free(packing);
	else
		*spare_of(packing->units) = packing;
}

static bool packing_place(struct sim_packing *packing, unsigned units, unsigned *unit)
{
	if (packing->free_units < units)
		return false;
	*unit = packing->last_unit;
	if (packing->last_units == units && bits_all_clear(packing->used, *unit, units))
		return true;
	*unit = bits_find_clear(packing->used, 0, packing->units, units, 1);
	return *unit < packing->units;
}

static struct sim_alloc *pack(struct sim_block *block, uint64_t size, enum sim_kind kind)
{
	struct sim_packing *packing = block->packing;
	unsigned units = (size + SIM_UNIT - 1) / SIM_UNIT, unit;
	struct sim_alloc *alloc;

	if (!packing_place(packing, units, &unit))
		return NULL;
	alloc = sim_alloc_new(kind, block->base + unit * SIM_UNIT, size, block->device);
	if (!alloc)
		return NULL;
	bits_put(packing->used, unit, units, true);
	packing->starts[unit / 64] |= 1ull << (unit % 64);
	packing->alloc[unit] = alloc;
	packing->free_units -= units;
	alloc->block = block;
	return alloc;
}

static void unpack(struct sim_block *block, struct sim_alloc *alloc)
{
	struct sim_packing *packing = block->packing;
	unsigned units = (alloc->size + SIM_UNIT - 1) / SIM_UNIT;
	unsigned unit = (alloc->addr - block->base) / SIM_UNIT;

	bits_put(packing->used, unit, units, false);
	packing->starts[unit / 64] &= ~(1ull << (unit % 64));
	packing->alloc[unit] = NULL;
	packing->free_units += units;
	packing->last_unit = unit;
	packing->last_units = units;
}

/* ---- blocks of a heap ----------------------------------------------------------------------- */

static void link_block(struct sim_block **list, struct sim_block *block)
{
	block->prev = NULL;
	block->next = *list;
	if (block->next)
		block->next->prev = block;
	*list = block;
}

static void unlink_block(struct sim_block **list, struct sim_block *block)
{
	if (block->prev)
		block->prev->next = block->next;
	else
		*list = block->next;
	if (block->next)
		block->next->prev = block->prev;
}

/* The addresses of a block stay its pool's; those that were kept longest make room. */
static void vacate(struct sim_heap *heap, uint64_t base, uint64_t size)
{
	unsigned i = heap->next_vacant++ % SIM_VACANT;

	if (heap->vacant[i].size)
		sim_addresses_drop(heap->vacant[i].base, heap->vacant[i].size);
	heap->vacant[i].base = base;
	heap->vacant[i].size = size;
}

/* The newest of that size; 0: there is none. */
static uint64_t vacant_place(struct sim_heap *heap, uint64_t size)
{
	for (unsigned n = 1; heap->keep && n <= SIM_VACANT; n++) {
		unsigned i = (heap->next_vacant - n) % SIM_VACANT;

		if (heap->vacant[i].size == size) {
			heap->vacant[i].size = 0;
			return heap->vacant[i].base;
		}
	}
	return 0;
}

static struct sim_block *fresh_block(struct sim_heap *heap, uint64_t size)
{
	struct sim_extent *extent = sim_extent_take(heap->device, size);
	struct sim_block *block;
	uint64_t base;

	if (!extent)
		return NULL;
	base = vacant_place(heap, size);
	if (!base)
		base = sim_addresses_take(size, heap->home);
	if (!base)
		goto no_addresses;
	block = sim_block_place(base, size, heap->device, extent, 0);
	if (!block)
		goto no_block;
	block->heap = heap;
	heap->reserved += size;
	if (heap->reserved > heap->reserved_high)
		heap->reserved_high = heap->reserved;
	return block;
no_block:
	sim_addresses_drop(base, size);
no_addresses:
	sim_extent_drop(extent);
	return NULL;
}

static struct sim_block *heap_block(struct sim_heap *heap, uint64_t size)
{
	struct sim_block *block;

	for (block = heap->idle; block; block = block->next) {
		if (heap->chunk ? block->size < size : block->size != size)
			continue;
		unlink_block(&heap->idle, block);
		return block;
	}
	return fresh_block(heap, size);
}

static void destroy_block(struct sim_heap *heap, struct sim_block *block)
{
	uint64_t base = block->base, size = block->size;

	heap->reserved -= size;
	sim_block_remove(block);
	if (heap->keep)
		vacate(heap, base, size);
	else
		sim_addresses_drop(base, size);
}

static void retire_block(struct sim_heap *heap, struct sim_block *block)
{
	if (heap->keep)
		link_block(&heap->idle, block);
	else
		destroy_block(heap, block);
}

void sim_heap_trim(struct sim_heap *heap, uint64_t keep)
{
	struct sim_block *block = heap->idle;

	/* The oldest are at the end; the order in which they go can't be seen from outside. */
	while (block && heap->reserved > keep) {
		struct sim_block *next = block->next;

		unlink_block(&heap->idle, block);
		destroy_block(heap, block);
		block = next;
	}
}

void sim_heap_end(struct sim_heap *heap)
{
	sim_heap_trim(heap, 0);
	for (unsigned i = 0; i < SIM_VACANT; i++)
		if (heap->vacant[i].size)
			sim_addresses_drop(heap->vacant[i].base, heap->vacant[i].size);
}

static uint64_t chunk_of(const struct sim_heap *heap)
{
	return heap->chunk ? heap->chunk : SIM_PAGE;
}

/* Pools pack large allocations, too, so that these lie across the borders of chunks. */
static uint64_t max_packed(const struct sim_heap *heap)
{
	return heap->chunk ? 3 * heap->chunk : SIM_PAGE;
}

/* ---- heaps ---------------------------------------------------------------------------------- */

static struct sim_alloc *alloc_small(struct sim_heap *heap, uint64_t size, enum sim_kind kind)
{
	struct sim_block *block = heap->last;
	struct sim_alloc *alloc = block ? pack(block, size, kind) : NULL;

	for (block = heap->small; !alloc && block; block = block->next)
		alloc = pack(block, size, kind);
	if (alloc) {
		heap->last = alloc->block;
		return alloc;
	}
	block = heap_block(heap, (size + chunk_of(heap) - 1) / chunk_of(heap) * chunk_of(heap));
	if (!block)
		return NULL;
	block->packing = new_packing(block->size);
	if (!block->packing) {
		retire_block(heap, block);
		return NULL;
	}
	link_block(&heap->small, block);
	heap->last = block;
	return pack(block, size, kind);
}

static struct sim_alloc *alloc_large(struct sim_heap *heap, uint64_t size, enum sim_kind kind)
{
	uint64_t chunk = chunk_of(heap);
	struct sim_block *block = heap_block(heap, (size + chunk - 1) / chunk * chunk);
	struct sim_alloc *alloc;

	if (!block)
		return NULL;
	alloc = sim_alloc_new(kind, block->base, size, heap->device);
	if (!alloc) {
		retire_block(heap, block);
		return NULL;
	}
	block->whole = alloc;
	alloc->block = block;
	return alloc;
}

struct sim_alloc *sim_heap_alloc(struct sim_heap *heap, uint64_t size, enum sim_kind kind)
{
	struct sim_alloc *alloc;

	if (size > 1ull << 48)
		return NULL;
	alloc = size < max_packed(heap) ? alloc_small(heap, size, kind)
					: alloc_large(heap, size, kind);
	if (!alloc)
		return NULL;
	heap->used += size;
	if (heap->used > heap->used_high)
		heap->used_high = heap->used;
	return alloc;
}

void sim_heap_free(struct sim_heap *heap, struct sim_alloc *alloc)
{
	struct sim_block *block = alloc->block;

	heap->used -= alloc->size;
	if (!block->packing) {
		sim_alloc_delete(alloc);
		block->whole = NULL;
		retire_block(heap, block);
		return;
	}
	unpack(block, alloc);
	sim_alloc_delete(alloc);
	if (block->packing->free_units < block->packing->units) {
		heap->last = block;
		return;
	}
	if (heap->last == block)
		heap->last = NULL;
	unlink_block(&heap->small, block);
	delete_packing(block->packing);
	block->packing = NULL;
	retire_block(heap, block);
}

/* ---- blocks of one allocation --------------------------------------------------------------- */

struct sim_alloc *sim_alloc_whole(enum sim_kind kind, uint64_t size, int device,
				  struct sim_extent *extent, uint64_t base)
{
	uint64_t span = (size + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
	struct sim_alloc *alloc = sim_alloc_new(kind, base, size, device);

	if (!alloc)
		return NULL;
	alloc->block = sim_block_place(base, span, device, extent, 0);
	if (!alloc->block) {
		sim_alloc_delete(alloc);
		return NULL;
	}
	alloc->block->whole = alloc;
	return alloc;
}

void sim_free_whole(struct sim_alloc *alloc)
{
	struct sim_block *block = alloc->block;
	uint64_t base = block->base, size = block->size;

	if (!block->extent)
		sim_addresses_shut(base, size);
	sim_alloc_delete(alloc);
	sim_block_remove(block);
	sim_addresses_drop(base, size);
}
