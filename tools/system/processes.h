/* SPDX-License-Identifier: MIT */
/* The processes that run under the library, by the pages that they publish (cache/top/format.h). */
#ifndef PAGES_H
#define PAGES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cache/top/format.h"

struct process {
	uint32_t pid;
	uint64_t start;
	uid_t user;
	char command[64];
	struct pindown_stats stats; /* hits, misses and tag_checks are whole here */
	uint64_t device_bytes[PD_LIVE_DEVICES];
	uint64_t began;
	bool traced;
	/* Kept by who follows it: what was there at the last look, and when (ns). */
	struct pindown_stats before;
	uint64_t seen_at, seen_before;
};

struct processes {
	struct process *list;
	unsigned count, capacity;
};

/*
 * Looks at all of them, in the order of their numbers. A process that was there in `*all` before keeps
 * what is known of it. Pages that killed processes have left are removed, as far as one may.
 */
void processes_read(struct processes *all);
void processes_free(struct processes *all);

#endif
