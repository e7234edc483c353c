// SPDX-License-Identifier: MIT
/* Reads a trace and extracts the uses of each allocation. */
#include "tools/replay/uses.h"

#include <stdlib.h>
#include <string.h>

#include "tools/base/memory.h"

/* ---- from a key to an allocation ------------------------------------------------------------ */

struct slot {
	uint64_t key;
	uint32_t file, allocation; /* index + 1; 0: free */
};

struct map {
	struct slot *slots;
	uint32_t capacity, count;
};

static struct slot *find(const struct map *map, uint32_t file, uint64_t key)
{
	uint64_t hash = (key ^ (uint64_t)file << 56) * 0x9e3779b97f4a7c15ull;
	uint32_t i = (uint32_t)(hash >> 32) & (map->capacity - 1);

	while (map->slots[i].allocation && (map->slots[i].key != key || map->slots[i].file != file))
		i = (i + 1) & (map->capacity - 1);
	return &map->slots[i];
}

/* Replaces the value of a key. No key is ever removed. */
static void set(struct map *map, uint32_t file, uint64_t key, uint32_t allocation)
{
	struct slot *slot;

	if (map->count * 2 >= map->capacity) {
		struct map larger = {.capacity = map->capacity ? map->capacity * 2 : 64,
				     .count = map->count};

		larger.slots = allocate((size_t)larger.capacity * sizeof(*larger.slots));
		for (uint32_t i = 0; i < map->capacity; i++)
			if (map->slots[i].allocation)
				*find(&larger, map->slots[i].file, map->slots[i].key) =
					map->slots[i];
		release(map->slots);
		*map = larger;
	}
	slot = find(map, file, key);
	map->count += slot->allocation == 0;
	*slot = (struct slot){key, file, allocation + 1};
}

static bool get(const struct map *map, uint32_t file, uint64_t key, uint32_t *allocation)
{
	struct slot *slot = map->capacity ? find(map, file, key) : NULL;

	if (!slot || !slot->allocation)
		return false;
	*allocation = slot->allocation - 1;
	return true;
}

/* ---- events --------------------------------------------------------------------------------- */

struct making {
	struct uses *uses;
	struct map by_id;   /* by buffer id, which the driver never gives twice */
	struct map by_addr; /* by address of allocations that may still be alive */
	bool *ended;	    /* by allocation */
	unsigned ended_capacity;
	uint64_t alive;
};

static void add_use(struct uses *uses, uint32_t allocation, enum use_kind kind)
{
	uses->uses = grow(uses->uses, &uses->use_capacity, uses->use_count, sizeof(*uses->uses));
	uses->uses[uses->use_count++] = (struct use){allocation, kind};
}

static uint32_t add_allocation(struct making *making, const struct record *record)
{
	struct uses *uses = making->uses;
	uint32_t index = uses->allocation_count++;

	uses->allocations = grow(uses->allocations, &uses->allocation_capacity, index,
				 sizeof(*uses->allocations));
	uses->allocations[index] = (struct allocation){.bytes = record->pin_size};
	making->ended = grow(making->ended, &making->ended_capacity, index, sizeof(bool));
	making->ended[index] = false;
	making->alive += record->pin_size;
	if (making->alive > uses->peak_bytes)
		uses->peak_bytes = making->alive;
	return index;
}

static void end(struct making *making, uint32_t allocation)
{
	if (making->ended[allocation])
		return;
	making->ended[allocation] = true;
	making->alive -= making->uses->allocations[allocation].bytes;
	add_use(making->uses, allocation, USE_END);
}

static void ask_for(struct making *making, const struct event *event)
{
	const struct record *record = &event->record;
	uint32_t file = event->file->index, allocation;

	if (!get(&making->by_id, file, record->buffer_id, &allocation) ||
	    making->ended[allocation]) {
		allocation = add_allocation(making, record);
		set(&making->by_id, file, record->buffer_id, allocation);
	}
	if (record->event == PDN_EV_PIN) {
		struct allocation *pinned = &making->uses->allocations[allocation];
		uint32_t before;

		/* Another allocation has this address now, so the former has ended unseen. */
		if (get(&making->by_addr, file, record->addr, &before) && before != allocation)
			end(making, before);
		set(&making->by_addr, file, record->addr, allocation);
		pinned->pin_ns += event->took;
		pinned->pins++;
	} else {
		making->uses->hits++;
	}
	making->uses->gets++;
	add_use(making->uses, allocation, USE_GET);
}

/*
 * Ends an allocation that the traced run had evicted before its free: then there is no
 * invalidation, only the call.
 */
static void look_at_call(struct making *making, const struct event *event)
{
	const char *name = trace_file_call(event->file, event->record.call);
	uint32_t allocation;

	if (event->record.result == 0 && name && strncmp(name, "cuMemFree", 9) == 0 &&
	    get(&making->by_addr, event->file->index, event->record.addr, &allocation))
		end(making, allocation);
}

static void look_at(struct making *making, const struct event *event)
{
	const struct record *record = &event->record;
	uint32_t allocation;

	switch (record->event) {
	case PDN_EV_PIN:
		if (record->result == 0)
			ask_for(making, event);
		break;
	case PDN_EV_HIT:
		ask_for(making, event);
		break;
	case PDN_EV_INVALIDATE:
		if (get(&making->by_id, event->file->index, record->buffer_id, &allocation))
			end(making, allocation);
		break;
	case PDN_EV_CALL:
		look_at_call(making, event);
		break;
	default:
		break;
	}
}

static void take_means(struct uses *uses)
{
	uint64_t ns = 0, pins = 0;

	for (unsigned i = 0; i < uses->allocation_count; i++) {
		struct allocation *allocation = &uses->allocations[i];

		ns += allocation->pin_ns;
		pins += allocation->pins;
		if (allocation->pins)
			allocation->pin_ns /= allocation->pins;
	}
	uses->mean_ns = pins ? ns / pins : 0;
}

struct uses *uses_make(struct reader *reader)
{
	struct making making = {.uses = allocate(sizeof(struct uses))};
	struct event event;

	while (reader_next(reader, &event))
		look_at(&making, &event);
	take_means(making.uses);
	release(making.by_id.slots);
	release(making.by_addr.slots);
	release(making.ended);
	return making.uses;
}

void uses_free(struct uses *uses)
{
	release(uses->allocations);
	release(uses->uses);
	release(uses);
}
