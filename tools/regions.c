// SPDX-License-Identifier: MIT
#include "regions.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"

static uint32_t slot_of(const struct regions *regions, uint32_t file, uint32_t number)
{
	uint64_t key = ((uint64_t)file << 32 | number) * 0x9e3779b97f4a7c15ull;

	return (uint32_t)(key >> 32) & (regions->room - 1);
}

static uint32_t next_slot(const struct regions *regions, uint32_t slot)
{
	return (slot + 1) & (regions->room - 1);
}

struct region *regions_find(const struct regions *regions, uint32_t file, uint32_t number)
{
	if (!regions->room)
		return NULL;
	for (uint32_t i = slot_of(regions, file, number); regions->slots[i].used;
	     i = next_slot(regions, i))
		if (regions->slots[i].number == number && regions->slots[i].file == file)
			return &regions->slots[i];
	return NULL;
}

static struct region *place(struct regions *regions, uint32_t file, uint32_t number)
{
	uint32_t i = slot_of(regions, file, number);

	while (regions->slots[i].used)
		i = next_slot(regions, i);
	return &regions->slots[i];
}

static void make_larger(struct regions *regions)
{
	struct regions larger = {.room = regions->room ? regions->room * 2 : 64};

	larger.slots = allocate((size_t)larger.room * sizeof(*larger.slots));
	for (uint32_t i = 0; i < regions->room; i++) {
		const struct region *region = &regions->slots[i];

		if (region->used)
			*place(&larger, region->file, region->number) = *region;
	}
	larger.count = regions->count;
	free(regions->slots);
	*regions = larger;
}

struct region *regions_add(struct regions *regions, uint32_t file, uint32_t number)
{
	struct region *region;

	if (regions->count * 2 >= regions->room)
		make_larger(regions);
	regions->count++;
	region = place(regions, file, number);
	memset(region, 0, sizeof(*region));
	region->used = true;
	region->file = file;
	region->number = number;
	return region;
}

/* Those behind move up, so that no search ends too early. */
void regions_remove(struct regions *regions, struct region *region)
{
	uint32_t hole = (uint32_t)(region - regions->slots), mask = regions->room - 1;

	regions->count--;
	for (uint32_t i = next_slot(regions, hole); regions->slots[i].used;
	     i = next_slot(regions, i)) {
		const struct region *other = &regions->slots[i];
		uint32_t home = slot_of(regions, other->file, other->number);

		if (((i - home) & mask) >= ((i - hole) & mask)) {
			regions->slots[hole] = *other;
			hole = i;
		}
	}
	regions->slots[hole].used = false;
}

void regions_free(struct regions *regions)
{
	free(regions->slots);
}
