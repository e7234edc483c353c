/* SPDX-License-Identifier: MIT */
/* How much was pinned when, and where: for pictures. */
#ifndef HISTORY_H
#define HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/trace/regions.h"

/* Bytes of the allocations; bytes that their pins take, in whole pages, of BAR1; regions; bytes that
 * are pinned though they were freed. */
enum history_series { SERIES_BYTES, SERIES_BAR, SERIES_REGIONS, SERIES_KEPT, SERIES };

/* A region's life; for the map of addresses. */
struct life {
	uint64_t addr, size;
	uint64_t from, to; /* ns */
	uint64_t freed_at; /* UINT64_MAX: it was not freed while it was pinned */
};

enum { MAX_LIVES = 1000000 };

struct history {
	unsigned columns, column;
	uint64_t span;
	uint64_t now[SERIES];
	uint64_t *max[SERIES]; /* in each of `columns` equal parts of `span` */
	struct life *lives;
	unsigned life_count, life_capacity;
	bool cut; /* there were more */
};

void history_begin(struct history *history, unsigned columns, uint64_t span);
void history_pin(struct history *history, const struct region *region);
void history_freed(struct history *history, const struct region *region);
void history_unpin(struct history *history, const struct region *region, uint64_t ts);
/* The regions that are left are still there at the end. */
void history_end(struct history *history, const struct regions *left);
void history_free(struct history *history);

#endif
