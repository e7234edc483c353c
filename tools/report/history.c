// SPDX-License-Identifier: MIT
/* Collects the pinned bytes over time and the lives of regions, for pictures. */
#include "tools/report/history.h"

#include <stdlib.h>

#include "tools/base/memory.h"

/* NULL: there is no such view. */
static struct view *history_view(const struct history *history, int64_t file, int64_t device)
{
	for (unsigned i = 0; i < history->view_count; i++)
		if (history->views[i].file == file && history->views[i].device == device)
			return &history->views[i];
	return NULL;
}

static void add_view(struct history *history, int64_t file, int64_t device)
{
	struct view *view;

	history->views = grow(history->views, &history->view_capacity, history->view_count,
			      sizeof(*history->views));
	view = &history->views[history->view_count++];
	*view = (struct view){.file = file, .device = device};
	for (unsigned i = 0; i < SERIES; i++)
		view->max[i] = allocate(history->columns * sizeof(uint64_t));
}

void history_begin(struct history *history, unsigned columns, uint64_t span, unsigned files)
{
	history->columns = columns;
	history->span = span;
	history->process_count = files;
	history->processes = allocate((files + 1) * sizeof(*history->processes));
	add_view(history, EVERY, EVERY);
}

/* The views of a region's process and device, made at its first pin if there is space. */
static void add_views_of(struct history *history, const struct region *region)
{
	if (!history_view(history, EVERY, region->device))
		add_view(history, EVERY, region->device);
	if (!history_view(history, region->file, EVERY)) {
		if (history->viewed == MAX_VIEWED)
			return;
		history->viewed++;
		add_view(history, region->file, EVERY);
	}
	if (!history_view(history, region->file, region->device))
		add_view(history, region->file, region->device);
}

static void note_max(struct view *view)
{
	for (unsigned i = 0; i < SERIES; i++)
		if (view->now[i] > view->max[i][view->column])
			view->max[i][view->column] = view->now[i];
}

/* Advances to the column of `ts`, filling those in which nothing changed. */
static void advance(const struct history *history, struct view *view, uint64_t ts)
{
	uint64_t column =
		history->span ? (uint64_t)((__uint128_t)ts * history->columns / history->span) : 0;

	if (column >= history->columns)
		column = history->columns - 1;
	note_max(view);
	while (view->column < column) {
		view->column++;
		note_max(view);
	}
}

/* Adds to the series of each view that shows the region; `change` is taken as signed. */
static void add(const struct history *history, const struct region *region, uint64_t ts,
		const uint64_t change[SERIES])
{
	const int64_t shows[][2] = {{EVERY, EVERY},
				    {EVERY, region->device},
				    {region->file, EVERY},
				    {region->file, region->device}};

	for (unsigned i = 0; i < sizeof(shows) / sizeof(shows[0]); i++) {
		struct view *view = history_view(history, shows[i][0], shows[i][1]);

		if (!view)
			continue;
		advance(history, view, ts);
		for (unsigned j = 0; j < SERIES; j++)
			view->now[j] += change[j];
		note_max(view);
	}
}

void history_pin(struct history *history, const struct region *region)
{
	struct process_peak *process = &history->processes[region->file];

	add_views_of(history, region);
	add(history, region, region->pinned_at,
	    (uint64_t[SERIES]){[SERIES_BYTES] = region->size,
			       [SERIES_BAR] = region->pin_size,
			       [SERIES_REGIONS] = 1});
	process->now += region->pin_size;
	if (process->now > process->peak)
		process->peak = process->now;
}

void history_freed(struct history *history, const struct region *region)
{
	add(history, region, region->freed_at,
	    (uint64_t[SERIES]){[SERIES_KEPT] = region->pin_size});
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
		(struct life){region->addr,
			      region->size,
			      region->pinned_at,
			      to,
			      region->freed ? region->freed_at : UINT64_MAX,
			      region->file,
			      region->device};
}

void history_unpin(struct history *history, const struct region *region, uint64_t ts)
{
	add(history, region, ts,
	    (uint64_t[SERIES]){[SERIES_BYTES] = -region->size,
			       [SERIES_BAR] = -region->pin_size,
			       [SERIES_REGIONS] = -1ull,
			       [SERIES_KEPT] = region->freed ? -region->pin_size : 0});
	history->processes[region->file].now -= region->pin_size;
	add_life(history, region, ts);
}

void history_end(struct history *history, const struct regions *left)
{
	for (unsigned i = 0; i < history->view_count; i++)
		advance(history, &history->views[i], history->span);
	for (uint32_t i = 0; i < left->capacity; i++)
		if (left->slots[i].used)
			add_life(history, &left->slots[i], history->span);
}

void history_free(struct history *history)
{
	for (unsigned i = 0; i < history->view_count; i++)
		for (unsigned j = 0; j < SERIES; j++)
			release(history->views[i].max[j]);
	release(history->views);
	release(history->processes);
	release(history->lives);
}
