// SPDX-License-Identifier: MIT
/* Merges the streams of all files of a family into one sequence of events. */
#define _GNU_SOURCE
#include "tools/trace/reader.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "cache/trace/journal/rescue.h"
#include "tools/base/out.h"
#include "tools/base/texts.h"
#include "tools/trace/journal.h"
#include "tools/trace/rank.h"
#include "tools/trace/runs.h"
#include "tools/trace/stream.h"

struct reader {
	struct trace_file **files;
	unsigned file_count, file_capacity;
	char **names;
	unsigned name_count, name_capacity;
	struct texts left_out; /* files of older runs */
	struct stream *streams;
	unsigned stream_count, stream_capacity;
	struct stream **heap; /* by head; the first has the earliest */
	unsigned heap_count;
	unsigned lost_file; /* the next file whose unreported losses are returned at the end */
	uint64_t start, span, last_ts;
	bool ranks_are_distinct;
	struct texts unread;	       /* what could not be opened */
	bool ended;		       /* the files have disappeared since */
	char text[PDN_ERROR_MAX_TEXT]; /* of the last event */
};

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
	if (!stream_find_head(reader->heap[0], reader->start))
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
		reader->streams = grow(reader->streams, &reader->stream_capacity,
				       reader->stream_count, sizeof(*reader->streams));
		stream = &reader->streams[reader->stream_count++];
		memset(stream, 0, sizeof(*stream));
		stream->file = file;
		stream->next_chunk = i;
		stream->end_chunk = i + 1;
	}
}

/*
 * Processes of one machine share CLOCK_MONOTONIC. Between machines, and across a restart, only the
 * time of day is comparable.
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
		uint64_t last = since_start(file, trace_file_ns(file, file->last_ticks, &hint),
					    reader->start);

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

/* Chunks are sorted by stream and new ones come last, so most have kept their index. */
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

static void skip_seen(struct reader *reader, const struct reader *before)
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

/* A job may have more processes, each with a file, than the usual limit of descriptors. */
static void allow_many_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* Whether this is a file that is open already, perhaps under another name. */
static bool is_open(const struct reader *reader, const char *name)
{
	struct stat status;

	if (stat(name, &status) != 0)
		return false;
	for (unsigned i = 0; i < reader->file_count; i++)
		if (reader->files[i]->inode == status.st_ino &&
		    reader->files[i]->device == status.st_dev)
			return true;
	return false;
}

static void open_file(struct reader *reader, const char *name)
{
	struct trace_file *file;

	if (is_open(reader, name))
		return;
	file = trace_file_open(name);
	if (!file) {
		texts_add_once(&reader->unread, name);
		return;
	}
	reader->files = grow(reader->files, &reader->file_capacity, reader->file_count,
			     sizeof(struct trace_file *));
	reader->files[reader->file_count++] = file;
}

/* Opens what one name stands for: the file at names[from], or the family from there on. */
static void open_name(struct reader *reader, const char *name, unsigned from)
{
	bool is_family = strcmp(reader->names[from], name) != 0;
	unsigned first = reader->file_count;

	for (unsigned i = from; i < reader->name_count; i++)
		open_file(reader, reader->names[i]);
	if (is_family)
		reader->file_count =
			first + runs_keep_newest(reader->files + first, reader->file_count - first,
						 &reader->left_out);
}

static void open_files(struct reader *reader, char *const *names, unsigned count)
{
	pdn_journal_rescue();
	journals_look();
	for (unsigned i = 0; i < count; i++) {
		unsigned from = reader->name_count;

		if (!family_find(names[i], &reader->names, &reader->name_count,
				 &reader->name_capacity)) {
			texts_add_once(&reader->unread, names[i]);
			continue;
		}
		if (reader->name_count > 100)
			allow_many_files();
		open_name(reader, names[i], from);
	}
	for (unsigned i = 0; i < reader->file_count; i++)
		reader->files[i]->index = i;
	reader->ranks_are_distinct = trace_ranks_are_distinct(reader->files, reader->file_count);
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
		skip_seen(reader, before);
	for (unsigned i = 0; i < reader->file_count; i++)
		add_streams(reader, reader->files[i]);
	reader->heap = allocate((reader->stream_count + 1) * sizeof(struct stream *));
	for (unsigned i = 0; i < reader->stream_count; i++) {
		stream_find_early(&reader->streams[i]);
		if (stream_find_head(&reader->streams[i], reader->start))
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
		reader->ended = true;
		return reader;
	}
	reader_close(reader);
	return again;
}

/* The pid may belong to another process by now; then this waits for that one's end. */
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
	texts_free(&reader->left_out);
	texts_free(&reader->unread);
	for (unsigned i = 0; i < reader->stream_count; i++)
		stream_close(&reader->streams[i]);
	release(reader->files);
	release(reader->names);
	release(reader->streams);
	release(reader->heap);
	release(reader);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Losses that no record reports, because none could be written: one event for each file. */
static bool next_lost(struct reader *reader, struct event *event)
{
	while (reader->lost_file < reader->file_count) {
		const struct trace_file *file = reader->files[reader->lost_file++];

		if (file->lost_untold <= file->lost_told)
			continue;
		memset(event, 0, sizeof(*event));
		event->ts = reader->last_ts;
		event->file = file;
		event->record.event = PDN_EV_LOST;
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
		words = stream_take(stream, &item);
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
		if (words && event->record.text) { /* advance() may free the chunk */
			event->record.text =
				memcpy(reader->text, event->record.text, event->record.text_length);
			text_make_printable(reader->text, event->record.text_length);
		}
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

bool reader_shows_ranks(const struct reader *reader)
{
	return reader->ranks_are_distinct && reader->file_count > 1;
}

uint64_t reader_rank_or_pid(const struct reader *reader, const struct trace_file *file)
{
	return reader_shows_ranks(reader) ? (uint64_t)file->rank : file->header.pid;
}

const char *reader_process_title(const struct reader *reader)
{
	if (reader->file_count < 2)
		return "";
	return reader_shows_ranks(reader) ? "    rank" : "     pid";
}

const struct texts *reader_unread(const struct reader *reader)
{
	return &reader->unread;
}

bool reader_damaged(const struct reader *reader)
{
	bool damaged = reader->unread.count || reader->ended;

	for (unsigned i = 0; i < reader->file_count; i++)
		damaged |= reader->files[i]->damaged;
	return damaged;
}

uint64_t reader_span(const struct reader *reader)
{
	return reader->span;
}

char *reader_left_out(const struct reader *reader)
{
	enum { MAX_NAMES = 5 };
	unsigned count = reader->left_out.count;
	char *list = NULL, *text;

	if (!count)
		return NULL;
	for (unsigned i = count; i-- > 0 && count - i <= MAX_NAMES;)
		list = text_listed(list, reader->left_out.list[i]);
	text = count > MAX_NAMES ? text_of("%s and %u more", list, count - MAX_NAMES)
				 : text_of("%s", list);
	release(list);
	return text;
}

bool reader_note(const struct trace_file *file, char *text, size_t capacity)
{
	if (file->cut)
		snprintf(text, capacity, "%s is cut short: it has %llu bytes of %llu", file->name,
			 (unsigned long long)file->bytes,
			 (unsigned long long)file->header.units * PDN_TRACE_UNIT);
	else if (!file->header.end.ticks)
		snprintf(text, capacity,
			 "%s has no end mark: process %u%s was killed, called _exit, or is still "
			 "running",
			 file->name, file->header.pid, trace_rank_text(file).text);
	else
		return false;
	return true;
}

void reader_complain(const struct reader *reader)
{
	char text[5000], *left_out = reader_left_out(reader);

	if (left_out)
		complain("older runs are left out: %s", left_out);
	release(left_out);
	for (unsigned i = 0; i < reader->file_count; i++)
		if (reader_note(reader->files[i], text, sizeof(text)))
			complain("%s", text);
}
