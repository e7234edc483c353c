// SPDX-License-Identifier: MIT
/*
 * Prints the trace event format of Perfetto and chrome://tracing, one JSON document. It has a track
 * for each thread, and counters: the pinned bytes of each process, and the BAR1 space that pins
 * take on each of its devices. Times are in microseconds.
 */
#include "tools/dump/filter.h"
#include "tools/dump/format.h"

#include <stdio.h>
#include <string.h>

#include "tools/ui/json.h"
#include "tools/base/memory.h"
#include "tools/ui/names.h"
#include "tools/base/out.h"
#include "tools/trace/regions.h"
#include "tools/trace/rank.h"
#include "tools/trace/symbols.h"

enum { DEVICES = 64 };

/* The counters of one file. */
struct counted {
	uint64_t bytes, kept, bar[DEVICES]; /* kept: still pinned after their free */
};

static struct regions regions;
static struct counted *counted;
static bool any; /* a JSON object was printed */

/* Threads that have a name, as pid << 32 | tid; open addressing. */
static uint64_t *named;
static size_t named_capacity, named_count;

/* ---- pieces --------------------------------------------------------------------------------- */

static char *begin_object(char *at)
{
	at = put_text(at, any ? ",\n" : "\n");
	any = true;
	return at;
}

static char *put_micro(char *at, uint64_t ns)
{
	at = put_decimal(at, ns / 1000);
	*at++ = '.';
	return put_fraction(at, ns % 1000, 3);
}

/* Events without a thread, such as losses of unknown threads, go to the main thread. */
static uint32_t thread_of(const struct event *event)
{
	return event->tid ? event->tid : event->file->header.pid;
}

static char *put_who(char *at, const struct event *event)
{
	at = put_decimal(put_text(at, ",\"pid\":"), event->file->header.pid);
	return put_decimal(put_text(at, ",\"tid\":"), thread_of(event));
}

/* ---- names of threads ----------------------------------------------------------------------- */

static bool add_name(uint64_t key)
{
	size_t i;

	if (named_count * 2 >= named_capacity) {
		uint64_t *old = named;
		size_t capacity = named_capacity;

		named_capacity = capacity ? capacity * 2 : 256;
		named = allocate(named_capacity * sizeof(*named));
		named_count = 0;
		for (size_t j = 0; j < capacity; j++)
			if (old[j])
				add_name(old[j]);
		release(old);
	}
	for (i = key * 0x9e3779b97f4a7c15ull >> 20 & (named_capacity - 1); named[i];
	     i = (i + 1) & (named_capacity - 1))
		if (named[i] == key)
			return false;
	named[i] = key;
	named_count++;
	return true;
}

static void name_thread(const struct event *event)
{
	uint32_t pid = event->file->header.pid, tid = thread_of(event);
	char *at;

	if (!add_name((uint64_t)pid << 32 | tid | 1ull << 63))
		return;
	at = begin_object(out_reserve());
	at = put_text(at, "{\"ph\":\"M\",\"name\":\"thread_name\"");
	at = put_text(put_who(at, event), ",\"args\":{\"name\":\"");
	at = put_text(at, tid == pid ? "main thread" : "thread");
	at = put_text(at, "\"}}");
	out_commit(at);
}

/* Perfetto shows the labels behind the process's name, and sorts by the index. */
static void print_rank(const struct trace_file *file)
{
	char *at;

	if (file->rank == NO_RANK)
		return;
	at = begin_object(out_reserve());
	at = put_text(at, "{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":");
	at = put_decimal(at, file->header.pid);
	at = put_decimal(put_text(at, ",\"args\":{\"labels\":\"rank "), (uint64_t)file->rank);
	at = begin_object(put_text(at, "\"}}"));
	at = put_text(at, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":");
	at = put_decimal(at, file->header.pid);
	at = put_decimal(put_text(at, ",\"args\":{\"sort_index\":"), (uint64_t)file->rank);
	out_commit(put_text(at, "}}"));
}

static void begin(const struct reader *reader)
{
	/* No displayTimeUnit: some readers took it for the unit of the times. */
	out_print("{\"traceEvents\":[");
	counted = allocate((reader_files(reader) + 1) * sizeof(*counted));
	for (unsigned i = 0; i < reader_files(reader); i++) {
		const struct trace_file *file = reader_file(reader, i);
		const char *name = *file->command ? file->command : "unknown program";
		char *at = begin_object(out_reserve());

		at = put_text(at, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":");
		at = put_decimal(at, file->header.pid);
		at = put_text(at, ",\"args\":{\"name\":");
		at = json_quoted(at, name, strnlen(name, 200));
		at = put_text(at, "}}");
		out_commit(at);
		print_rank(file);
	}
}

/* ---- counters ------------------------------------------------------------------------------- */

/* Perfetto shows name and key as one text, chrome://tracing shows the key below the name. */
static void print_counter(const struct event *event, const char *name, uint64_t bytes)
{
	char *at = begin_object(out_reserve());

	at = put_text(put_text(at, "{\"ph\":\"C\",\"name\":\""), name);
	at = put_micro(put_text(at, "\",\"ts\":"), event->ts);
	at = put_decimal(put_text(at, ",\"pid\":"), event->file->header.pid);
	at = put_decimal(put_text(at, ",\"args\":{\"bytes\":"), bytes);
	at = put_text(at, "}}");
	out_commit(at);
}

/* Counts at the begin of the event: events come in this order, so a counter's times increase. */
static void change(const struct event *event, const struct region *region, bool more)
{
	struct counted *of = &counted[event->file->index];
	unsigned device = (unsigned)region->device % DEVICES;
	char name[32];

	of->bytes += more ? region->size : -region->size;
	of->bar[device] += more ? region->pin_size : -region->pin_size;
	snprintf(name, sizeof(name), "GPU %u: BAR", device);
	if (region->freed && !more) {
		of->kept -= region->pin_size;
		print_counter(event, "freed but pinned", of->kept);
	}
	print_counter(event, "pinned", of->bytes);
	print_counter(event, name, of->bar[device]);
}

static void count_region(const struct event *event)
{
	const struct record *record = &event->record;
	struct region *region =
		regions_find(&regions, event->file->index, record->region, record->buffer_id);

	if (region && (record->event == PDN_EV_UNPIN || record->event == PDN_EV_PIN)) {
		change(event, region, false);
		regions_remove(&regions, region);
	}
	if (region && !region->freed && record->event == PDN_EV_INVALIDATE && event_stale(event)) {
		region->freed = true;
		counted[event->file->index].kept += region->pin_size;
		print_counter(event, "freed but pinned", counted[event->file->index].kept);
	}
	if (record->event != PDN_EV_PIN)
		return;
	region = regions_add(&regions, event->file->index, record->region, record->buffer_id);
	region->size = record->size;
	region->pin_size = record->pin_size;
	region->device = record->device;
	change(event, region, true);
}

/* ---- events --------------------------------------------------------------------------------- */

static char *put_arguments(char *at, const struct event *event)
{
	const struct record *record = &event->record;
	const char *caller = record->stack ? symbols_caller_text(event->file, record->stack) : NULL;
	const char *maker =
		record->origin ? symbols_caller_text(event->file, record->origin) : NULL;

	at = put_hex(put_text(at, ",\"args\":{\"addr\":\""), record->addr);
	at = put_decimal(put_text(at, "\",\"size\":"), record->size);
	at = put_signed(put_text(at, ",\"result\":"), record->result);
	if (record->fields & PDN_HAS_REGION)
		at = put_decimal(put_text(at, ",\"region\":"), record->region);
	if (reason_name(record->reason)) {
		at = put_text(put_text(at, ",\"reason\":\""), reason_name(record->reason));
		*at++ = '"';
	}
	at = json_outcome(json_flags(at, record->flags), record);
	if (record->event == PDN_EV_LOST)
		at = put_decimal(put_text(at, ",\"count\":"), record->lost);
	if (record->text)
		at = json_quoted(put_text(at, ",\"text\":"), record->text, record->text_length);
	if (caller)
		at = json_quoted(put_text(at, ",\"caller\":"), caller, strlen(caller));
	if (maker)
		at = json_quoted(put_text(at, ",\"registered by\":"), maker, strlen(maker));
	*at++ = '}';
	return at;
}

static char *put_name(char *at, const struct event *event)
{
	const char *name = event->record.event == PDN_EV_CALL
				   ? trace_file_call(event->file, event->record.call)
				   : pdn_event_names[event->record.event];

	return name ? json_quoted(at, name, strnlen(name, 200)) : put_text(at, "\"(unknown)\"");
}

/* A line across the tracks of the process, which people find among thousands of events. */
static void mark_stale(const struct event *event)
{
	const struct record *record = &event->record;
	const char *name = record->event == PDN_EV_RETIRE     ? "address not kept from reuse"
			   : record->flags & PDN_TRACE_MISSED ? "missed invalidation"
							      : "stale registration";
	char *at = begin_object(out_reserve());

	at = put_text(at, "{\"ph\":\"i\",\"s\":\"p\",\"cname\":\"terrible\",\"name\":\"");
	at = put_text(at, name);
	at = put_micro(put_text(at, "\",\"cat\":\"stale\",\"ts\":"), event->ts);
	at = put_arguments(put_who(at, event), event);
	*at++ = '}';
	out_commit(at);
}

static void print_event(const struct event *event)
{
	enum pdn_event kind = event->record.event;
	bool lasts = kind == PDN_EV_CALL || kind == PDN_EV_PIN || kind == PDN_EV_UNPIN;
	char *at;

	name_thread(event);
	at = begin_object(out_reserve());
	at = put_text(at,
		      lasts ? "{\"ph\":\"X\",\"name\":" : "{\"ph\":\"i\",\"s\":\"t\",\"name\":");
	at = put_name(at, event);
	at = put_text(put_text(at, ",\"cat\":\""), pdn_event_names[kind]);
	at = put_micro(put_text(at, "\",\"ts\":"), event->ts);
	if (lasts)
		at = put_micro(put_text(at, ",\"dur\":"), event->took);
	at = put_arguments(put_who(at, event), event);
	*at++ = '}';
	out_commit(at);
	if ((kind == PDN_EV_INVALIDATE || kind == PDN_EV_RETIRE) && event_stale(event))
		mark_stale(event);
	if (event->record.fields & PDN_HAS_REGION && event->record.result == 0)
		count_region(event);
}

static void end(const struct reader *reader)
{
	out_print("\n]}\n");
	reader_complain(reader);
	regions_free(&regions);
	memset(&regions, 0, sizeof(regions));
	release(counted);
	release(named);
	named = NULL;
	named_capacity = named_count = 0;
	any = false;
}

const struct format format_chrome = {
	.option = "chrome", .begin = begin, .event = print_event, .end = end};
