// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "reader.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "memory.h"
#include "out.h"

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
	unsigned item_count, item_room, item_at;
	/* events that began before the chunk that they lie in, sorted */
	struct early_item *early;
	unsigned early_count, early_room, early_at;
	uint64_t last_end; /* of the chunk before, in ticks */
	unsigned hint;
	uint64_t head; /* when its next event began, in ns since the reader's start */
	bool head_early;
	uint64_t early_words[PD_RECORD_MOST_WORDS];
};

struct reader {
	struct trace_file **files;
	unsigned file_count, file_room;
	char **names;
	unsigned name_count, name_room;
	struct stream *streams;
	unsigned stream_count, stream_room;
	struct stream **heap; /* by head, the first is the least */
	unsigned heap_count;
	unsigned lost_file; /* events lost at places unknown are told at the end, file by file */
	uint64_t start, span, last_ts;
	bool damaged;		       /* there was a file that is none of `files` */
	bool ended;		       /* looked for again, there was nothing any more */
	char text[PD_ERROR_MOST_TEXT]; /* of the last event */
};

/* ---- one stream ----------------------------------------------------------------------------- */

/* What is done with each event of a chunk while looking through it. */
typedef void visit(struct stream *stream, uint32_t chunk, const struct item *item);

static void remember_early(struct stream *stream, uint32_t chunk, const struct item *item)
{
	if (item->begin >= stream->last_end)
		return;
	stream->early = grow(stream->early, &stream->early_room, stream->early_count,
			     sizeof(*stream->early));
	stream->early[stream->early_count++] = (struct early_item){*item, chunk};
}

static void keep_item(struct stream *stream, uint32_t chunk, const struct item *item)
{
	(void)chunk;
	if (item->begin < stream->last_end)
		return; /* it is in the other list */
	stream->items[stream->item_count++] = *item;
}

/* Reads a chunk and visits its events; stream->last_end is then the end of its last one. */
static void look_through(struct stream *stream, uint32_t index, char *data, visit *visit)
{
	const struct chunk *chunk = &stream->file->chunks[index];
	uint64_t base = chunk->base, last_end = stream->last_end;
	struct item item = {.tid = chunk->tid};

	if (!trace_file_read(stream->file, data, chunk->used, chunk->offset)) {
		trace_file_unread(stream->file, chunk->offset);
		return;
	}
	for (uint32_t at = sizeof(struct pd_trace_chunk); at < chunk->used;) {
		const uint64_t *words = (const uint64_t *)(const void *)(data + at);
		unsigned length = record_words(words[0]), type = record_type(words[0]);
		uint64_t end;

		/* Checked when the file was opened; but it may be written to by anyone. */
		if (record_check(words, (chunk->used - at) / 8))
			break;
		if (record_is_event(words[0]) && at < chunk->seen) {
			end = base + record_when(words[0]);
			last_end = end > last_end && type != PD_RECORD_LOST ? end : last_end;
		} else if (record_is_event(words[0])) {
			end = base + record_when(words[0]);
			if (type == PD_RECORD_LOST && last_end) /* just after what came before it */
				end = last_end;
			if (end > last_end)
				last_end = end;
			item.begin = end - record_taken(words);
			if (item.begin > end)
				item.begin = 0;
			item.offset = at;
			visit(stream, index, &item);
		} else if (type == PD_RECORD_CLOCK) {
			base = words[1];
		} else if (type == PD_RECORD_THREAD) {
			item.tid = (uint32_t)words[1];
		}
		at += length * 8;
	}
	stream->last_end = last_end;
}

static int compare_items(const void *a, const void *b)
{
	const struct item *one = a, *other = b;

	if (one->begin != other->begin)
		return one->begin < other->begin ? -1 : 1;
	/* Of two that began together the outer one ended later, so it lies behind. */
	return one->offset > other->offset ? -1 : 1;
}

static int compare_early(const void *a, const void *b)
{
	const struct early_item *one = a, *other = b;

	if (one->item.begin != other->item.begin)
		return one->item.begin < other->item.begin ? -1 : 1;
	if (one->chunk != other->chunk)
		return one->chunk > other->chunk ? -1 : 1;
	return one->item.offset > other->item.offset ? -1 : 1;
}

static bool is_sorted(const struct item *items, unsigned count)
{
	for (unsigned i = 1; i < count; i++)
		if (compare_items(&items[i - 1], &items[i]) > 0)
			return false;
	return true;
}

/* The next chunk that has anything, into memory. */
static bool next_chunk(struct stream *stream)
{
	while (stream->item_at == stream->item_count) {
		const struct chunk *chunk;

		if (stream->next_chunk == stream->end_chunk) {
			release(stream->data);
			release(stream->items);
			stream->data = NULL;
			stream->items = NULL;
			stream->item_room = 0;
			return false;
		}
		chunk = &stream->file->chunks[stream->next_chunk];
		release(stream->data);
		stream->data = allocate(chunk->used);
		if (chunk->used / 16 > stream->item_room) {
			release(stream->items);
			stream->item_room = chunk->used / 16; /* no event is shorter */
			stream->items = allocate(stream->item_room * sizeof(*stream->items));
		}
		stream->item_at = stream->item_count = 0;
		look_through(stream, stream->next_chunk++, stream->data, keep_item);
		if (!is_sorted(stream->items, stream->item_count))
			sort(stream->items, stream->item_count, sizeof(*stream->items),
			     compare_items);
	}
	return true;
}

static uint64_t since_start(const struct reader *reader, const struct trace_file *file, uint64_t ns)
{
	int64_t since = (int64_t)(ns + (uint64_t)file->shift - reader->start);

	return since > 0 ? (uint64_t)since : 0;
}

/* Finds out what comes next; false at the end. */
static bool settle_head(const struct reader *reader, struct stream *stream)
{
	bool more = next_chunk(stream), early = stream->early_at < stream->early_count;
	uint64_t ticks;

	if (!more && !early)
		return false;
	stream->head_early = early && (!more || stream->early[stream->early_at].item.begin <=
							stream->items[stream->item_at].begin);
	ticks = stream->head_early ? stream->early[stream->early_at].item.begin
				   : stream->items[stream->item_at].begin;
	stream->head = since_start(reader, stream->file,
				   trace_file_ns(stream->file, ticks, &stream->hint));
	return true;
}

/* Its record's words; NULL when the file no longer has them. */
static const uint64_t *take_early(struct stream *stream, struct item *item)
{
	const struct early_item *early = &stream->early[stream->early_at++];
	const struct chunk *chunk = &stream->file->chunks[early->chunk];
	uint32_t bytes = chunk->used - early->item.offset;

	*item = early->item;
	if (bytes > sizeof(stream->early_words))
		bytes = sizeof(stream->early_words);
	if (!trace_file_read(stream->file, stream->early_words, bytes,
			     chunk->offset + item->offset)) {
		trace_file_unread(stream->file, chunk->offset + item->offset);
		return NULL;
	}
	if (record_check(stream->early_words, bytes / 8) ||
	    !record_is_event(stream->early_words[0]))
		return NULL;
	return stream->early_words;
}

static const uint64_t *take_head(struct stream *stream, struct item *item)
{
	if (stream->head_early)
		return take_early(stream, item);
	*item = stream->items[stream->item_at++];
	return (const uint64_t *)(const void *)(stream->data + item->offset);
}

/* ---- the heap of streams -------------------------------------------------------------------- */

static void sift_down(struct reader *reader, unsigned i)
{
	struct stream **heap = reader->heap, *moved = heap[i];

	for (;;) {
		unsigned child = 2 * i + 1;

		if (child >= reader->heap_count)
			break;
		if (child + 1 < reader->heap_count && heap[child + 1]->head < heap[child]->head)
			child++;
		if (moved->head <= heap[child]->head)
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = moved;
}

static void advance(struct reader *reader)
{
	if (!settle_head(reader, reader->heap[0]))
		reader->heap[0] = reader->heap[--reader->heap_count];
	if (reader->heap_count)
		sift_down(reader, 0);
}

/* ---- opening -------------------------------------------------------------------------------- */

static void add_streams(struct reader *reader, struct trace_file *file)
{
	for (uint32_t i = 0; i < file->chunk_count; i++) {
		struct stream *stream;

		if (i && file->chunks[i].stream == file->chunks[i - 1].stream) {
			reader->streams[reader->stream_count - 1].end_chunk = i + 1;
			continue;
		}
		reader->streams = grow(reader->streams, &reader->stream_room, reader->stream_count,
				       sizeof(*reader->streams));
		stream = &reader->streams[reader->stream_count++];
		memset(stream, 0, sizeof(*stream));
		stream->file = file;
		stream->next_chunk = i;
		stream->end_chunk = i + 1;
	}
}

static void find_early(struct stream *stream)
{
	char *buffer = allocate(stream->file->largest_chunk);

	for (uint32_t i = stream->next_chunk; i < stream->end_chunk; i++)
		look_through(stream, i, buffer, remember_early);
	release(buffer);
	stream->last_end = 0;
	sort(stream->early, stream->early_count, sizeof(*stream->early), compare_early);
}

/*
 * Processes of one machine share CLOCK_MONOTONIC; between machines, and across a restart, only the
 * time of day tells.
 */
static bool same_clock(const struct trace_file *a, const struct trace_file *b)
{
	int64_t one = (int64_t)(a->header.begin.realtime - a->header.begin.monotonic),
		other = (int64_t)(b->header.begin.realtime - b->header.begin.monotonic);

	return strcmp(a->host, b->host) == 0 && llabs(one - other) < 5000000000ll;
}

static void align_clocks(struct reader *reader)
{
	reader->start = UINT64_MAX;
	for (unsigned i = 0; i < reader->file_count; i++) {
		struct trace_file *file = reader->files[i], *first = reader->files[0];

		if (!same_clock(file, first))
			file->shift = (int64_t)(file->header.begin.realtime -
						file->header.begin.monotonic -
						first->header.begin.realtime +
						first->header.begin.monotonic);
		if (file->first_ns + (uint64_t)file->shift < reader->start)
			reader->start = file->first_ns + (uint64_t)file->shift;
	}
	for (unsigned i = 0; i < reader->file_count; i++) {
		struct trace_file *file = reader->files[i];
		unsigned hint = 0;
		uint64_t last =
			since_start(reader, file, trace_file_ns(file, file->last_ticks, &hint));

		if (last > reader->span)
			reader->span = last;
	}
}

static const struct trace_file *same_file(const struct reader *reader, const char *name)
{
	for (unsigned i = 0; i < reader->file_count; i++)
		if (strcmp(reader->files[i]->name, name) == 0)
			return reader->files[i];
	return NULL;
}

static const struct chunk *same_chunk(const struct trace_file *file, const struct chunk *like)
{
	for (unsigned i = 0; i < file->chunk_count; i++)
		if (file->chunks[i].offset == like->offset)
			return &file->chunks[i];
	return NULL;
}

/* Chunks are sorted by stream, and new ones come last: mostly they are at the same place. */
static void skip_chunks(struct trace_file *file, const struct trace_file *old)
{
	for (unsigned i = 0; i < file->chunk_count; i++) {
		struct chunk *chunk = &file->chunks[i];
		const struct chunk *known =
			i < old->chunk_count && old->chunks[i].offset == chunk->offset
				? &old->chunks[i]
				: same_chunk(old, chunk);

		if (known)
			chunk->seen = known->used;
	}
}

static void skip_what_was_seen(struct reader *reader, const struct reader *before)
{
	reader->start = before->start;
	reader->last_ts = before->last_ts;
	for (unsigned i = 0; i < reader->file_count; i++) {
		struct trace_file *file = reader->files[i];
		const struct trace_file *old = same_file(before, file->name);

		if (!old)
			continue;
		skip_chunks(file, old);
		file->lost_told = old->lost_untold;
	}
}

/* One descriptor for each process of a job may be more than is usual. */
static void allow_many_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static void open_files(struct reader *reader, char *const *names, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (!family_find(names[i], &reader->names, &reader->name_count, &reader->name_room))
			reader->damaged = true;
	if (reader->name_count > 100)
		allow_many_files();
	for (unsigned i = 0; i < reader->name_count; i++) {
		struct trace_file *file = trace_file_open(reader->names[i]);

		if (!file) {
			reader->damaged = true;
			continue;
		}
		reader->files = grow(reader->files, &reader->file_room, reader->file_count,
				     sizeof(struct trace_file *));
		file->index = reader->file_count;
		reader->files[reader->file_count++] = file;
	}
}

static struct reader *open_reader(char *const *names, unsigned count, const struct reader *before)
{
	struct reader *reader = allocate(sizeof(*reader));

	open_files(reader, names, count);
	if (!reader->file_count) {
		reader_close(reader);
		return NULL;
	}
	align_clocks(reader);
	if (before)
		skip_what_was_seen(reader, before);
	for (unsigned i = 0; i < reader->file_count; i++)
		add_streams(reader, reader->files[i]);
	reader->heap = allocate((reader->stream_count + 1) * sizeof(struct stream *));
	for (unsigned i = 0; i < reader->stream_count; i++) {
		find_early(&reader->streams[i]);
		if (settle_head(reader, &reader->streams[i]))
			reader->heap[reader->heap_count++] = &reader->streams[i];
	}
	for (unsigned i = reader->heap_count / 2; i-- > 0;)
		sift_down(reader, i);
	return reader;
}

struct reader *reader_open(char *const *names, unsigned count)
{
	return open_reader(names, count, NULL);
}

struct reader *reader_again(struct reader *reader, char *const *names, unsigned count)
{
	struct reader *again = reader->ended ? reader : open_reader(names, count, reader);

	if (again == reader)
		return reader;
	if (!again) {
		reader->ended = reader->damaged = true;
		return reader;
	}
	reader_close(reader);
	return again;
}

/* A number may have been given to another process since; then we wait for that one's end. */
bool reader_grows(const struct reader *reader)
{
	for (unsigned i = 0; i < reader->file_count; i++) {
		const struct trace_file *file = reader->files[i];

		if (!reader->ended && !file->header.end.ticks && access(file->name, F_OK) == 0 &&
		    (kill((pid_t)file->header.pid, 0) == 0 || errno == EPERM))
			return true;
	}
	return false;
}

void reader_close(struct reader *reader)
{
	for (unsigned i = 0; i < reader->file_count; i++)
		trace_file_close(reader->files[i]);
	for (unsigned i = 0; i < reader->name_count; i++)
		release(reader->names[i]);
	for (unsigned i = 0; i < reader->stream_count; i++) {
		release(reader->streams[i].data);
		release(reader->streams[i].items);
		release(reader->streams[i].early);
	}
	release(reader->files);
	release(reader->names);
	release(reader->streams);
	release(reader->heap);
	release(reader);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Events that were lost where no record could be written: at the end, as one event a file. */
static bool next_lost(struct reader *reader, struct event *event)
{
	while (reader->lost_file < reader->file_count) {
		const struct trace_file *file = reader->files[reader->lost_file++];

		if (file->lost_untold <= file->lost_told)
			continue;
		memset(event, 0, sizeof(*event));
		event->ts = reader->last_ts;
		event->file = file;
		event->record.event = PD_EV_LOST;
		event->record.device = -1;
		event->record.lost = file->lost_untold - file->lost_told;
		return true;
	}
	return false;
}

bool reader_next(struct reader *reader, struct event *event)
{
	while (reader->heap_count) {
		struct stream *stream = reader->heap[0];
		const uint64_t *words;
		struct item item;

		event->ts = stream->head;
		event->file = stream->file;
		words = take_head(stream, &item);
		if (words) {
			uint64_t begin = trace_file_ns(stream->file, item.begin, &stream->hint),
				 end;

			record_decode(words, &event->record);
			event->tid = item.tid;
			end = trace_file_ns(stream->file, item.begin + event->record.taken,
					    &stream->hint);
			event->took = end > begin ? end - begin : 0;
			reader->last_ts = event->ts;
		}
		if (words && event->record.text) /* its chunk may go now */
			event->record.text =
				memcpy(reader->text, event->record.text, event->record.text_length);
		advance(reader);
		if (words)
			return true;
	}
	return next_lost(reader, event);
}

unsigned reader_files(const struct reader *reader)
{
	return reader->file_count;
}

const struct trace_file *reader_file(const struct reader *reader, unsigned i)
{
	return reader->files[i];
}

bool reader_damaged(const struct reader *reader)
{
	bool damaged = reader->damaged;

	for (unsigned i = 0; i < reader->file_count; i++)
		damaged |= reader->files[i]->damaged;
	return damaged;
}

uint64_t reader_span(const struct reader *reader)
{
	return reader->span;
}

bool reader_note(const struct trace_file *file, char *text, size_t room)
{
	if (file->cut)
		snprintf(text, room, "%s is cut short: it has %llu bytes of %llu", file->name,
			 (unsigned long long)file->bytes,
			 (unsigned long long)file->header.units * PD_TRACE_UNIT);
	else if (!file->header.end.ticks)
		snprintf(text, room,
			 "%s has no end mark: process %u was killed, left by _exit, or still runs",
			 file->name, file->header.pid);
	else
		return false;
	return true;
}

void reader_complain(const struct reader *reader)
{
	char text[5000];

	for (unsigned i = 0; i < reader->file_count; i++)
		if (reader_note(reader->files[i], text, sizeof(text)))
			complain("%s", text);
}
