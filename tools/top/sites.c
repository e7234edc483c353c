// SPDX-License-Identifier: MIT
/* Finds the call sites of memory that is still pinned at the end of a trace. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "tools/top/bar.h"
#include "tools/base/memory.h"
#include "tools/trace/reader.h"
#include "tools/trace/regions.h"
#include "tools/trace/symbols.h"

static void take(struct regions *regions, const struct event *event)
{
	const struct record *record = &event->record;
	struct region *region;

	if (record->event != PDN_EV_PIN && record->event != PDN_EV_UNPIN)
		return;
	region = regions_find(regions, event->file->index, record->region, record->buffer_id);
	if (record->event == PDN_EV_UNPIN) {
		if (region)
			regions_remove(regions, region);
		return;
	}
	if (record->result != 0)
		return;
	if (!region)
		region =
			regions_add(regions, event->file->index, record->region, record->buffer_id);
	region->pin_size = record->pin_size;
	region->pin_stack = record->stack;
}

static void add_region(struct sites *sites, const struct reader *reader,
		       const struct region *region)
{
	const char *name =
		region->pin_stack
			? symbols_caller_text(reader_file(reader, region->file), region->pin_stack)
			: NULL;

	sites->list = grow(sites->list, &sites->capacity, sites->count, sizeof(*sites->list));
	sites->list[sites->count++] = (struct site){
		.name = name ? name : "unknown: the trace was made without PINDOWN_TRACE_STACKS",
		.bytes = region->pin_size,
		.regions = 1,
	};
}

static int by_name(const void *a, const void *b)
{
	const struct site *of_a = a, *of_b = b;

	return strcmp(of_a->name, of_b->name);
}

/* Adds up the sites of the same name; before, each region has its own. */
static void add_up(struct sites *sites)
{
	unsigned last = 0;

	sort(sites->list, sites->count, sizeof(*sites->list), by_name);
	for (unsigned i = 1; i < sites->count; i++) {
		const struct site *site = &sites->list[i];

		if (by_name(&sites->list[last], site) != 0) {
			sites->list[++last] = *site;
			continue;
		}
		sites->list[last].bytes += site->bytes;
		sites->list[last].regions += site->regions;
	}
	sites->count = last + 1;
}

static int by_bytes(const void *a, const void *b)
{
	const struct site *of_a = a, *of_b = b;

	return of_a->bytes < of_b->bytes ? 1 : -(of_a->bytes > of_b->bytes);
}

bool sites_read(struct sites *sites, const struct texts *traces)
{
	static struct reader *reader; /* stays open: it has the names of the sites */
	struct regions regions = {0};
	struct event event;

	reader = reader_open(traces->list, traces->count);
	if (!reader)
		return false;
	while (reader_next(reader, &event))
		take(&regions, &event);
	reader_complain(reader);
	for (uint32_t i = 0; i < regions.capacity; i++)
		if (regions.slots[i].used)
			add_region(sites, reader, &regions.slots[i]);
	regions_free(&regions);
	if (sites->count) {
		add_up(sites);
		sort(sites->list, sites->count, sizeof(*sites->list), by_bytes);
	}
	return true;
}
