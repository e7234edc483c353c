// SPDX-License-Identifier: MIT
/* A hash table of the regions that are pinned at the moment. */
#include "tools/trace/regions.h"

#include <stdlib.h>
#include <string.h>

#include "tools/base/memory.h"

static uint32_t slot_of(const struct regions *regions, uint32_t file, uint32_t number, uint64_t id)
{
	uint64_t key = (((uint64_t)file << 32 | number) ^ id * 0x94d049bb133111ebull) *
		       0x9e3779b97f4a7c15ull;

	return (uint32_t)(key >> 32) & (regions->capacity - 1);
}

static uint32_t home_of(const struct regions *regions, const struct region *region)
{
	return slot_of(regions, region->file, region->number, region->buffer_id);
}

static uint32_t next_slot(const struct regions *regions, uint32_t slot)
{
	return (slot + 1) & (regions->capacity - 1);
}

struct region *regions_find(const struct regions *regions, uint32_t file, uint32_t number,
			    uint64_t buffer_id)
{
	if (!regions->capacity)
		return NULL;
	for (uint32_t i = slot_of(regions, file, number, buffer_id); regions->slots[i].used;
	     i = next_slot(regions, i)) {
		struct region *region = &regions->slots[i];

		if (region->number == number && region->file == file &&
		    region->buffer_id == buffer_id)
			return region;
	}
	return NULL;
}

static struct region *free_slot(struct regions *regions, uint32_t home)
{
	while (regions->slots[home].used)
		home = next_slot(regions, home);
	return &regions->slots[home];
}

static void make_larger(struct regions *regions)
{
	struct regions larger = {.capacity = regions->capacity ? regions->capacity * 2 : 64};

	larger.slots = allocate((size_t)larger.capacity * sizeof(*larger.slots));
	for (uint32_t i = 0; i < regions->capacity; i++) {
		const struct region *region = &regions->slots[i];

		if (region->used)
			*free_slot(&larger, home_of(&larger, region)) = *region;
	}
	larger.count = regions->count;
	release(regions->slots);
	*regions = larger;
}

struct region *regions_add(struct regions *regions, uint32_t file, uint32_t number,
			   uint64_t buffer_id)
{
	struct region *region;

	if (regions->count * 2 >= regions->capacity)
		make_larger(regions);
	regions->count++;
	region = free_slot(regions, slot_of(regions, file, number, buffer_id));
	memset(region, 0, sizeof(*region));
	region->used = true;
	region->file = file;
	region->number = number;
	region->buffer_id = buffer_id;
	return region;
}

/* Regions behind the hole move up, so that no search ends too early. */
void regions_remove(struct regions *regions, struct region *region)
{
	uint32_t hole = (uint32_t)(region - regions->slots), mask = regions->capacity - 1;

	regions->count--;
	for (uint32_t i = next_slot(regions, hole); regions->slots[i].used;
	     i = next_slot(regions, i)) {
		const struct region *other = &regions->slots[i];
		uint32_t home = home_of(regions, other);

		if (((i - home) & mask) >= ((i - hole) & mask)) {
			regions->slots[hole] = *other;
			hole = i;
		}
	}
	regions->slots[hole].used = false;
}

void regions_free(struct regions *regions)
{
	release(regions->slots);
}
