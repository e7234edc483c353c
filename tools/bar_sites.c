// SPDX-License-Identifier: MIT
/* Who pinned what is still pinned at the end of a trace. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "bar.h"
#include "memory.h"
#include "reader.h"
#include "regions.h"
#include "symbols.h"

static void take(struct regions *regions, const struct event *event)
{
	const struct record *record = &event->record;
	struct region *region;

	if (record->event != PD_EV_PIN && record->event != PD_EV_UNPIN)
		return;
	region = regions_find(regions, event->file->index, record->region, record->buffer_id);
	if (record->event == PD_EV_UNPIN) {
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

static struct site *site_of(struct sites *sites, const char *name)
{
	for (unsigned i = 0; i < sites->count; i++)
		if (strcmp(sites->list[i].name, name) == 0)
			return &sites->list[i];
	sites->list = grow(sites->list, &sites->room, sites->count, sizeof(*sites->list));
	sites->list[sites->count] = (struct site){.name = name};
	return &sites->list[sites->count++];
}

static void add_region(struct sites *sites, const struct reader *reader,
		       const struct region *region)
{
	const char *name =
		region->pin_stack
			? symbols_caller_text(reader_file(reader, region->file), region->pin_stack)
			: NULL;
	struct site *site = site_of(
		sites, name ? name : "not known: the trace was made without PINDOWN_TRACE_STACKS");

	site->bytes += region->pin_size;
	site->regions++;
	sites->bytes += region->pin_size;
	sites->regions++;
}

static int by_bytes(const void *a, const void *b)
{
	const struct site *of_a = a, *of_b = b;

	return of_a->bytes < of_b->bytes ? 1 : -(of_a->bytes > of_b->bytes);
}

bool sites_read(struct sites *sites, char **traces, unsigned count)
{
	static struct reader *reader; /* stays open: it has the names of the sites */
	struct regions regions = {0};
	struct event event;

	reader = reader_open(traces, count);
	if (!reader)
		return false;
	while (reader_next(reader, &event))
		take(&regions, &event);
	for (uint32_t i = 0; i < regions.room; i++)
		if (regions.slots[i].used)
			add_region(sites, reader, &regions.slots[i]);
	regions_free(&regions);
	if (sites->count)
		qsort(sites->list, sites->count, sizeof(*sites->list), by_bytes);
	return true;
}
