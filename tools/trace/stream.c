// SPDX-License-Identifier: MIT
/* Reads the chunks of one stream and puts its events into the order of their begin. */
#include "tools/trace/stream.h"

#include "tools/base/memory.h"

/* Called for each event of a chunk. */
typedef void visit(struct stream *stream, uint32_t chunk, const struct item *item);

static void remember_early(struct stream *stream, uint32_t chunk, const struct item *item)
{
	if (item->begin >= stream->last_end)
		return;
	stream->early = grow(stream->early, &stream->early_capacity, stream->early_count,
			     sizeof(*stream->early));
	stream->early[stream->early_count++] = (struct early_item){*item, chunk};
}

/*
 * A record is written when its event ends. So those written just before it that did not begin
 * earlier are within it. Where a tick of the clock is long (40 ns on some processors for arm64),
 * events may begin in one tick; then those are within it if it lasts longer than the tick, and
 * before it if not.
 */
static uint32_t first_within(const struct stream *stream, const struct item *item)
{
	uint32_t first = stream->item_count;

	while (first) {
		const struct item *before = &stream->items[first - 1];

		if (before->begin < item->begin || (before->begin == item->begin && !item->lasts))
			break;
		first = before->first;
	}
	return first;
}

static void keep_item(struct stream *stream, uint32_t chunk, const struct item *item)
{
	(void)chunk;
	if (item->begin < stream->last_end)
		return; /* remember_early() has it */
	stream->items[stream->item_count] = *item;
	stream->items[stream->item_count].first = first_within(stream, item);
	stream->item_count++;
}

/* Reads a chunk and visits its events; sets stream->last_end to the latest end. */
static void look_through(struct stream *stream, uint32_t index, char *data, visit *visit)
{
	const struct chunk *chunk = &stream->file->chunks[index];
	uint64_t base = chunk->base, last_end = stream->last_end;
	struct item item = {.tid = chunk->tid};

	if (!trace_file_read(stream->file, data, chunk->used, chunk->offset)) {
		trace_file_unread(stream->file, chunk->offset);
		return;
	}
	for (uint32_t at = sizeof(struct pdn_trace_chunk); at < chunk->used;) {
		const uint64_t *words = (const uint64_t *)(const void *)(data + at);
		unsigned length = record_words(words[0]), type = record_type(words[0]);
		uint64_t end;

		/* It was good when the file was opened, but anyone may have written to it since. */
		if (record_check(words, (chunk->used - at) / 8))
			break;
		if (record_is_event(words[0]) && at < chunk->seen) {
			end = base + record_when(words[0]);
			last_end = end > last_end && type != PDN_RECORD_LOST ? end : last_end;
		} else if (record_is_event(words[0])) {
			end = base + record_when(words[0]);
			if (type == PDN_RECORD_LOST &&
			    last_end) /* place it just behind the event before it */
				end = last_end;
			if (end > last_end)
				last_end = end;
			item.begin = end - record_taken(words);
			if (item.begin > end)
				item.begin = 0;
			item.lasts = item.begin < end;
			item.offset = at;
			visit(stream, index, &item);
		} else if (type == PDN_RECORD_CLOCK) {
			base = words[1];
		} else if (type == PDN_RECORD_THREAD) {
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
	if (one->first != other->first)
		return one->first < other->first ? -1 : 1;
	/* Of two that began together the outer one ended later, so it has the larger offset. */
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

/* Makes sure that an item is in memory, reading the next chunk that has any; false at the end. */
static bool next_chunk(struct stream *stream)
{
	while (stream->item_at == stream->item_count) {
		const struct chunk *chunk;

		if (stream->next_chunk == stream->end_chunk) {
			release(stream->data);
			release(stream->items);
			stream->data = NULL;
			stream->items = NULL;
			stream->item_capacity = 0;
			return false;
		}
		chunk = &stream->file->chunks[stream->next_chunk];
		release(stream->data);
		stream->data = allocate(chunk->used);
		if (chunk->used / 16 > stream->item_capacity) {
			release(stream->items);
			stream->item_capacity = chunk->used / 16; /* no event is shorter */
			stream->items = allocate(stream->item_capacity * sizeof(*stream->items));
		}
		stream->item_at = stream->item_count = 0;
		look_through(stream, stream->next_chunk++, stream->data, keep_item);
		if (!is_sorted(stream->items, stream->item_count))
			sort(stream->items, stream->item_count, sizeof(*stream->items),
			     compare_items);
	}
	return true;
}

uint64_t since_start(const struct trace_file *file, uint64_t ns, uint64_t start)
{
	int64_t since = (int64_t)(ns + (uint64_t)file->shift - start);

	return since > 0 ? (uint64_t)since : 0;
}

bool stream_find_head(struct stream *stream, uint64_t start)
{
	bool more = next_chunk(stream), early = stream->early_at < stream->early_count;
	uint64_t ticks;

	if (!more && !early)
		return false;
	stream->head_early = early && (!more || stream->early[stream->early_at].item.begin <=
							stream->items[stream->item_at].begin);
	ticks = stream->head_early ? stream->early[stream->early_at].item.begin
				   : stream->items[stream->item_at].begin;
	stream->head =
		since_start(stream->file, trace_file_ns(stream->file, ticks, &stream->hint), start);
	return true;
}

/* The words of its record; NULL when the file no longer has them. */
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

const uint64_t *stream_take(struct stream *stream, struct item *item)
{
	if (stream->head_early)
		return take_early(stream, item);
	*item = stream->items[stream->item_at++];
	return (const uint64_t *)(const void *)(stream->data + item->offset);
}

void stream_find_early(struct stream *stream)
{
	char *buffer = allocate(stream->file->largest_chunk);

	for (uint32_t i = stream->next_chunk; i < stream->end_chunk; i++)
		look_through(stream, i, buffer, remember_early);
	release(buffer);
	stream->last_end = 0;
	sort(stream->early, stream->early_count, sizeof(*stream->early), compare_early);
}

void stream_close(struct stream *stream)
{
	release(stream->data);
	release(stream->items);
	release(stream->early);
}
