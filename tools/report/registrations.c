// SPDX-License-Identifier: MIT
/* Prints the program's registrations whose memory was freed: who made them, and who freed it. */
#include <stdio.h>
#include <string.h>

#include "cache/pindown.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/report/holders.h"
#include "tools/trace/symbols.h"

/* ---- counting ------------------------------------------------------------------------------- */

/* Of the fates, two are answers; the others are counted by addresses, or as held. */
static void count_fate(struct holders *holders, uint32_t file, enum fate fate, int64_t count)
{
	if (fate == FATE_REVOKED || fate == FATE_CURED)
		answers_add(holders->answers, file,
			    fate == FATE_CURED ? ANSWER_CURED : ANSWER_REVOKED, count, 0);
}

/* NULL: the list is full. Those that are over make place then. */
static struct registration *new_registration(struct holders *holders)
{
	struct registration *old;

	if (holders->registration_count < MAX_OUTLIVED) {
		holders->registrations =
			grow(holders->registrations, &holders->registration_capacity,
			     holders->registration_count, sizeof(*holders->registrations));
		return &holders->registrations[holders->registration_count++];
	}
	old = &holders->registrations[holders->registration_turn++ % MAX_OUTLIVED];
	return old->is_over ? old : NULL;
}

static struct region *find_freed(const struct holders *holders, const struct event *event)
{
	return regions_find(&holders->freed, event->file->index, 0, event->record.buffer_id);
}

static void link_to_memory(struct holders *holders, const struct event *event,
			   struct registration *registration)
{
	struct region *freed = find_freed(holders, event);

	if (!freed)
		freed = regions_add(&holders->freed, event->file->index, 0,
				    event->record.buffer_id);
	*(event->record.flags & PDN_TRACE_REVOKED ? &freed->revoked : &freed->kept) += 1;
	if (!registration)
		return;
	registration->next = freed->first;
	freed->first = (uint32_t)(registration - holders->registrations) + 1;
}

static void count_holder(struct holders *holders, const struct event *event)
{
	const struct record *record = &event->record;
	struct registration *registration = new_registration(holders);
	enum fate fate = record->reason == PINDOWN_REASON_ORDERED ? FATE_ORDERED
			 : record->flags & PDN_TRACE_REVOKED	  ? FATE_REVOKED
								  : FATE_KEPT;

	holders->registrations_all++;
	count_fate(holders, event->file->index, fate, 1);
	if (registration)
		*registration = (struct registration){.file = event->file->index,
						      .tid = event->tid,
						      .ts = event->ts,
						      .addr = record->addr,
						      .size = record->size,
						      .made_by = record->origin,
						      .freed_by = record->stack,
						      .object = record->number,
						      .fate = fate};
	if (fate != FATE_ORDERED && !(record->flags & PDN_TRACE_IMPORTED))
		link_to_memory(holders, event, registration);
}

/* `count` registrations on the memory have that fate now. */
static void settle(struct holders *holders, const struct region *freed, uint32_t count,
		   enum fate from, enum fate to)
{
	struct registration *registration;

	count_fate(holders, freed->file, from, -(int64_t)count);
	count_fate(holders, freed->file, to, count);
	for (uint32_t n = freed->first; n; n = registration->next) {
		registration = &holders->registrations[n - 1];
		if (registration->fate == from)
			registration->fate = to;
	}
}

/* Nothing else happens to the memory. */
static void forget(struct holders *holders, struct region *freed)
{
	struct registration *registration;

	for (uint32_t n = freed->first; n; n = registration->next) {
		registration = &holders->registrations[n - 1];
		registration->is_over = registration->fate == FATE_CURED;
	}
	regions_remove(&holders->freed, freed);
}

/* Each address is reserved, then released or dropped; or it escapes, at once or later. */
static void count_retire(struct holders *holders, const struct event *event)
{
	struct region *freed = find_freed(holders, event);

	if (!freed)
		freed = regions_add(&holders->freed, event->file->index, 0,
				    event->record.buffer_id);
	switch (event->record.extra) {
	case PDN_RETIRE_RESERVED:
		settle(holders, freed, freed->revoked, FATE_REVOKED, FATE_CURED);
		freed->cured += freed->revoked;
		freed->revoked = 0;
		freed->reserved = true;
		return;
	case PDN_RETIRE_ESCAPED:
		answers_add(holders->answers, freed->file, ANSWER_ESCAPED, 1, 0);
		settle(holders, freed, freed->revoked, FATE_REVOKED, FATE_ESCAPED);
		settle(holders, freed, freed->cured, FATE_CURED, FATE_ESCAPED);
		break;
	case PDN_RETIRE_DROPPED:
		answers_add(holders->answers, freed->file, ANSWER_DROPPED, 1, 0);
		settle(holders, freed, freed->cured, FATE_CURED, FATE_DROPPED);
		break;
	case PDN_RETIRE_RELEASED:
	case PDN_RETIRE_GIVEN_BACK:
		break;
	default: /* a later version's */
		return;
	}
	forget(holders, freed);
}

void registrations_count(struct holders *holders, const struct event *event)
{
	if (event->record.event == PDN_EV_HOLDER)
		count_holder(holders, event);
	else
		count_retire(holders, event);
}

bool registrations_cured(struct holders *holders, const struct event *event)
{
	struct region *freed = find_freed(holders, event);
	struct registration *registration;
	uint32_t count = 0;

	if (!(event->record.flags & PDN_TRACE_IN_USE) || !freed || !freed->kept)
		return false;
	for (uint32_t n = freed->first; n; n = registration->next) {
		registration = &holders->registrations[n - 1];
		if (registration->fate != FATE_KEPT ||
		    registration->object != event->record.number || count == freed->kept)
			continue;
		registration->fate = FATE_CURED;
		count++;
	}
	count += !count; /* it is not in the list */
	freed->kept -= count;
	freed->cured += count;
	count_fate(holders, freed->file, FATE_CURED, count);
	return true;
}

static int compare_fates(const void *a, const void *b)
{
	const struct registration *one = a, *other = b;

	if (one->fate != other->fate)
		return one->fate < other->fate ? -1 : 1;
	return (one->ts > other->ts) - (one->ts < other->ts);
}

/* A process that was killed, or still runs, might have dropped them. */
void registrations_match(struct holders *holders, const struct reader *reader)
{
	for (uint32_t i = 0; i < holders->freed.capacity; i++) {
		const struct region *freed = &holders->freed.slots[i];

		if (!freed->used || !freed->reserved ||
		    !reader_file(reader, freed->file)->header.end.ticks)
			continue;
		settle(holders, freed, freed->cured, FATE_CURED, FATE_STILL_HELD);
		answers_add(holders->answers, freed->file, ANSWER_STILL_HELD, 1, 0);
	}
	sort(holders->registrations, holders->registration_count, sizeof(*holders->registrations),
	     compare_fates);
}

/* ---- printing ------------------------------------------------------------------------------- */

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
	static const char *const names[FATES] = {
		[FATE_ESCAPED] = "escaped",	  [FATE_DROPPED] = "dropped",
		[FATE_STILL_HELD] = "still held", [FATE_KEPT] = "kept",
		[FATE_REVOKED] = "revoked",	  [FATE_ORDERED] = "freed in stream order",
		[FATE_CURED] = "cured",
	};

	return names[registration->fate];
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
