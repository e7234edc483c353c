// SPDX-License-Identifier: MIT
/* Prints the program's registrations whose memory was freed: who made them, and who freed it. */
#include <stdio.h>
#include <string.h>

#include "cache/pindown.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/report/holders.h"
#include "tools/trace/symbols.h"

void registrations_count(struct holders *holders, const struct event *event)
{
	const struct record *record = &event->record;

	if (record->reason == PINDOWN_REASON_ORDERED)
		holders->registrations_ordered++;
	else if (record->flags & PDN_TRACE_REVOKED)
		holders->registrations_revoked++;
	holders->registrations_all++;
	if (holders->registration_count == MAX_OUTLIVED)
		return;
	holders->registrations = grow(holders->registrations, &holders->registration_capacity,
				      holders->registration_count, sizeof(*holders->registrations));
	holders->registrations[holders->registration_count++] =
		(struct registration){.file = event->file->index,
				      .tid = event->tid,
				      .ts = event->ts,
				      .addr = record->addr,
				      .size = record->size,
				      .made_by = record->origin,
				      .freed_by = record->stack,
				      .ordered = record->reason == PINDOWN_REASON_ORDERED,
				      .revoked = record->flags & PDN_TRACE_REVOKED};
}

/* The library comes first: it is the one to fix. */
char *put_maker(char *at, const struct trace_file *file, uint32_t stack)
{
	const struct place *place = stack ? symbols_caller(file, stack) : NULL;
	const char *slash = place && place->module ? strrchr(place->module, '/') : NULL;
	char text[PLACE_TEXT_SIZE];

	if (!place)
		return put_text(at, "-");
	if (place->module && place->function) {
		snprintf(text, sizeof(text), "%s: ", slash ? slash + 1 : place->module);
		at = put_text(at, text);
	}
	return put_text(at, place_text(place, text));
}

/* The caller with its library, then the functions that led there. */
static void print_code(const struct trace_file *file, const char *what, uint32_t stack)
{
	enum { MAX_CHAIN = 8 };
	struct place places[MAX_CHAIN];
	unsigned count = stack ? symbols_chain(file, stack, places, MAX_CHAIN) : 0;
	char text[PLACE_TEXT_SIZE], *at = out_reserve();

	at = put_text(put_text(at, "      "), out_dim());
	at = put_text(put_left(at, what, 15), out_plain());
	at = put_maker(at, file, stack);
	*at++ = '\n';
	out_commit(at);
	for (unsigned i = 1; i < count; i++)
		out_print("%21s%s\n", "", place_text(&places[i], text));
}

const char *registration_fate(const struct registration *registration)
{
	if (registration->ordered)
		return "freed in stream order";
	return registration->revoked ? "revoked" : "kept";
}

static void print_registration(const struct registration *registration,
			       const struct registration *above, const struct reader *reader)
{
	const struct trace_file *file = reader_file(reader, registration->file);
	bool as_above = above && above->file == registration->file &&
			above->made_by == registration->made_by &&
			above->freed_by == registration->freed_by;
	char *at = out_reserve();
	char number[24];

	*put_hex(number, registration->addr) = '\0';
	at = put_left(put_text(at, "  "), number, 15);
	at = put_right(at, bytes_text(registration->size).text, 10);
	at = put_right(at, duration_text(registration->ts).text, 10);
	at = put_decimal_right(at, registration->tid, 9);
	if (reader_files(reader) > 1)
		at = put_decimal_right(at, reader_rank_or_pid(reader, file), 8);
	at = put_text(put_text(at, "  "), registration_fate(registration));
	*at++ = '\n';
	out_commit(at);
	if (as_above) {
		out_print("      %sas above%s\n", out_dim(), out_plain());
		return;
	}
	print_code(file, "registered by", registration->made_by);
	print_code(file, "freed by", registration->freed_by);
}

void registrations_print(const struct holders *holders, const struct reader *reader, unsigned max)
{
	unsigned shown = holders->registration_count < max ? holders->registration_count : max;

	if (!shown)
		return;
	out_print("\n%sFreed while the program had a registration of it%s\n", out_bold(),
		  out_plain());
	out_print("  %saddress              size  freed at   thread%s  registration%s\n", out_dim(),
		  reader_process_title(reader), out_plain());
	for (unsigned i = 0; i < shown; i++)
		print_registration(&holders->registrations[i],
				   i ? &holders->registrations[i - 1] : NULL, reader);
	if (shown < holders->registrations_all)
		out_print("  and %s more%s\n", count_text(holders->registrations_all - shown).text,
			  shown < holders->registration_count ? " (--all shows them)" : "");
}
