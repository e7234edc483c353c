// SPDX-License-Identifier: MIT
/* Counts calls and pins by call stack, then adds up the stacks of each call site. */
#include "tools/report/sites.h"

#include <stdlib.h>
#include <string.h>

#include "tools/base/memory.h"
#include "tools/trace/symbols.h"

void sites_begin(struct sites *sites, const struct reader *reader)
{
	sites->files = reader_files(reader);
	sites->of_file = allocate((sites->files + 1) * sizeof(*sites->of_file));
	for (unsigned i = 0; i < sites->files; i++) {
		const struct trace_file *file = reader_file(reader, i);

		if (file->stack_count)
			sites->of_file[i] =
				allocate(file->stack_count * sizeof(struct stack_count));
	}
}

/* The index of a stack in the file's list; stack_count when the file does not have it. */
static unsigned index_of(const struct trace_file *file, uint32_t number)
{
	unsigned low = 0, high = file->stack_count;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;

		if (file->stacks[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low < file->stack_count && file->stacks[low].number == number ? low
									     : file->stack_count;
}

void sites_count(struct sites *sites, const struct event *event)
{
	const struct record *record = &event->record;
	struct stack_count *count;
	unsigned i;

	if (!record->stack || !sites->of_file[event->file->index])
		return;
	i = index_of(event->file, record->stack);
	if (i == event->file->stack_count)
		return;
	count = &sites->of_file[event->file->index][i];
	if (record->event == PDN_EV_CALL) {
		count->call = record->call;
		count->calls++;
		count->calls_ns += event->took;
		count->calls_bytes += record->size;
		count->calls_failed += record->result != 0;
	} else if (record->event == PDN_EV_PIN) {
		count->pins++;
		count->pins_ns += event->took;
		count->pins_bytes += record->pin_size;
		count->pins_failed += record->result != 0;
	}
}

static void add(struct sites *sites, struct site site)
{
	if (!site.count || !site.caller)
		return;
	sites->list = grow(sites->list, &sites->capacity, sites->count, sizeof(*sites->list));
	sites->list[sites->count++] = site;
}

static int compare_names(const void *a, const void *b)
{
	const struct site *one = a, *other = b;
	int difference = strcmp(one->caller, other->caller);

	return difference ? difference : strcmp(one->what, other->what);
}

static int compare_time(const void *a, const void *b)
{
	const struct site *one = a, *other = b;

	if (one->ns != other->ns)
		return one->ns > other->ns ? -1 : 1;
	if (one->count != other->count)
		return one->count > other->count ? -1 : 1;
	return compare_names(a, b);
}

static void add_up(struct sites *sites)
{
	unsigned kept = 0;

	sort(sites->list, sites->count, sizeof(*sites->list), compare_names);
	for (unsigned i = 1; i < sites->count; i++) {
		struct site *last = &sites->list[kept], *next = &sites->list[i];

		if (compare_names(last, next) != 0) {
			sites->list[++kept] = *next;
			continue;
		}
		last->count += next->count;
		last->failed += next->failed;
		last->ns += next->ns;
		last->bytes += next->bytes;
	}
	sites->count = kept + 1;
	sort(sites->list, sites->count, sizeof(*sites->list), compare_time);
}

void sites_sum_up(struct sites *sites, const struct reader *reader)
{
	for (unsigned i = 0; i < sites->files; i++) {
		const struct trace_file *file = reader_file(reader, i);

		for (unsigned j = 0; sites->of_file[i] && j < file->stack_count; j++) {
			const struct stack_count *of = &sites->of_file[i][j];
			const char *caller = NULL, *call = trace_file_call(file, of->call);

			if (of->calls || of->pins)
				caller = symbols_caller_text(file, file->stacks[j].number);
			add(sites, (struct site){caller, call ? call : "(unknown)", of->calls,
						 of->calls_failed, of->calls_ns, of->calls_bytes});
			add(sites, (struct site){caller, "pin", of->pins, of->pins_failed,
						 of->pins_ns, of->pins_bytes});
		}
	}
	if (sites->count)
		add_up(sites);
}

void sites_free(struct sites *sites)
{
	for (unsigned i = 0; i < sites->files; i++)
		release(sites->of_file[i]);
	release(sites->of_file);
	release(sites->list);
}
