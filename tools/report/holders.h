/* SPDX-License-Identifier: MIT */
/*
 * Who kept memory that was freed, as far as a trace tells: registrations that the program held, and
 * dma-bufs that it, or middleware in it, had made itself.
 */
#ifndef HOLDERS_H
#define HOLDERS_H

#include "tools/trace/reader.h"

/* A dma-buf of the program's own, when it was made. */
struct export
{
	uint32_t file, number; /* these two name it */
	uint32_t tid, stack;
	uint64_t ts, addr, size;
};

/* One whose memory ended before it. */
struct outlived {
	struct export made; /* ts 0 and tid 0: that it was made is not in the trace */
	uint64_t ts, addr, size, fd;
	uint32_t tid;
	bool open, imported;
};

struct consumer {
	char name[PD_ERROR_MOST_TEXT + 1];
	uint64_t made, failed, destroyed, revoked;
	uint64_t held, held_regions, held_bytes; /* when their memory ended */
};

enum { MAX_OUTLIVED = 10000, MAX_CONSUMERS = 200 };

struct holders {
	struct export *exports;
	unsigned export_count, export_capacity;
	struct outlived *outlived;
	unsigned outlived_count, outlived_capacity;
	uint64_t outlived_all, outlived_bytes; /* also those that are not listed */
	uint64_t outlived_ordered;	       /* not among them: freed in stream order */
	struct consumer *consumers;
	unsigned consumer_count, consumer_capacity;
	uint64_t held, held_bytes;
	uint64_t held_ordered; /* not among them: when their memory was freed in stream order */
};

void holders_count(struct holders *holders, const struct event *event);
void holders_settle(struct holders *holders); /* after the last event */
void holders_free(struct holders *holders);

/* Their parts of the report; lists end after `max` lines. */
void holders_print(const struct holders *holders, const struct reader *reader, unsigned max);

#endif
