/* SPDX-License-Identifier: MIT */
/* How much memory was pinned, and where, over time: data for pictures. */
#ifndef HISTORY_H
#define HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/trace/regions.h"

/*
 * Bytes of the allocations; bytes of BAR1 that their pins take, in whole pages; regions; bytes that
 * are still pinned after their free.
 */
enum history_series { SERIES_BYTES, SERIES_BAR, SERIES_REGIONS, SERIES_KEPT, SERIES };

/* The life of a region, for the map of addresses. */
struct life {
	uint64_t addr, size;
	uint64_t from, to; /* ns */
	uint64_t freed_at; /* UINT64_MAX: not freed while pinned */
};

enum { MAX_LIVES = 1000000 };

struct history {
	unsigned columns, column;
	uint64_t span;
	uint64_t now[SERIES];
	uint64_t *max[SERIES]; /* maximum in each of `columns` equal parts of `span` */
	struct life *lives;
	unsigned life_count, life_capacity;
	bool cut; /* there were more than MAX_LIVES */
};

void history_begin(struct history *history, unsigned columns, uint64_t span);
void history_pin(struct history *history, const struct region *region);
void history_freed(struct history *history, const struct region *region);
void history_unpin(struct history *history, const struct region *region, uint64_t ts);
/* Adds the regions that are still pinned at the end. */
void history_end(struct history *history, const struct regions *left);
void history_free(struct history *history);

#endif
