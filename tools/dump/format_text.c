// SPDX-License-Identifier: MIT
/* Prints events in aligned columns. Lines that begin with # are not events. */
#include "tools/dump/format.h"

#include <stdio.h>
#include <string.h>

#include "tools/dump/filter.h"
#include "tools/ui/names.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/trace/rank.h"
#include "tools/trace/symbols.h"

enum {
	TIME = 14,
	NUMBER = 8,
	EVENT = 11,
	CALL = 32,
	ADDRESS = 15,
	SIZE = 13,
	RESULT = 25,
	TOOK = 9,
};

bool format_stacks;

static bool several; /* there are several processes: print their pids */
static bool ranked;  /* and one of them has a rank: print the ranks */

static void print_command(const struct trace_file *file)
{
	const char *end = file->command + file->command_bytes;
	size_t shown = 0;

	out_print("# %s: process %u%s on %.100s:", file->name, file->header.pid,
		  trace_rank_text(file).text, file->host);
	for (const char *at = file->command; at < end && shown < 1000; at += strlen(at) + 1) {
		shown += strlen(at) + 1;
		out_print(" %.1000s", at);
	}
	out_print(shown < 1000 ? "\n" : " ...\n");
}

static void print_heading(const struct reader *reader)
{
	char *left_out = reader_left_out(reader), *at;

	several = reader_files(reader) > 1;
	for (unsigned i = 0; i < reader_files(reader); i++) {
		print_command(reader_file(reader, i));
		ranked |= several && reader_file(reader, i)->rank != NO_RANK;
	}
	if (left_out)
		out_print("# older runs, left out: %s\n", left_out);
	release(left_out);
	at = out_reserve();
	at = put_text(at, out_bold());
	*at++ = '#';
	at = put_right(at, "time s", TIME - 1);
	if (several)
		at = put_right(at, "pid", NUMBER);
	if (ranked)
		at = put_right(at, "rank", NUMBER);
	at = put_right(at, "thread", NUMBER);
	at = put_left(put_text(at, "  "), "event", EVENT);
	at = put_left(at, "call", CALL);
	at = put_left(at, "address", ADDRESS);
	at = put_right(at, "size", SIZE);
	at = put_left(put_text(at, "  "), "result", RESULT);
	at = put_right(at, "took", TOOK);
	at = put_text(put_text(at, "  more"), out_plain());
	*at++ = '\n';
	out_commit(at);
}

static char *put_time(char *at, uint64_t ns)
{
	uint64_t seconds = ns / 1000000000u;
	char digits[24];
	char *end = put_decimal(digits, seconds);
	unsigned length = (unsigned)(end - digits);

	if (length + 10 < TIME)
		at = put_spaces(at, TIME - 10 - length);
	memcpy(at, digits, length);
	at += length;
	*at++ = '.';
	return put_fraction(at, ns % 1000000000u, 9);
}

static const char *colour_of(const struct event *event)
{
	if (event_failed(event))
		return out_red();
	switch (event->record.event) {
	case PDN_EV_PIN:
	case PDN_EV_HIT:
		return out_green();
	case PDN_EV_UNPIN:
	case PDN_EV_EVICT:
	case PDN_EV_INVALIDATE:
	case PDN_EV_HELD:
	case PDN_EV_HOLDER:
	case PDN_EV_OUTLIVED:
		return out_yellow();
	default:
		return "";
	}
}

static char *put_name(char *at, const struct event *event)
{
	const char *name = trace_file_call(event->file, event->record.call);
	char number[24] = "#";

	if (event->record.event != PDN_EV_CALL)
		return put_left(at, "-", CALL);
	if (!name) {
		*put_decimal(number + 1, event->record.call) = '\0';
		name = number;
	}
	if (strlen(name) >= 200)
		name = "(name too long)";
	at = put_left(at, name, CALL - 1);
	*at++ = ' ';
	return at;
}

static char *put_address(char *at, const struct record *record)
{
	char *begin = at;

	if (!(record->fields & PDN_HAS_ADDR))
		*at++ = '-';
	else
		at = put_hex(at, record->addr);
	while (at < begin + ADDRESS)
		*at++ = ' ';
	return at;
}

static char *put_size(char *at, const struct record *record)
{
	return record->fields & PDN_HAS_SIZE ? put_decimal_right(at, record->size, SIZE)
					     : put_right(at, "-", SIZE);
}

/* The name of the call; NULL when the event is no call. */
static const char *call_of(const struct event *event)
{
	return event->record.event == PDN_EV_CALL ? trace_file_call(event->file, event->record.call)
						  : NULL;
}

static char *put_result(char *at, const struct event *event)
{
	int64_t result = event->record.result;
	const char *name = result_name(call_of(event), record_is_note(&event->record), result);
	char number[24];

	at = put_text(at, "  ");
	if (result == 0)
		return put_left(at, "ok", RESULT);
	if (!name) {
		*put_signed(number, result) = '\0';
		name = number;
	}
	return put_left(at, name, RESULT);
}

static char *put_key(char *at, const char *key)
{
	*at++ = ' ';
	at = put_text(at, key);
	*at++ = '=';
	return at;
}

/* The meaning of `extra` depends on the event. */
static char *put_note(char *at, const struct record *record)
{
	switch (record->flags & PDN_TRACE_IMPORTED ? PDN_EV_OUTLIVED : record->event) {
	case PDN_EV_REGISTER:
	case PDN_EV_DEREGISTER:
	case PDN_EV_HOLDER:
		at = put_decimal(put_key(at, "object"), record->number);
		at = put_hex(put_key(at, "owner"), record->extra);
		return put_hex(put_key(at, "key"), record->key);
	case PDN_EV_HELD:
		return put_decimal(put_key(at, "count"), record->extra);
	case PDN_EV_RETIRE:
		if (event_outcome(record))
			at = put_text(put_text(at, " "), event_outcome(record));
		at = put_hex(put_key(at, "blocks"), record_reserved(record));
		*at++ = '+';
		return put_decimal(at, record->pin_size);
	default:
		at = put_decimal(put_key(at, "export"), record->number);
		return put_decimal(put_key(at, "fd"), record->extra);
	}
}

static char *put_more(char *at, const struct event *event)
{
	const struct record *record = &event->record;
	const char *reason = reason_name(record->reason);

	*at++ = ' ';
	if (record_is_note(record))
		at = put_note(at, record);
	else if (record->fields & PDN_HAS_EXTRA)
		at = put_hex(put_key(at, "extra"), event_extra(event));
	if (event_was_made_capable(event))
		at = put_text(at, " rdma-capable");
	if (record->fields & PDN_HAS_REGION) {
		if (record->region || !record_is_note(record))
			at = put_decimal(put_key(at, "region"), record->region);
		if (record->device >= 0)
			at = put_decimal(put_key(at, "device"), (uint64_t)record->device);
		if (reason)
			at = put_text(put_key(at, "reason"), reason);
	}
	if (record->fields & PDN_HAS_PIN_SIZE && record->event != PDN_EV_RETIRE) {
		at = put_hex(put_key(at, "pin"), record->pin_addr);
		*at++ = '+';
		at = put_decimal(at, record->pin_size);
	}
	if (record->fields & PDN_HAS_BUFFER_ID)
		at = put_decimal(put_key(at, "id"), record->buffer_id);
	if (record->fields & PDN_HAS_CONTEXT)
		at = put_hex(put_key(at, "context"), record->context);
	if (record->flags & PDN_TRACE_IN_USE)
		at = put_text(at, " in-use");
	if (record->flags & PDN_TRACE_VOLATILE)
		at = put_text(at, " volatile");
	if (record->flags & PDN_TRACE_MISSED)
		at = put_text(at, " MISSED");
	if (record->flags & PDN_TRACE_IMPORTED)
		at = put_text(at, " imported");
	if (record->flags & PDN_TRACE_NO_SYNC)
		at = put_text(at, " no-sync-memops");
	if (record->flags & PDN_TRACE_FELL_BACK)
		at = put_text(at, " fell-back");
	if (record->flags & PDN_TRACE_REVOKED)
		at = put_text(at, " revoked");
	if (record->flags & PDN_TRACE_PCIE)
		at = put_text(at, " pcie");
	if (record->flags & PDN_TRACE_REPLACED)
		at = put_text(at, " replaced");
	if (record->text) {
		*at++ = ' ';
		memcpy(at, record->text, record->text_length);
		at += record->text_length;
	}
	return at;
}

static void print_stack(const struct event *event, uint32_t stack)
{
	struct place places[MAX_PLACES];
	unsigned count = symbols_stack(event->file, stack, places);
	char text[PLACE_TEXT_SIZE];

	for (unsigned i = 0; i < count; i++) {
		char *at = put_decimal_right(out_reserve(), i, TIME + 4);

		at = put_text(at, "  ");
		at = put_text(at, out_dim());
		at = put_text(at, place_text(&places[i], text));
		at = put_text(at, places[i].inlined ? "  (inlined)" : "");
		at = put_text(at, out_plain());
		*at++ = '\n';
		out_commit(at);
	}
}

static char *put_caller(char *at, const struct event *event)
{
	const char *caller = event->record.stack && !format_stacks
				     ? symbols_caller_text(event->file, event->record.stack)
				     : NULL;

	return caller ? put_text(put_text(at, "  < "), caller) : at;
}

/* The library comes first: it is the one to fix. */
static char *put_origin(char *at, const struct event *event)
{
	const struct trace_file *file = event->file;
	uint32_t stack = event->record.origin;
	const struct place *place = stack ? symbols_caller(file, stack) : NULL;
	char name[PLACE_TEXT_SIZE];
	const char *slash;

	if (!place)
		return at;
	at = put_text(at, "  registered by ");
	if (place->module && place->function) {
		slash = strrchr(place->module, '/');
		snprintf(name, sizeof(name), "%s: ", slash ? slash + 1 : place->module);
		at = put_text(at, name);
	}
	return put_text(at, symbols_caller_text(file, stack));
}

static char *put_rank(char *at, int64_t rank)
{
	return rank == NO_RANK ? put_right(at, "-", NUMBER)
			       : put_decimal_right(at, (uint64_t)rank, NUMBER);
}

static void print_event(const struct event *event)
{
	const struct record *record = &event->record;
	const char *colour = colour_of(event);
	char *at = out_reserve();

	at = put_time(at, event->ts);
	if (several)
		at = put_decimal_right(at, event->file->header.pid, NUMBER);
	if (ranked)
		at = put_rank(at, event->file->rank);
	at = put_decimal_right(at, event->tid, NUMBER);
	at = put_text(at, "  ");
	at = put_text(at, colour);
	at = put_left(at, pdn_event_names[record->event], EVENT);
	if (record->event == PDN_EV_LOST) {
		at = put_text(put_decimal(at, record->lost), " events lost: no space here");
	} else {
		at = put_name(at, event);
		at = put_address(at, record);
		at = put_size(at, record);
		at = put_result(at, event);
		at = put_right(at, duration_text(event->took).text, TOOK);
		at = put_more(at, event);
		at = put_origin(at, event);
		at = put_caller(at, event);
	}
	while (at[-1] == ' ')
		at--;
	if (*colour)
		at = put_text(at, out_plain());
	*at++ = '\n';
	out_commit(at);
	if (format_stacks && record->stack)
		print_stack(event, record->stack);
	if (format_stacks && record->origin) {
		at = put_spaces(out_reserve(), TIME + 6);
		out_commit(put_text(at, "registered by\n"));
		print_stack(event, record->origin);
	}
}

static void print_notes(const struct reader *reader)
{
	char text[3000];

	for (unsigned i = 0; i < reader_files(reader); i++)
		if (reader_note(reader_file(reader, i), text, sizeof(text)))
			out_print("# %s\n", text);
}

const struct format format_text = {
	.begin = print_heading, .event = print_event, .end = print_notes};
