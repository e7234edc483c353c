// SPDX-License-Identifier: MIT
/* Counts the events of a trace in one pass. */
#include "tools/report/tally.h"

#include <stdlib.h>
#include <string.h>

#include "tools/base/memory.h"
#include "cache/pindown.h"

/* ---- calls ---------------------------------------------------------------------------------- */

static unsigned find_call(struct tally *tally, const char *name)
{
	for (unsigned i = 0; i < tally->call_count; i++)
		if (strcmp(tally->calls[i].name, name) == 0)
			return i;
	tally->calls =
		grow(tally->calls, &tally->call_capacity, tally->call_count, sizeof(*tally->calls));
	tally->calls[tally->call_count] =
		(struct call_tally){.name = name, .memory = memory_call_of(name)};
	return tally->call_count++;
}

static struct call_tally *call_of(struct tally *tally, const struct event *event)
{
	const struct trace_file *file = event->file;
	unsigned call = event->record.call, *index = tally->call_index[file->index], found;

	if (call < file->call_count && index[call] != ~0u)
		return &tally->calls[index[call]];
	/* All calls without a name are counted together. */
	found = find_call(tally, call < file->call_count ? file->calls[call] : "(unknown)");
	if (call < file->call_count)
		index[call] = found;
	return &tally->calls[found]; /* only now: find_call() may have moved the array */
}

/* ---- memory that is reused ------------------------------------------------------------------ */

static void watch_for_reuse(struct reused *reused, const struct region *region)
{
	unsigned at = reused->kept_count;

	if (at == MAX_WATCHED)
		return;
	reused->kept_count++;
	reused->kept[at].addr = region->addr;
	reused->kept[at].size = region->size;
	reused->kept[at].buffer_id = region->buffer_id;
	reused->kept[at].file = region->file;
	reused->kept[at].number = region->number;
}

static void stop_watching(struct reused *reused, unsigned at)
{
	reused->kept[at] = reused->kept[--reused->kept_count];
}

static void unpinned(struct reused *reused, const struct region *region)
{
	for (unsigned i = reused->kept_count; i-- > 0;)
		if (reused->kept[i].file == region->file &&
		    reused->kept[i].number == region->number &&
		    reused->kept[i].buffer_id == region->buffer_id)
			stop_watching(reused, i);
}

static void handed_out(struct reused *reused, const struct event *event)
{
	uint64_t addr = event->record.addr, size = event->record.size;

	for (unsigned i = reused->kept_count; i-- > 0;)
		if (reused->kept[i].file == event->file->index &&
		    addr < reused->kept[i].addr + reused->kept[i].size &&
		    reused->kept[i].addr < addr + size) {
			reused->count++;
			stop_watching(reused, i);
		}
}

static void count_memory(struct tally *tally, const struct event *event, enum memory_call call)
{
	uint64_t before = tally->allocations.now;

	allocations_count(&tally->allocations, event, call);
	if (tally->allocations.now == before)
		return;
	timeline_set(&tally->allocated, event->ts, tally->allocations.now);
	timeline_set(&tally->allocated_fine, event->ts, tally->allocations.now);
}

static void count_call(struct tally *tally, const struct event *event)
{
	struct call_tally *call = call_of(tally, event);

	if (tally->reused.kept_count && event->record.result == 0 &&
	    strncmp(call->name, "cuMemAlloc", strlen("cuMemAlloc")) == 0)
		handed_out(&tally->reused, event);
	if (call->memory != MEMORY_STAYS)
		count_memory(tally, event, call->memory);
	call->count++;
	call->ns += event->took;
	if (event->took > call->max_ns)
		call->max_ns = event->took;
	if (event->record.result != 0) {
		call->failed++;
		answers_add(&tally->answers, event->file->index, ANSWER_FAILED_CALLS, 1, 0);
	}
}

/* ---- regions -------------------------------------------------------------------------------- */

static void advance_timeline(struct tally *tally, uint64_t ts)
{
	uint64_t column =
		tally->span ? (uint64_t)((__uint128_t)ts * tally->columns / tally->span) : 0;

	if (column >= tally->columns)
		column = tally->columns - 1;
	while (tally->column < column)
		tally->timeline[++tally->column] = tally->all.bytes;
	if (tally->all.bytes > tally->timeline[tally->column])
		tally->timeline[tally->column] = tally->all.bytes;
}

static struct pin_tally *device_of(struct tally *tally, int16_t device)
{
	struct pin_tally *of = &tally->device[device >= 0 && device < DEVICES ? device : DEVICES];

	of->seen = true;
	return of;
}

static void add_pin(struct pin_tally *to, const struct event *event)
{
	to->ns += event->took;
	if (event->record.result != 0) {
		to->failed++;
		return;
	}
	to->pins++;
	to->regions++;
	to->bytes += event->record.pin_size;
	if (to->regions > to->peak_regions)
		to->peak_regions = to->regions;
	if (to->bytes > to->peak_bytes) {
		to->peak_bytes = to->bytes;
		to->peak_at = event->ts;
	}
}

static void end_pin(struct pin_tally *of, const struct region *region)
{
	of->unpins++;
	of->regions--;
	of->bytes -= region->pin_size;
}

static void add_finding(struct findings *findings, const struct region *region, uint64_t until)
{
	if (findings->count == MAX_FINDINGS)
		return;
	findings->list =
		grow(findings->list, &findings->capacity, findings->count, sizeof(*findings->list));
	findings->list[findings->count++] = (struct finding){*region, until};
}

static void end_region(struct tally *tally, struct region *region, uint64_t ts, uint32_t stack)
{
	region->unpin_stack = stack;
	end_pin(&tally->all, region);
	end_pin(device_of(tally, region->device), region);
	if (region->freed && !region->is_cured)
		add_finding(region->ordered ? &tally->ordered : &tally->freed, region, ts);
	if (region->freed)
		tally->kept -= region->pin_size;
	if (region->ordered)
		unpinned(&tally->reused, region);
	if (tally->history.columns)
		history_unpin(&tally->history, region, ts);
	regions_remove(&tally->regions, region);
}

static struct region *find_region(const struct tally *tally, const struct event *event)
{
	return regions_find(&tally->regions, event->file->index, event->record.region,
			    event->record.buffer_id);
}

static void count_pin(struct tally *tally, const struct event *event)
{
	const struct record *record = &event->record;
	struct region *region = find_region(tally, event);

	if (record->result == 0) {
		/* The unpin of the former region was lost or is not in the trace. */
		if (region)
			end_region(tally, region, event->ts, 0);
		region = regions_add(&tally->regions, event->file->index, record->region,
				     record->buffer_id);
		region->addr = record->addr;
		region->size = record->size;
		region->pin_size = record->pin_size;
		region->pinned_at = event->ts;
		region->device = record->device;
		region->pin_stack = record->stack;
		if (tally->history.columns)
			history_pin(&tally->history, region);
	}
	answers_add(&tally->answers, event->file->index, ANSWER_FAILED_PINS, record->result != 0,
		    0);
	add_pin(&tally->all, event);
	add_pin(device_of(tally, record->device), event);
}

static void free_region(struct tally *tally, struct region *region, const struct event *event)
{
	region->freed = true;
	region->freed_at = event->ts;
	region->freed_stack = event->record.stack;
	region->ordered = event->record.reason == PINDOWN_REASON_ORDERED;
	if (region->ordered)
		watch_for_reuse(&tally->reused, region);
	tally->kept += region->pin_size;
	if (tally->kept > tally->kept_peak)
		tally->kept_peak = tally->kept;
	if (tally->history.columns)
		history_freed(&tally->history, region);
}

static void count_invalidate(struct tally *tally, const struct event *event, struct region *region)
{
	const struct record *record = &event->record;

	tally->all.invalidations++;
	device_of(tally, record->device)->invalidations++;
	if (record->flags & PDN_TRACE_MISSED) {
		struct region missed = {.addr = record->addr,
					.size = record->size,
					.pin_size = record->pin_size,
					.number = record->region,
					.file = event->file->index,
					.device = record->device,
					.pinned_at = region ? region->pinned_at : event->ts,
					.pin_stack = region ? region->pin_stack : 0,
					.freed_stack = record->stack};

		answers_add(&tally->answers, event->file->index, ANSWER_MISSED, 1, 0);
		add_finding(&tally->missed, &missed, event->ts);
	}
	/* A flush unpins the region, but its memory lives on. */
	if (record->flags & PDN_TRACE_IN_USE && record->reason != PINDOWN_REASON_FLUSHED) {
		answers_add(&tally->answers, event->file->index,
			    record->reason == PINDOWN_REASON_ORDERED ? ANSWER_ORDERED
								     : ANSWER_STALE,
			    1, 0);
		if (region && !region->freed)
			free_region(tally, region, event);
	}
}

/* A map is a dma-buf of a region for one registration, with the mapping that its card needs. */
static void count_map(struct tally *tally, const struct event *event)
{
	struct pin_tally *device = device_of(tally, event->record.device);

	if (event->record.result != 0)
		return;
	device->maps++;
	device->maps_pcie += !!(event->record.flags & PDN_TRACE_PCIE);
}

static void count_region(struct tally *tally, const struct event *event)
{
	const struct record *record = &event->record;
	struct region *region;

	advance_timeline(tally, event->ts);
	region = find_region(tally, event);
	switch (record->event) {
	case PDN_EV_PIN:
		count_pin(tally, event);
		break;
	case PDN_EV_UNPIN:
		if (region)
			end_region(tally, region, event->ts, record->stack);
		break;
	case PDN_EV_EVICT:
		if (record->flags & PDN_TRACE_REPLACED) /* by a wider one: there was room */
			break;
		tally->all.evictions++;
		device_of(tally, record->device)->evictions++;
		break;
	case PDN_EV_INVALIDATE:
		count_invalidate(tally, event, region);
		break;
	default:
		break;
	}
	advance_timeline(tally, event->ts);
}

/* A region that only cured registrations had kept over the free was not stale. */
static void count_deregister(struct tally *tally, const struct event *event)
{
	struct region *region;
	bool first;

	holders_count(&tally->holders, event);
	if (!registrations_cured(&tally->holders, event))
		return;
	region = find_region(tally, event);
	first = region && region->freed && !region->ordered && !region->is_cured;
	if (first) {
		region->is_cured = true;
		answers_add(&tally->answers, region->file, ANSWER_STALE, -1, 0);
	}
	holders_cured(&tally->holders, event, first);
}

/* ---- all ------------------------------------------------------------------------------------ */

static void count_event(struct tally *tally, const struct event *event)
{
	tally->events++;
	tally->events_of[event->record.event]++;
	sites_count(&tally->sites, event);
	switch (event->record.event) {
	case PDN_EV_CALL:
		count_call(tally, event);
		break;
	case PDN_EV_MAP:
		count_map(tally, event);
		break;
	case PDN_EV_DEREGISTER:
		count_deregister(tally, event);
		break;
	case PDN_EV_PIN:
	case PDN_EV_UNPIN:
	case PDN_EV_EVICT:
	case PDN_EV_INVALIDATE:
		count_region(tally, event);
		break;
	case PDN_EV_ERROR:
		answers_add(&tally->answers, event->file->index, ANSWER_ERRORS, 1, 0);
		break;
	default:
		holders_count(&tally->holders, event);
		break;
	}
}

static void count_files(struct tally *tally, const struct reader *reader)
{
	tally->recorded = UINT64_MAX;
	answers_begin(&tally->answers, reader_files(reader));
	tally->holders.answers = &tally->answers;
	tally->call_index = allocate((reader_files(reader) + 1) * sizeof(unsigned *));
	for (unsigned i = 0; i < reader_files(reader); i++) {
		const struct trace_file *file = reader_file(reader, i);
		size_t bytes = (file->call_count + 1) * sizeof(unsigned);

		tally->call_index[i] = memset(allocate(bytes), 0xff, bytes);
		tally->counters.hits += file->counters.hits;
		tally->counters.misses += file->counters.misses;
		tally->counters.tag_checks += file->counters.tag_checks;
		answers_add(&tally->answers, i, ANSWER_LOST, (int64_t)file->counters.lost, 0);
		tally->recorded &= recorded_events(file);
		tally->recorded_by_some |= recorded_events(file);
	}
}

static int compare_left(const void *a, const void *b)
{
	const struct finding *one = a, *other = b;

	if (one->region.freed != other->region.freed)
		return one->region.freed ? -1 : 1;
	return (one->region.pinned_at > other->region.pinned_at) -
	       (one->region.pinned_at < other->region.pinned_at);
}

static int compare_freed(const void *a, const void *b)
{
	const struct finding *one = a, *other = b;

	return (one->region.freed_at > other->region.freed_at) -
	       (one->region.freed_at < other->region.freed_at);
}

static void find_leftovers(struct tally *tally)
{
	for (uint32_t i = 0; i < tally->regions.capacity; i++) {
		const struct region *region = &tally->regions.slots[i];

		if (!region->used)
			continue;
		answers_add(&tally->answers, region->file, ANSWER_LEFT, 1,
			    (int64_t)region->pin_size);
		if (region->freed)
			answers_add(&tally->answers, region->file, ANSWER_LEAKED, 1,
				    (int64_t)region->pin_size);
		add_finding(&tally->left, region, UINT64_MAX);
		if (region->freed && !region->is_cured)
			add_finding(region->ordered ? &tally->ordered : &tally->freed, region,
				    UINT64_MAX);
	}
	sort(tally->left.list, tally->left.count, sizeof(*tally->left.list), compare_left);
	sort(tally->freed.list, tally->freed.count, sizeof(*tally->freed.list), compare_freed);
	sort(tally->ordered.list, tally->ordered.count, sizeof(*tally->ordered.list),
	     compare_freed);
}

static int compare_calls(const void *a, const void *b)
{
	const struct call_tally *one = a, *other = b;

	if (one->ns != other->ns)
		return one->ns > other->ns ? -1 : 1;
	return one->count > other->count ? -1 : one->count < other->count;
}

struct tally *tally_make(struct reader *reader, unsigned columns, unsigned history)
{
	struct tally *tally = allocate(sizeof(*tally));
	struct event event;

	tally->columns = columns;
	tally->timeline = allocate(columns * sizeof(*tally->timeline));
	tally->span = reader_span(reader);
	count_files(tally, reader);
	sites_begin(&tally->sites, reader);
	allocations_begin(&tally->allocations, reader);
	timeline_begin(&tally->allocated, columns, tally->span);
	timeline_begin(&tally->allocated_fine, history, tally->span);
	if (history)
		history_begin(&tally->history, history, tally->span, reader_files(reader));
	while (reader_next(reader, &event))
		count_event(tally, &event);
	advance_timeline(tally, tally->span);
	if (history)
		history_end(&tally->history, &tally->regions);
	timeline_set(&tally->allocated, tally->span, tally->allocations.now);
	timeline_set(&tally->allocated_fine, tally->span, tally->allocations.now);
	allocations_end(&tally->allocations, reader);
	for (unsigned i = 0; i < tally->allocations.stack_count; i++) {
		const struct stack_memory *stack = &tally->allocations.stacks[i];

		answers_add(&tally->answers, stack->file, ANSWER_UNFREED,
			    (int64_t)stack->unfreed_count, (int64_t)stack->unfreed);
	}
	/* Only now: some damage is found while events are read. */
	for (unsigned i = 0; i < reader_files(reader); i++)
		tally->incomplete |= is_incomplete(reader_file(reader, i));
	find_leftovers(tally);
	sites_sum_up(&tally->sites, reader);
	holders_match(&tally->holders, reader);
	sort(tally->calls, tally->call_count, sizeof(*tally->calls), compare_calls);
	return tally;
}

void tally_free(struct tally *tally, const struct reader *reader)
{
	for (unsigned i = 0; i < reader_files(reader); i++)
		release(tally->call_index[i]);
	release(tally->call_index);
	sites_free(&tally->sites);
	history_free(&tally->history);
	timeline_free(&tally->allocated);
	timeline_free(&tally->allocated_fine);
	allocations_free(&tally->allocations);
	answers_free(&tally->answers);
	release(tally->calls);
	release(tally->timeline);
	release(tally->freed.list);
	release(tally->ordered.list);
	release(tally->missed.list);
	release(tally->left.list);
	regions_free(&tally->regions);
	holders_free(&tally->holders);
	release(tally);
}
