/* SPDX-License-Identifier: MIT */
/*
 * The events of one thread in one file, by when they began: those of a chunk are sorted when the chunk is
 * read, those that began before their chunk come from a list beside.
 */
#ifndef STREAM_H
#define STREAM_H

#include "tools/trace/record.h"
#include "tools/trace/file.h"

/* An event that is to come. */
struct item {
	uint64_t begin;	 /* ticks */
	uint32_t offset; /* of its record in the chunk */
	uint32_t tid;
};

struct early_item {
	struct item item;
	uint32_t chunk; /* index in the file */
};

/* One thread's events, chunk after chunk. */
struct stream {
	struct trace_file *file;
	uint32_t next_chunk, end_chunk; /* indexes in the file */
	/* the chunk in memory, sorted */
	char *data;
	struct item *items;
	unsigned item_count, item_capacity, item_at;
	/* events that began before the chunk that they lie in, sorted */
	struct early_item *early;
	unsigned early_count, early_capacity, early_at;
	uint64_t last_end; /* of the chunk before, in ticks */
	unsigned hint;
	uint64_t head; /* when its next event began, in ns since the reader's start */
	bool head_early;
	uint64_t early_words[PD_RECORD_MOST_WORDS];
};

/* Once, before all else: a look through its chunks, for the events that began before theirs. */
void stream_find_early(struct stream *stream);
/* Finds out what comes next, and when: stream->head; false at the end. */
bool stream_settle(struct stream *stream, uint64_t start);
/* Takes it: its record's words, good until the next is settled; NULL when the file no longer has them. */
const uint64_t *stream_take(struct stream *stream, struct item *item);
void stream_close(struct stream *stream);

/* ns since the reader's start. */
uint64_t since_start(const struct trace_file *file, uint64_t ns, uint64_t start);

#endif
