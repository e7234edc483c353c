// SPDX-License-Identifier: MIT
/* Counts and prints registrations and dma-bufs that outlived their memory. */
#include "tools/report/holders.h"

#include <stdlib.h>
#include <string.h>

#include "tools/base/memory.h"
#include "cache/pindown.h"
#include "tools/base/out.h"
#include "tools/trace/symbols.h"

/* ---- counting ------------------------------------------------------------------------------- */

/* A program has a handful of consumers. The last of MAX_CONSUMERS stands for all others. */
static struct consumer *consumer_of(struct holders *holders, const struct record *record)
{
	struct consumer *consumer;

	for (unsigned i = 0; i < holders->consumer_count; i++) {
		consumer = &holders->consumers[i];
		if (strlen(consumer->name) == record->text_length &&
		    (!record->text_length ||
		     memcmp(consumer->name, record->text, record->text_length) == 0))
			return consumer;
	}
	if (holders->consumer_count == MAX_CONSUMERS)
		return &holders->consumers[MAX_CONSUMERS - 1];
	holders->consumers = grow(holders->consumers, &holders->consumer_capacity,
				  holders->consumer_count, sizeof(*holders->consumers));
	consumer = &holders->consumers[holders->consumer_count++];
	memset(consumer, 0, sizeof(*consumer));
	if (holders->consumer_count == MAX_CONSUMERS)
		strcpy(consumer->name, "(others)");
	else if (record->text_length)
		memcpy(consumer->name, record->text, record->text_length);
	return consumer;
}

static void count_held(struct holders *holders, const struct event *event)
{
	const struct record *record = &event->record;
	struct consumer *consumer = consumer_of(holders, record);

	consumer->held += record->extra;
	consumer->held_regions++;
	consumer->held_bytes += record->pin_size;
	if (record->reason != PINDOWN_REASON_ORDERED)
		answers_add(holders->answers, event->file->index, ANSWER_HELD,
			    (int64_t)record->extra, (int64_t)record->pin_size);
}

static void lessen(uint64_t *count, uint64_t by)
{
	*count -= *count < by ? *count : by;
}

void holders_cured(struct holders *holders, const struct event *event, bool first)
{
	struct consumer *consumer = consumer_of(holders, &event->record);
	uint64_t bytes = first ? event->record.pin_size : 0;

	lessen(&consumer->held, 1);
	lessen(&consumer->held_regions, first);
	lessen(&consumer->held_bytes, bytes);
	answers_add(holders->answers, event->file->index, ANSWER_HELD, -1, -(int64_t)bytes);
}

static void add_export(struct holders *holders, const struct event *event)
{
	const struct record *record = &event->record;

	holders->exports = grow(holders->exports, &holders->export_capacity, holders->export_count,
				sizeof(*holders->exports));
	holders->exports[holders->export_count++] = (struct export){.file = event->file->index,
								    .number = record->number,
								    .tid = event->tid,
								    .stack = record->stack,
								    .ts = event->ts,
								    .addr = record->addr,
								    .size = record->size};
}

static void add_outlived(struct holders *holders, const struct event *event)
{
	const struct record *record = &event->record;
	bool is_ordered = record->reason == PINDOWN_REASON_ORDERED;

	answers_add(holders->answers, event->file->index,
		    is_ordered ? ANSWER_EXPORTS_ORDERED : ANSWER_EXPORTS, 1, (int64_t)record->size);
	if (is_ordered || holders->outlived_count == MAX_OUTLIVED)
		return;
	holders->outlived = grow(holders->outlived, &holders->outlived_capacity,
				 holders->outlived_count, sizeof(*holders->outlived));
	holders->outlived[holders->outlived_count++] =
		(struct outlived){.made = {.file = event->file->index, .number = record->number},
				  .ts = event->ts,
				  .addr = record->addr,
				  .size = record->size,
				  .fd = record->extra,
				  .tid = event->tid,
				  .open = record->flags & PDN_TRACE_IN_USE,
				  .imported = record->flags & PDN_TRACE_IMPORTED};
}

void holders_count(struct holders *holders, const struct event *event)
{
	const struct record *record = &event->record;
	struct consumer *consumer;

	switch (record->event) {
	case PDN_EV_REGISTER:
		consumer = consumer_of(holders, record);
		consumer->made += record->result == 0;
		consumer->failed += record->result != 0;
		break;
	case PDN_EV_DEREGISTER:
		consumer = consumer_of(holders, record);
		consumer->destroyed++;
		consumer->revoked += !!(record->flags & PDN_TRACE_IN_USE);
		break;
	case PDN_EV_HELD:
		count_held(holders, event);
		break;
	case PDN_EV_EXPORT:
		add_export(holders, event);
		break;
	case PDN_EV_OUTLIVED:
		add_outlived(holders, event);
		break;
	case PDN_EV_HOLDER:
	case PDN_EV_RETIRE:
		registrations_count(holders, event);
		break;
	default:
		break;
	}
}

static int compare_exports(const void *a, const void *b)
{
	const struct export *one = a, *other = b;

	if (one->file != other->file)
		return one->file < other->file ? -1 : 1;
	return (one->number > other->number) - (one->number < other->number);
}

void holders_match(struct holders *holders, const struct reader *reader)
{
	registrations_match(holders, reader);
	if (!holders->export_count)
		return;
	sort(holders->exports, holders->export_count, sizeof(*holders->exports), compare_exports);
	for (unsigned i = 0; i < holders->outlived_count; i++) {
		struct outlived *outlived = &holders->outlived[i];
		const struct export *made =
			bsearch(&outlived->made, holders->exports, holders->export_count,
				sizeof(*holders->exports), compare_exports);

		if (made)
			outlived->made = *made;
	}
}

void holders_free(struct holders *holders)
{
	release(holders->exports);
	release(holders->outlived);
	release(holders->registrations);
	regions_free(&holders->freed);
	release(holders->consumers);
}

/* ---- printing ------------------------------------------------------------------------------- */

static void print_consumer(const struct consumer *consumer)
{
	char *at = out_reserve();

	at = put_left(put_text(at, "  "), *consumer->name ? consumer->name : "-", 12);
	at = put_right(at, count_text(consumer->made).text, 10);
	at = put_right(at, count_text(consumer->failed).text, 8);
	at = put_right(at, count_text(consumer->destroyed).text, 11);
	at = put_right(at, count_text(consumer->revoked).text, 9);
	at = put_right(at, count_text(consumer->held).text, 8);
	at = put_right(at, count_text(consumer->held_regions).text, 9);
	at = put_right(at, bytes_text(consumer->held_bytes).text, 10);
	*at++ = '\n';
	out_commit(at);
}

static void print_consumers(const struct holders *holders, unsigned max)
{
	unsigned shown = holders->consumer_count < max ? holders->consumer_count : max;

	if (!shown)
		return;
	out_print("\n%sRegistrations%s\n", out_bold(), out_plain());
	out_print("  %sconsumer          made  failed  destroyed  by free    held  regions"
		  "     bytes%s\n",
		  out_dim(), out_plain());
	for (unsigned i = 0; i < shown; i++)
		print_consumer(&holders->consumers[i]);
	if (shown < holders->consumer_count)
		out_print("  and %u more (--all shows them)\n", holders->consumer_count - shown);
}

const char *outlived_state(const struct outlived *outlived)
{
	if (outlived->imported)
		return outlived->open ? "open, registered" : "registered";
	return "open";
}

static void print_outlived(const struct outlived *outlived, const struct reader *reader)
{
	const struct trace_file *file = reader_file(reader, outlived->made.file);
	const struct export *made = &outlived->made;
	char *at = out_reserve();
	char number[24];

	*put_hex(number, outlived->addr) = '\0';
	at = put_left(put_text(at, "  "), number, 15);
	at = put_right(at, bytes_text(outlived->size).text, 9);
	at = put_right(at, made->tid ? duration_text(made->ts).text : "-", 12);
	if (made->tid)
		at = put_decimal_right(at, made->tid, 8);
	else
		at = put_right(at, "-", 8);
	at = put_right(at, duration_text(outlived->ts).text, 10);
	at = put_decimal_right(at, outlived->tid, 8);
	at = put_decimal_right(at, outlived->fd, 6);
	if (reader_files(reader) > 1)
		at = put_decimal_right(at, reader_rank_or_pid(reader, file), 8);
	at = put_text(put_text(at, "\n      "), out_dim());
	at = put_text(put_text(at, "exported by  "), out_plain());
	at = put_maker(at, file, made->stack);
	at = put_text(put_text(at, "; then "), outlived_state(outlived));
	*at++ = '\n';
	out_commit(at);
}

static void print_all_outlived(const struct holders *holders, const struct reader *reader,
			       unsigned max)
{
	unsigned shown = holders->outlived_count < max ? holders->outlived_count : max;
	uint64_t count = holders->answers->all[ANSWER_EXPORTS].count;

	if (!shown)
		return;
	out_print("\n%sFreed while the program had a dma-buf of it open%s\n", out_bold(),
		  out_plain());
	out_print("  %saddress             size exported at  thread  freed at  thread    fd%s%s\n",
		  out_dim(), reader_process_title(reader), out_plain());
	for (unsigned i = 0; i < shown; i++)
		print_outlived(&holders->outlived[i], reader);
	if (shown < count)
		out_print("  and %s more%s\n", count_text(count - shown).text,
			  shown < holders->outlived_count ? " (--all shows them)" : "");
}

void holders_print(const struct holders *holders, const struct reader *reader, unsigned max)
{
	registrations_print(holders, reader, max);
	print_all_outlived(holders, reader, max);
	print_consumers(holders, max);
}
