// SPDX-License-Identifier: MIT
/* Follows the program's allocations, and adds them up by call stack and by caller. */
#include "tools/report/allocations.h"

#include <string.h>

#include "tools/base/memory.h"
#include "tools/trace/symbols.h"

enum memory_call memory_call_of(const char *name)
{
	static const struct {
		const char *name;
		enum memory_call call;
	} calls[] = {
		{"cuMemAlloc", MEMORY_BEGINS},
		{"cuMemAlloc_v2", MEMORY_BEGINS},
		{"cuMemAllocAsync", MEMORY_BEGINS},
		{"cuMemAllocAsync_ptsz", MEMORY_BEGINS},
		{"cuMemAllocFromPoolAsync", MEMORY_BEGINS},
		{"cuMemAllocFromPoolAsync_ptsz", MEMORY_BEGINS},
		{"cuMemAllocManaged", MEMORY_BEGINS},
		{"cuMemAllocPitch", MEMORY_BEGINS},
		{"cuMemAllocPitch_v2", MEMORY_BEGINS},
		{"cuMemMap", MEMORY_IS_MAPPED},
		{"cuMemFree", MEMORY_ENDS},
		{"cuMemFree_v2", MEMORY_ENDS},
		{"cuMemFreeAsync", MEMORY_ENDS},
		{"cuMemFreeAsync_ptsz", MEMORY_ENDS},
		{"cuMemUnmap", MEMORY_IS_UNMAPPED},
		{"cuCtxCreate", CONTEXT_BEGINS},
		{"cuCtxCreate_v2", CONTEXT_BEGINS},
		{"cuCtxCreate_v3", CONTEXT_BEGINS},
		{"cuCtxCreate_v4", CONTEXT_BEGINS},
		{"cuCtxDestroy", CONTEXT_ENDS},
		{"cuCtxDestroy_v2", CONTEXT_ENDS},
		{"cuDevicePrimaryCtxRetain", CONTEXT_IS_RETAINED},
		{"cuDevicePrimaryCtxRelease", CONTEXT_IS_RELEASED},
		{"cuDevicePrimaryCtxRelease_v2", CONTEXT_IS_RELEASED},
		{"cuDevicePrimaryCtxReset", CONTEXT_IS_RESET},
		{"cuDevicePrimaryCtxReset_v2", CONTEXT_IS_RESET},
	};

	for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (strcmp(name, calls[i].name) == 0)
			return calls[i].call;
	return MEMORY_STAYS;
}

/* ---- stacks --------------------------------------------------------------------------------- */

void allocations_begin(struct allocations *all, const struct reader *reader)
{
	all->files = reader_files(reader);
	all->contexts = allocate((all->files + 1) * sizeof(*all->contexts));
	all->stack_of = allocate((all->files + 1) * sizeof(*all->stack_of));
	for (unsigned i = 0; i < all->files; i++) {
		const struct trace_file *file = reader_file(reader, i);

		all->stack_of[i] = allocate(((size_t)file->stack_count + file->call_count + 1) *
					    sizeof(uint32_t));
	}
}

/* The place of an event's stack in the list of its file; without a stack, of its call. */
static unsigned place_of(const struct event *event)
{
	const struct trace_file *file = event->file;
	unsigned low = 0, high = file->stack_count, call = event->record.call;

	while (event->record.stack && low < high) {
		unsigned middle = low + (high - low) / 2;

		if (file->stacks[middle].number < event->record.stack)
			low = middle + 1;
		else
			high = middle;
	}
	if (event->record.stack && low < file->stack_count &&
	    file->stacks[low].number == event->record.stack)
		return low;
	return file->stack_count + (call < file->call_count ? call : file->call_count);
}

static uint32_t stack_of(struct allocations *all, const struct event *event)
{
	unsigned place = place_of(event);
	uint32_t *index = &all->stack_of[event->file->index][place];

	if (!*index) {
		all->stacks = grow(all->stacks, &all->stack_capacity, all->stack_count,
				   sizeof(*all->stacks));
		all->stacks[all->stack_count] = (struct stack_memory){
			.file = event->file->index,
			.stack = place < event->file->stack_count ? event->record.stack : 0,
			.call = event->record.call};
		*index = ++all->stack_count;
	}
	return *index - 1;
}

/*
 * The bytes of each stack at the peak, without a copy of all of them at each new peak: a stack's
 * bytes are those of the last peak until they change for the first time after it.
 */
static void settle(const struct allocations *all, struct stack_memory *stack)
{
	if (stack->peak == all->peak_number)
		return;
	stack->at_peak = stack->now;
	stack->peak = all->peak_number;
}

static void change(struct allocations *all, uint32_t index, uint64_t more, uint64_t less)
{
	struct stack_memory *stack = &all->stacks[index];

	settle(all, stack);
	stack->now += more - less;
	all->now += more - less;
}

static void note_peak(struct allocations *all, uint64_t ts)
{
	if (all->now <= all->peak)
		return;
	all->peak = all->now;
	all->peak_at = ts;
	all->peak_number++;
}

/* ---- memory --------------------------------------------------------------------------------- */

static void end_memory(struct allocations *all, struct region *memory)
{
	change(all, memory->pin_stack, 0, memory->size);
	all->contexts[memory->file].allocations -= !memory->number;
	regions_remove(&all->live, memory);
}

static void begin_memory(struct allocations *all, const struct event *event, bool is_mapping)
{
	const struct record *record = &event->record;
	uint32_t file = event->file->index, index = stack_of(all, event);
	struct region *memory = regions_find(&all->live, file, is_mapping, record->addr);

	/* Its free was lost, or began in another thread before this call returned. */
	if (memory)
		end_memory(all, memory);
	memory = regions_add(&all->live, file, is_mapping, record->addr);
	memory->addr = record->addr;
	memory->size = record->size;
	memory->pinned_at = event->ts;
	memory->freed_at = event->ts + event->took;
	memory->pin_stack = index;
	change(all, index, record->size, 0);
	all->contexts[file].allocations += !is_mapping;
	all->stacks[index].total += record->size;
	all->stacks[index].count++;
	all->total += record->size;
	all->count++;
	note_peak(all, event->ts);
}

/* A free that began before this memory was there was of the memory before it at that address. */
static struct region *memory_of(const struct allocations *all, const struct event *event,
				bool is_mapping, uint64_t addr)
{
	struct region *memory = regions_find(&all->live, event->file->index, is_mapping, addr);

	return memory && event->ts >= memory->freed_at ? memory : NULL;
}

static void free_memory(struct allocations *all, const struct event *event)
{
	struct region *memory = memory_of(all, event, false, event->record.addr);

	if (memory)
		end_memory(all, memory);
}

/* One call can unmap several mappings, if they lie side by side. */
static void unmap_memory(struct allocations *all, const struct event *event)
{
	uint64_t addr = event->record.addr, left = event->record.size;
	struct region *memory;

	while (left && (memory = memory_of(all, event, true, addr))) {
		uint64_t size = memory->size;

		end_memory(all, memory);
		if (!size || size > left)
			break;
		addr += size;
		left -= size;
	}
}

/* ---- contexts ------------------------------------------------------------------------------- */

static void leave_unfreed(struct allocations *all, const struct region *memory)
{
	struct stack_memory *stack = &all->stacks[memory->pin_stack];

	stack->unfreed += memory->size;
	stack->unfreed_count++;
}

/* Mappings do not belong to a context. Removal moves others: look at the slot again. */
static void end_with_context(struct allocations *all, uint32_t file)
{
	for (uint32_t i = 0; i < all->live.capacity && all->contexts[file].allocations;) {
		struct region *memory = &all->live.slots[i];

		if (!memory->used || memory->file != file || memory->number) {
			i++;
			continue;
		}
		leave_unfreed(all, memory);
		all->unfreed.with_context++;
		end_memory(all, memory);
	}
}

static void note_primary(struct contexts *contexts, uint64_t primary)
{
	if (!contexts->primary)
		contexts->primary = primary;
	else if (contexts->primary != primary)
		contexts->primary = ~0ull;
}

/* The trace names the device of a reset, not the context: it must be the only one. */
static bool resets_all(const struct contexts *contexts)
{
	return !contexts->created && contexts->primary && contexts->primary != ~0ull;
}

static void count_context(struct allocations *all, const struct event *event, enum memory_call call)
{
	uint32_t file = event->file->index;
	struct contexts *contexts = &all->contexts[file];
	uint64_t *count = call == CONTEXT_BEGINS || call == CONTEXT_ENDS ? &contexts->created
									 : &contexts->retained;

	if (call == CONTEXT_IS_RESET) {
		if (resets_all(contexts))
			end_with_context(all, file);
		return;
	}
	if (call == CONTEXT_IS_RETAINED)
		note_primary(contexts, event->record.extra);
	if (call == CONTEXT_BEGINS || call == CONTEXT_IS_RETAINED) {
		++*count;
		return;
	}
	if (!*count)
		return; /* its begin is not in the trace */
	--*count;
	if (!contexts->created && !contexts->retained)
		end_with_context(all, file);
}

/* ---- all ------------------------------------------------------------------------------------ */

void allocations_count(struct allocations *all, const struct event *event, enum memory_call call)
{
	if (event->record.result != 0)
		return;
	switch (call) {
	case MEMORY_STAYS:
		break;
	case MEMORY_BEGINS:
	case MEMORY_IS_MAPPED:
		if (event->record.addr && event->record.size)
			begin_memory(all, event, call == MEMORY_IS_MAPPED);
		break;
	case MEMORY_ENDS:
		free_memory(all, event);
		break;
	case MEMORY_IS_UNMAPPED:
		unmap_memory(all, event);
		break;
	case CONTEXT_BEGINS:
	case CONTEXT_ENDS:
	case CONTEXT_IS_RETAINED:
	case CONTEXT_IS_RELEASED:
	case CONTEXT_IS_RESET:
		count_context(all, event, call);
		break;
	}
}

static int compare_names(const void *a, const void *b)
{
	const struct site_memory *one = a, *other = b;
	int difference = strcmp(one->caller ? one->caller : "", other->caller ? other->caller : "");

	return difference ? difference : strcmp(one->call, other->call);
}

static int compare_bytes(const void *a, const void *b)
{
	const struct site_memory *one = a, *other = b;

	if (one->at_peak != other->at_peak)
		return one->at_peak > other->at_peak ? -1 : 1;
	if (one->total != other->total)
		return one->total > other->total ? -1 : 1;
	return compare_names(a, b);
}

static void add_up(struct allocations *all)
{
	unsigned kept = 0;

	if (!all->site_count)
		return;
	sort(all->sites, all->site_count, sizeof(*all->sites), compare_names);
	for (unsigned i = 1; i < all->site_count; i++) {
		struct site_memory *last = &all->sites[kept], *next = &all->sites[i];

		if (compare_names(last, next) != 0) {
			all->sites[++kept] = *next;
			continue;
		}
		last->at_peak += next->at_peak;
		last->total += next->total;
		last->count += next->count;
		last->unfreed += next->unfreed;
		last->unfreed_count += next->unfreed_count;
	}
	all->site_count = kept + 1;
	sort(all->sites, all->site_count, sizeof(*all->sites), compare_bytes);
}

void allocations_end(struct allocations *all, const struct reader *reader)
{
	for (uint32_t i = 0; i < all->live.capacity; i++) {
		const struct region *memory = &all->live.slots[i];

		if (!memory->used)
			continue;
		leave_unfreed(all, memory);
		all->unfreed.cut_off += !reader_file(reader, memory->file)->header.end.ticks;
	}
	for (unsigned i = 0; i < all->stack_count; i++) {
		struct stack_memory *stack = &all->stacks[i];
		const struct trace_file *file = reader_file(reader, stack->file);
		const char *call = trace_file_call(file, stack->call);

		settle(all, stack);
		all->sites =
			grow(all->sites, &all->site_capacity, all->site_count, sizeof(*all->sites));
		all->sites[all->site_count++] = (struct site_memory){
			.caller = stack->stack ? symbols_caller_text(file, stack->stack) : NULL,
			.call = call ? call : "(unknown)",
			.at_peak = stack->at_peak,
			.total = stack->total,
			.count = stack->count,
			.unfreed = stack->unfreed,
			.unfreed_count = stack->unfreed_count};
	}
	add_up(all);
}

static int compare_unfreed(const void *a, const void *b)
{
	const struct stack_memory *one = *(struct stack_memory *const *)a,
				  *other = *(struct stack_memory *const *)b;

	if (one->unfreed != other->unfreed)
		return one->unfreed > other->unfreed ? -1 : 1;
	return (one > other) - (one < other);
}

const struct stack_memory **allocations_unfreed(const struct allocations *all, unsigned *count)
{
	const struct stack_memory **sorted = allocate((all->stack_count + 1) * sizeof(*sorted));

	*count = 0;
	for (unsigned i = 0; i < all->stack_count; i++)
		if (all->stacks[i].unfreed_count)
			sorted[(*count)++] = &all->stacks[i];
	sort(sorted, *count, sizeof(*sorted), compare_unfreed);
	return sorted;
}

void allocations_free(struct allocations *all)
{
	for (unsigned i = 0; i < all->files; i++)
		release(all->stack_of[i]);
	release(all->stack_of);
	release(all->contexts);
	release(all->stacks);
	release(all->sites);
	regions_free(&all->live);
}
