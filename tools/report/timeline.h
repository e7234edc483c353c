/* SPDX-License-Identifier: MIT */
/* A quantity over time: its maximum in each of `columns` equal parts of the time. */
#ifndef TIMELINE_H
#define TIMELINE_H

#include <stdint.h>

struct timeline {
	unsigned columns, column; /* columns 0: nothing is collected */
	uint64_t span, now;
	uint64_t *max;
};

void timeline_begin(struct timeline *timeline, unsigned columns, uint64_t span);
/* The quantity changes; times don't decrease. Call it at the end of the span, too. */
void timeline_set(struct timeline *timeline, uint64_t ts, uint64_t now);
void timeline_free(struct timeline *timeline);

#endif
