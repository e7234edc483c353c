// SPDX-License-Identifier: MIT
/* Opens a trace file, checks its header and its chunks, and reads everything but the events. */
#define _GNU_SOURCE
#include "tools/trace/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/trace/journal.h"
#include "tools/trace/rank.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/base/regular.h"
#include "tools/base/texts.h"
#include "tools/trace/record.h"

enum { MAX_COMPLAINTS = 3 };

static bool read_bytes(const struct trace_file *file, void *to, size_t bytes, uint64_t offset)
{
	char *at = to;

	while (bytes) {
		ssize_t n = pread(file->fd, at, bytes, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		offset += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return true;
}

bool trace_file_read(const struct trace_file *file, void *to, size_t bytes, uint64_t offset)
{
	if (!read_bytes(file, to, bytes, offset))
		return false;
	journal_lay_over(file->journal, to, bytes, offset);
	return true;
}

static unsigned complaints;

void trace_file_bad(struct trace_file *file, uint64_t offset, const char *format, ...)
{
	char text[300];
	va_list arguments;

	file->damaged = true;
	if (++complaints > MAX_COMPLAINTS) {
		if (complaints == MAX_COMPLAINTS + 1)
			complain("%s: further damage is not reported", file->name);
		return;
	}
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	complain("%s: damaged at byte %#llx: %s", file->name, (unsigned long long)offset, text);
}

void trace_file_unread(struct trace_file *file, uint64_t offset)
{
	struct stat status;

	if (fstat(file->fd, &status) == 0 && (uint64_t)status.st_size < file->bytes) {
		file->bytes = (uint64_t)status.st_size;
		file->cut = true;
	} else if (!file->cut) {
		trace_file_bad(file, offset, "these bytes can't be read");
	}
}

/* ---- the header ----------------------------------------------------------------------------- */

/* Whether a machine of the other byte order has written it. */
static bool has_other_order(const struct pdn_trace_header *header)
{
	return header->major == __builtin_bswap16(PDN_TRACE_MAJOR) &&
	       header->unit == __builtin_bswap32(PDN_TRACE_UNIT);
}

/* NULL, or why the file can't be read. */
static const char *check_header(const struct trace_file *file, char *text, size_t capacity)
{
	const struct pdn_trace_header *header = &file->header;

	if (!file->bytes)
		return "the file is empty";
	if (file->bytes < sizeof(header->magic) ||
	    memcmp(header->magic, PDN_TRACE_MAGIC, sizeof(header->magic)) != 0)
		return "not a pindown trace: it must begin with the bytes 89 50 44 54 0d 0a 1a 0a";
	if (has_other_order(header))
		return "the trace has the byte order of another kind of processor: read it there";
	if (header->major != PDN_TRACE_MAJOR) {
		snprintf(text, capacity,
			 "the trace has format %u.%u, written by a %s pindown; this one reads "
			 "format %d",
			 header->major, header->minor,
			 header->major > PDN_TRACE_MAJOR ? "newer" : "very old", PDN_TRACE_MAJOR);
		return text;
	}
	if (header->unit != PDN_TRACE_UNIT || file->bytes < PDN_TRACE_UNIT) {
		snprintf(text, capacity, "damaged at byte %#zx: expected a unit of %u bytes%s",
			 offsetof(struct pdn_trace_header, unit), PDN_TRACE_UNIT,
			 header->unit == PDN_TRACE_UNIT ? "; the file is shorter" : "");
		return text;
	}
	if (header->header_bytes < sizeof(*header) || header->header_bytes % 8 ||
	    header->header_bytes > PDN_TRACE_UNIT) {
		snprintf(text, capacity, "damaged at byte %#zx: expected the header's length, %u",
			 offsetof(struct pdn_trace_header, header_bytes), PDN_TRACE_HEADER_BYTES);
		return text;
	}
	return NULL;
}

/* `data` is followed by a NUL. */
static void take_calls(struct trace_file *file, char *data, size_t bytes)
{
	unsigned capacity = 0;

	file->call_count = 0;
	for (char *end = data + bytes; data < end; data += strlen(data) + 1) {
		file->calls = grow(file->calls, &capacity, file->call_count, sizeof(*file->calls));
		file->calls[file->call_count++] = data;
	}
}

static void take_info(struct trace_file *file, const struct pdn_trace_info *record, char *data)
{
	switch (record->kind) {
	case PDN_INFO_VERSION:
		file->version = data;
		break;
	case PDN_INFO_HOST:
		file->host = data;
		break;
	case PDN_INFO_PROGRAM:
		file->program = data;
		break;
	case PDN_INFO_DIRECTORY:
		file->directory = data;
		break;
	case PDN_INFO_COMMAND:
		file->command = data;
		file->command_bytes = record->length;
		break;
	case PDN_INFO_ENVIRONMENT:
		file->environment = data;
		file->environment_bytes = record->length;
		break;
	case PDN_INFO_DISTRUST:
		file->distrust = data;
		break;
	case PDN_INFO_CALLS:
		if (!file->calls)
			take_calls(file, data, record->length);
		break;
	}
}

/* Copies every text into one block, each followed by a NUL. */
static void read_info(struct trace_file *file)
{
	uint64_t at = file->header.header_bytes;
	size_t used = 0;
	char *unit = allocate(PDN_TRACE_UNIT);

	file->version = file->host = file->program = file->directory = "";
	file->command = file->environment = file->distrust = "";
	/* One unit is enough: the NUL behind each copy replaces the record's header of 8 bytes. */
	file->info = allocate(PDN_TRACE_UNIT);
	if (!trace_file_read(file, unit, PDN_TRACE_UNIT, 0)) {
		trace_file_bad(file, 0, "the first unit can't be read");
		at = PDN_TRACE_UNIT;
	}
	while (at + sizeof(struct pdn_trace_info) <= PDN_TRACE_UNIT) {
		struct pdn_trace_info record;
		char *copy = file->info + used;

		memcpy(&record, unit + at, sizeof(record));
		if (!record.kind)
			break;
		at += sizeof(record);
		if (record.length > PDN_TRACE_UNIT - at) {
			trace_file_bad(file, at - sizeof(record),
				       "expected a length of at most %llu",
				       (unsigned long long)(PDN_TRACE_UNIT - at));
			break;
		}
		memcpy(copy, unit + at, record.length);
		copy[record.length] = '\0';
		text_make_printable(copy, record.length);
		used += record.length + 1;
		take_info(file, &record, copy);
		at += ((uint64_t)record.length + 7) & ~7ull;
	}
	release(unit);
}

/* ---- chunks --------------------------------------------------------------------------------- */

static void read_counters(struct trace_file *file, const char *data, uint64_t bytes)
{
	struct pdn_trace_slot slot;

	for (uint64_t at = sizeof(struct pdn_trace_chunk); at + sizeof(slot) <= bytes;
	     at += sizeof(slot)) {
		memcpy(&slot, data + at, sizeof(slot));
		if (!slot.tid)
			continue; /* free slots lie between used ones */
		file->counters.hits += slot.hits;
		file->counters.misses += slot.misses;
		file->counters.tag_checks += slot.tag_checks;
		file->counters.lost += slot.lost_events;
		if (slot.lost_events > slot.told)
			file->lost_untold += slot.lost_events - slot.told;
	}
}

/*
 * Goes through a chunk's records once: finds where the complete ones end, takes in clocks, stacks
 * and modules, and reports damage. An incomplete last record in a chunk that was cut is no damage.
 */
static void scan_records(struct trace_file *file, struct chunk *chunk, const char *data,
			 uint64_t bytes, bool cut)
{
	uint64_t at = sizeof(struct pdn_trace_chunk), base = chunk->base;

	while (at + 8 <= bytes) {
		const uint64_t *words = (const uint64_t *)(const void *)(data + at);
		const char *expected;

		if (!words[0])
			break;
		expected = record_check(words, (bytes - at) / 8);
		if (expected) {
			if (!cut)
				trace_file_bad(file, chunk->offset + at,
					       "expected %s; the rest of this chunk is skipped",
					       expected);
			break;
		}
		if (record_type(words[0]) == PDN_RECORD_CLOCK) {
			base = words[1];
			trace_file_moment(file,
					  &(struct pdn_trace_clock){words[2], words[3], words[4]});
		} else if (record_type(words[0]) == PDN_RECORD_STACK) {
			trace_file_take_stack(file, words, chunk->offset + at);
		} else if (record_type(words[0]) == PDN_RECORD_MODULE) {
			trace_file_take_module(file, words);
		} else if (record_is_event(words[0])) {
			file->records++;
			if (base + record_when(words[0]) > file->last_ticks)
				file->last_ticks = base + record_when(words[0]);
		}
		at += record_words(words[0]) * 8ul;
	}
	chunk->used = (uint32_t)at;
}

static void take_chunk(struct trace_file *file, const struct pdn_trace_chunk *header,
		       uint64_t offset, const char *data, uint64_t bytes)
{
	struct chunk *chunk;

	file->chunks =
		grow(file->chunks, &file->chunk_capacity, file->chunk_count, sizeof(*file->chunks));
	chunk = &file->chunks[file->chunk_count++];
	*chunk = (struct chunk){.offset = offset,
				.used = sizeof(*header),
				.stream = header->stream,
				.sequence = header->sequence,
				.tid = header->tid,
				.base = header->base};
	trace_file_moment(file, &header->clock);
	scan_records(file, chunk, data, bytes, bytes < (uint64_t)header->units * PDN_TRACE_UNIT);
	if (chunk->used > file->largest_chunk)
		file->largest_chunk = chunk->used;
}

/*
 * How many units from `offset` on have no chunk: a thread claimed them and was killed, or the disk
 * was full, or they are a hole in the file.
 */
static uint64_t units_of_nothing(const struct trace_file *file, uint64_t offset)
{
	uint64_t unwritten = journal_next(file->journal, offset + PDN_TRACE_UNIT);
	off_t data = lseek(file->fd, (off_t)offset, SEEK_DATA);

	if (data < 0 && errno == ENXIO) /* a hole up to the end of the file */
		data = (off_t)(file->bytes | (PDN_TRACE_UNIT - 1));
	if (data > (off_t)offset && (uint64_t)data > unwritten)
		data = (off_t)unwritten;
	return data > (off_t)(offset + PDN_TRACE_UNIT) ? ((uint64_t)data - offset) / PDN_TRACE_UNIT
						       : 1;
}

/* The number of units of a chunk; 1 when there is no chunk here. */
static uint64_t read_chunk(struct trace_file *file, uint64_t offset)
{
	char *data;

	struct pdn_trace_chunk header;
	uint64_t bytes;

	if (!trace_file_read(file, &header, sizeof(header), offset)) {
		trace_file_unread(file, offset);
		return 1;
	}
	if (!header.magic)
		return units_of_nothing(file, offset);
	if (header.magic != PDN_CHUNK_MAGIC) {
		trace_file_bad(file, offset, "expected the start of a chunk, %#x", PDN_CHUNK_MAGIC);
		return 1;
	}
	if (!header.units || header.units > PDN_TRACE_MAX_UNITS) {
		trace_file_bad(file, offset + offsetof(struct pdn_trace_chunk, units),
			       "expected a chunk of 1 to %u units", PDN_TRACE_MAX_UNITS);
		return 1;
	}
	bytes = (uint64_t)header.units * PDN_TRACE_UNIT;
	if (bytes > file->bytes - offset) {
		bytes = file->bytes - offset;
		file->cut = true;
	}
	if (header.kind != PDN_CHUNK_EVENTS && header.kind != PDN_CHUNK_COUNTERS)
		return header.units;
	data = allocate(bytes);
	if (!trace_file_read(file, data, bytes, offset))
		trace_file_unread(file, offset);
	else if (header.kind == PDN_CHUNK_EVENTS)
		take_chunk(file, &header, offset, data, bytes);
	else
		read_counters(file, data, bytes);
	release(data);
	return header.units;
}

static int compare_chunks(const void *a, const void *b)
{
	const struct chunk *one = a, *other = b;

	if (one->stream != other->stream)
		return one->stream < other->stream ? -1 : 1;
	if (one->sequence != other->sequence)
		return one->sequence < other->sequence ? -1 : 1;
	return (one->offset > other->offset) - (one->offset < other->offset);
}

static void check_sequence(struct trace_file *file)
{
	for (unsigned i = 0; i < file->chunk_count; i++) {
		const struct chunk *chunk = &file->chunks[i], *before = chunk - 1;
		bool first = i == 0 || before->stream != chunk->stream;
		uint32_t expected = first ? 0 : before->sequence + 1;

		if (chunk->sequence != expected)
			trace_file_bad(file,
				       chunk->offset + offsetof(struct pdn_trace_chunk, sequence),
				       "expected chunk %u of stream %u, not %u", expected,
				       chunk->stream, chunk->sequence);
	}
}

static void read_chunks(struct trace_file *file)
{
	uint64_t offset = PDN_TRACE_UNIT;

	file->cut = file->header.units > file->bytes / PDN_TRACE_UNIT;
	while (offset + sizeof(struct pdn_trace_chunk) <= file->bytes)
		offset += read_chunk(file, offset) * PDN_TRACE_UNIT;
	sort(file->chunks, file->chunk_count, sizeof(*file->chunks), compare_chunks);
	/* A cut file lacks its last chunks, so gaps in the sequence say nothing. */
	if (!file->cut)
		check_sequence(file);
}

/* Whether a file of this name exists and begins like a trace. */
static bool is_trace(const char *name)
{
	char magic[sizeof(((struct pdn_trace_header *)0)->magic)];
	int fd = open_regular(name, 0);
	bool begins_so;

	if (fd < 0)
		return false;
	begins_so = pread(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
		    memcmp(magic, PDN_TRACE_MAGIC, sizeof(magic)) == 0;
	close(fd);
	return begins_so;
}

bool trace_file_may_replace(const char *option, const char *name)
{
	size_t length = strlen(name);
	bool named_so = length > 4 && strcmp(name + length - 4, ".pdt") == 0;

	if (is_trace(name))
		complain("%s %s: this is a trace, which the output would replace", option, name);
	else if (named_so)
		complain("%s %s: this name is a trace's: choose another for the output", option,
			 name);
	else
		return true;
	return false;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static bool open_file(struct trace_file *file)
{
	struct stat status;

	file->fd = open_regular(file->name, 0);
	if (file->fd < 0 || fstat(file->fd, &status) != 0) {
		const char *why = errno == EINVAL ? "not a regular file" : strerror(errno);

		if (stat(file->name, &status) == 0 && S_ISDIR(status.st_mode))
			why = "a directory, not a trace";
		complain("%s: %s", file->name, why);
		return false;
	}
	file->device = status.st_dev;
	file->inode = status.st_ino;
	return true;
}

/*
 * Ask for the length after reading the header: a growing file is then at least as long as the
 * header says.
 */
static bool read_header(struct trace_file *file)
{
	const char *wrong;
	struct stat status;
	char text[200];
	ssize_t n;

	n = pread(file->fd, &file->header, sizeof(file->header), 0);
	if (n < 0 || fstat(file->fd, &status) != 0) {
		complain("%s: %s", file->name, strerror(errno));
		return false;
	}
	file->bytes = (uint64_t)status.st_size;
	if ((size_t)n < sizeof(file->header) && file->bytes > (uint64_t)n)
		file->bytes = (uint64_t)n;
	wrong = check_header(file, text, sizeof(text));
	if (wrong)
		complain("%s: %s", file->name, wrong);
	return !wrong;
}

/*
 * The process may claim more units while its trace is read: read only the units that it had when
 * its header was copied.
 */
static void read_journal(struct trace_file *file)
{
	file->journal = journal_copy(file->fd, file->name, &file->header);
	if (!file->journal)
		return;
	file->header.end = journal_header(file->journal)->end;
	file->header.units = journal_header(file->journal)->units;
	file->header.lost = journal_header(file->journal)->lost;
	if (file->header.units < file->bytes / PDN_TRACE_UNIT)
		file->bytes = file->header.units * PDN_TRACE_UNIT;
}

struct trace_file *trace_file_open(const char *name)
{
	struct trace_file *file = allocate(sizeof(*file));

	complaints = 0;
	file->name = name;
	file->fd = -1;
	if (!open_file(file) || !read_header(file)) {
		trace_file_close(file);
		return NULL;
	}
	read_journal(file);
	file->bytes_at_first = file->bytes;
	memory_trace_opened(file->bytes);
	read_info(file);
	file->rank = trace_rank(file);
	trace_file_moment(file, &file->header.begin);
	if (file->header.end.ticks)
		trace_file_moment(file, &file->header.end);
	file->last_ticks = file->header.end.ticks;
	read_chunks(file);
	trace_file_clock(file);
	trace_file_sort_stacks(file);
	file->first_ns = file->header.begin.monotonic;
	file->counters.lost += file->header.lost;
	file->lost_untold += file->header.lost;
	return file;
}

void trace_file_close(struct trace_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	if (file->info) /* its header was good */
		memory_trace_closed(file->bytes_at_first);
	release(file->calls);
	release(file->info);
	release(file->chunks);
	release(file->moments);
	trace_file_free_stacks(file);
	journal_free(file->journal);
	release(file);
}
