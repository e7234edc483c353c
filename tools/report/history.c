// SPDX-License-Identifier: MIT
/* Collects the pinned bytes over time and the lives of regions, for pictures. */
#include "tools/report/history.h"

#include <stdlib.h>

#include "tools/base/memory.h"

void history_begin(struct history *history, unsigned columns, uint64_t span)
{
	history->columns = columns;
	history->span = span;
	for (unsigned i = 0; i < SERIES; i++)
		history->max[i] = allocate(columns * sizeof(uint64_t));
}

static void note_max(struct history *history)
{
	for (unsigned i = 0; i < SERIES; i++)
		if (history->now[i] > history->max[i][history->column])
			history->max[i][history->column] = history->now[i];
}

/* Advances to the column of `ts`, filling those in which nothing changed. */
static void advance(struct history *history, uint64_t ts)
{
	uint64_t column =
		history->span ? (uint64_t)((__uint128_t)ts * history->columns / history->span) : 0;

	if (column >= history->columns)
		column = history->columns - 1;
	note_max(history);
	while (history->column < column) {
		history->column++;
		note_max(history);
	}
}

void history_pin(struct history *history, const struct region *region)
{
	advance(history, region->pinned_at);
	history->now[SERIES_BYTES] += region->size;
	history->now[SERIES_BAR] += region->pin_size;
	history->now[SERIES_REGIONS]++;
	note_max(history);
}

void history_freed(struct history *history, const struct region *region)
{
	advance(history, region->freed_at);
	history->now[SERIES_KEPT] += region->pin_size;
	note_max(history);
}

static void add_life(struct history *history, const struct region *region, uint64_t to)
{
	if (history->life_count == MAX_LIVES) {
		history->cut = true;
		return;
	}
	history->lives = grow(history->lives, &history->life_capacity, history->life_count,
			      sizeof(*history->lives));
	history->lives[history->life_count++] =
		(struct life){region->addr, region->size, region->pinned_at, to,
			      region->freed ? region->freed_at : UINT64_MAX};
}

void history_unpin(struct history *history, const struct region *region, uint64_t ts)
{
	advance(history, ts);
	history->now[SERIES_BYTES] -= region->size;
	history->now[SERIES_BAR] -= region->pin_size;
	history->now[SERIES_REGIONS]--;
	if (region->freed)
		history->now[SERIES_KEPT] -= region->pin_size;
	add_life(history, region, ts);
}

void history_end(struct history *history, const struct regions *left)
{
	advance(history, history->span);
	for (uint32_t i = 0; i < left->capacity; i++)
		if (left->slots[i].used)
			add_life(history, &left->slots[i], history->span);
}

void history_free(struct history *history)
{
	for (unsigned i = 0; i < SERIES; i++)
		release(history->max[i]);
	release(history->lives);
}
