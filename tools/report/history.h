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

/* The same for all, for a process, for a device, or for a process on a device. */
struct view {
	int64_t file,
		device; /* EVERY, or the index of a file; the number of a device, -1: unknown */
	unsigned column;
	uint64_t now[SERIES];
	uint64_t *max[SERIES]; /* maximum in each of `columns` equal parts of `span` */
};
enum { EVERY = -2 };

/* A process by itself, for the table of processes. */
struct process_peak {
	uint64_t now, peak; /* pinned bytes */
};

/* The life of a region, for the map of addresses. */
struct life {
	uint64_t addr, size;
	uint64_t from, to; /* ns */
	uint64_t freed_at; /* UINT64_MAX: not freed while pinned */
	uint32_t file;
	int16_t device;
};

enum { MAX_LIVES = 100000, MAX_VIEWED = 32 /* processes with views of their own */ };

struct history {
	unsigned columns; /* 0: nothing is collected */
	uint64_t span;
	struct view *views; /* the first is that of everything */
	unsigned view_count, view_capacity;
	unsigned viewed;		/* processes with views of their own */
	struct process_peak *processes; /* by file */
	unsigned process_count;
	struct life *lives;
	unsigned life_count, life_capacity;
	bool cut; /* there were more than MAX_LIVES */
};

void history_begin(struct history *history, unsigned columns, uint64_t span, unsigned files);
void history_pin(struct history *history, const struct region *region);
void history_freed(struct history *history, const struct region *region);
void history_unpin(struct history *history, const struct region *region, uint64_t ts);
/* Adds the regions that are still pinned at the end. */
void history_end(struct history *history, const struct regions *left);
void history_free(struct history *history);

#endif
