/* SPDX-License-Identifier: MIT */
/*
 * The events of one thread in one file, in the order of their begin. The events of a chunk are
 * sorted when the chunk is read; events that began before their chunk come from a separate list.
 */
#ifndef STREAM_H
#define STREAM_H

#include "tools/trace/record.h"
#include "tools/trace/file.h"

/* An event that was not returned yet. */
struct item {
	uint64_t begin;	 /* ticks */
	uint32_t offset; /* of its record in the chunk */
	uint32_t tid;
	uint32_t first; /* in the chunk, by number: the first event within it, or itself */
	bool lasts;	/* it ended in a later tick than it began */
};

struct early_item {
	struct item item;
	uint32_t chunk; /* index in the file */
};

/* One thread's events, chunk after chunk. */
struct stream {
	struct trace_file *file;
	uint32_t next_chunk, end_chunk; /* indexes in the file */
	/* the chunk in memory and its events, sorted */
	char *data;
	struct item *items;
	unsigned item_count, item_capacity, item_at;
	/* events that began before their chunk, sorted */
	struct early_item *early;
	unsigned early_count, early_capacity, early_at;
	uint64_t last_end; /* of the chunk before, in ticks */
	unsigned hint;
	uint64_t head; /* when its next event began, in ns since the reader's start */
	bool head_early;
	uint64_t early_words[PDN_RECORD_MAX_WORDS];
};

/* Finds the events that began before their chunk. Call it once, before the other functions. */
void stream_find_early(struct stream *stream);
/* Finds the next event and sets stream->head to its begin; false at the end. */
bool stream_find_head(struct stream *stream, uint64_t start);
/*
 * Returns the words of its record, good until the next stream_find_head(); NULL when the file no
 * longer has them.
 */
const uint64_t *stream_take(struct stream *stream, struct item *item);
void stream_close(struct stream *stream);

/* ns since the reader's start. */
uint64_t since_start(const struct trace_file *file, uint64_t ns, uint64_t start);

#endif
