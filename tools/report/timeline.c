// SPDX-License-Identifier: MIT
/* Collects the maximum of a quantity in each part of the time. */
#include "tools/report/timeline.h"

#include "tools/base/memory.h"

void timeline_begin(struct timeline *timeline, unsigned columns, uint64_t span)
{
	*timeline = (struct timeline){.columns = columns, .span = span};
	timeline->max = allocate((columns + 1) * sizeof(*timeline->max));
}

static void note_max(struct timeline *timeline)
{
	if (timeline->now > timeline->max[timeline->column])
		timeline->max[timeline->column] = timeline->now;
}

void timeline_set(struct timeline *timeline, uint64_t ts, uint64_t now)
{
	uint64_t column;

	if (!timeline->columns)
		return;
	column = timeline->span ? (uint64_t)((__uint128_t)ts * timeline->columns / timeline->span)
				: 0;
	if (column >= timeline->columns)
		column = timeline->columns - 1;
	while (timeline->column < column) {
		timeline->column++;
		note_max(timeline);
	}
	timeline->now = now;
	note_max(timeline);
}

void timeline_free(struct timeline *timeline)
{
	release(timeline->max);
}
