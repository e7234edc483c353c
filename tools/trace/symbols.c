// SPDX-License-Identifier: MIT
/* Names for code addresses, each of which is resolved once. */
#define _GNU_SOURCE
#include "tools/trace/symbols.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/base/texts.h"

/* An address that was resolved. */
struct known {
	const struct trace_file *file;
	uint64_t frame;
	struct place *places; /* NULL: free */
	unsigned count;
};

static struct {
	struct known *slots;
	size_t capacity, used;
	const char *folder;
} table;

enum { MAX_INLINED = 32 };

static size_t slot_of(const struct trace_file *file, uint64_t frame)
{
	uint64_t key = (frame ^ (uintptr_t)file * 31) * 0x9e3779b97f4a7c15ull;

	return (size_t)(key >> 20) & (table.capacity - 1);
}

static struct known *find(const struct trace_file *file, uint64_t frame)
{
	size_t i = slot_of(file, frame);

	while (table.slots[i].places &&
	       (table.slots[i].file != file || table.slots[i].frame != frame))
		i = (i + 1) & (table.capacity - 1);
	return &table.slots[i];
}

static void make_larger(void)
{
	struct known *old = table.slots;
	size_t capacity = table.capacity;

	table.capacity = capacity ? capacity * 2 : 1024;
	table.slots = allocate(table.capacity * sizeof(*table.slots));
	for (size_t i = 0; i < capacity; i++)
		if (old[i].places)
			*find(old[i].file, old[i].frame) = old[i];
	release(old);
}

static void resolve(struct known *known)
{
	unsigned number = (unsigned)(known->frame >> PDN_FRAME_OFFSET_BITS);
	uint64_t offset = known->frame & ((1ull << PDN_FRAME_OFFSET_BITS) - 1);
	const struct trace_module *module = trace_file_module(known->file, number);
	struct place places[MAX_INLINED] = {{0}};

	/* The call instruction lies before its return address. */
	known->count = module && offset ? symbols_resolve(module, table.folder, offset - 1, places,
							  MAX_INLINED)
					: 0;
	if (!known->count)
		known->count = 1;
	known->places = allocate(known->count * sizeof(*places));
	memcpy(known->places, places, known->count * sizeof(*places));
	for (unsigned i = 0; i < known->count; i++) {
		known->places[i].module = module ? module->path : NULL;
		known->places[i].offset = module ? offset : known->frame;
	}
}

/* The places of one frame, innermost first: at least one, more where functions were inlined. */
static const struct place *places_of(const struct trace_file *file, uint64_t frame, unsigned *count)
{
	struct known *known;

	if (table.used * 2 >= table.capacity)
		make_larger();
	known = find(file, frame);
	if (!known->places) {
		known->file = file;
		known->frame = frame;
		resolve(known);
		table.used++;
	}
	*count = known->count;
	return known->places;
}

unsigned symbols_stack(const struct trace_file *file, uint32_t stack, struct place *places)
{
	uint64_t frames[PDN_TRACE_MAX_FRAMES];
	unsigned total = 0, depth = trace_file_stack(file, stack, frames);

	for (unsigned i = 0; i < depth; i++) {
		unsigned count;
		const struct place *found = places_of(file, frames[i], &count);

		for (unsigned j = 0; j < count && total < MAX_PLACES; j++)
			places[total++] = found[j];
	}
	return total;
}

static bool is_cudas(const char *module)
{
	const char *slash = strrchr(module, '/'), *name = slash ? slash + 1 : module;

	return strncmp(name, "libcuda", 7) == 0 || strncmp(name, "libpindown", 10) == 0;
}

unsigned symbols_chain(const struct trace_file *file, uint32_t stack, struct place *places,
		       unsigned max)
{
	struct place all[MAX_PLACES];
	unsigned total = symbols_stack(file, stack, all), first = 0, count = 0;

	while (first < total && all[first].module && is_cudas(all[first].module))
		first++;
	if (first == total)
		first = 0;
	while (first < total && count < max) {
		places[count++] = all[first++];
		if (places[count - 1].function && strcmp(places[count - 1].function, "main") == 0)
			break;
	}
	return count;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

char *place_text(const struct place *place, char *text)
{
	if (place->function && place->source)
		snprintf(text, PLACE_TEXT_SIZE, "%.180s  %.80s:%u", place->function,
			 base_name(place->source), place->line);
	else if (place->function)
		snprintf(text, PLACE_TEXT_SIZE, "%.180s  (%.80s)", place->function,
			 place->module ? base_name(place->module) : "?");
	else if (place->module)
		snprintf(text, PLACE_TEXT_SIZE, "%.200s+%#llx", base_name(place->module),
			 (unsigned long long)place->offset);
	else
		snprintf(text, PLACE_TEXT_SIZE, "%#llx", (unsigned long long)place->offset);
	return text;
}

/* ---- callers -------------------------------------------------------------------------------- */

static const struct place *look_for_caller(const struct trace_file *file, uint32_t stack)
{
	uint64_t frames[PDN_TRACE_MAX_FRAMES];
	unsigned depth = trace_file_stack(file, stack, frames), count;

	for (unsigned i = 0; i < depth; i++) {
		const struct place *found = places_of(file, frames[i], &count);

		if (!found->module || !is_cudas(found->module))
			return found;
	}
	return depth ? places_of(file, frames[0], &count) : NULL;
}

struct caller {
	const struct trace_file *file; /* NULL: free */
	uint32_t stack;
	const struct place *place; /* NULL: there is none */
	char *text;		   /* NULL: not asked for yet */
};

static struct {
	struct caller *slots;
	size_t capacity, used;
} callers;

static struct caller *find_caller(const struct trace_file *file, uint32_t stack)
{
	size_t i = ((uint64_t)stack * 2654435761u ^ (uintptr_t)file >> 4) & (callers.capacity - 1);

	while (callers.slots[i].file &&
	       (callers.slots[i].file != file || callers.slots[i].stack != stack))
		i = (i + 1) & (callers.capacity - 1);
	return &callers.slots[i];
}

static void make_more_callers(void)
{
	struct caller *old = callers.slots;
	size_t capacity = callers.capacity;

	callers.capacity = capacity ? capacity * 2 : 256;
	callers.slots = allocate(callers.capacity * sizeof(*callers.slots));
	for (size_t i = 0; i < capacity; i++)
		if (old[i].file)
			*find_caller(old[i].file, old[i].stack) = old[i];
	release(old);
}

static struct caller *caller_of(const struct trace_file *file, uint32_t stack)
{
	struct caller *caller;

	if (callers.used * 2 >= callers.capacity)
		make_more_callers();
	caller = find_caller(file, stack);
	if (!caller->file) {
		*caller = (struct caller){file, stack, look_for_caller(file, stack), NULL};
		callers.used++;
	}
	return caller;
}

const struct place *symbols_caller(const struct trace_file *file, uint32_t stack)
{
	return caller_of(file, stack)->place;
}

const char *symbols_caller_text(const struct trace_file *file, uint32_t stack)
{
	struct caller *caller = caller_of(file, stack);
	char text[PLACE_TEXT_SIZE];

	if (caller->place && !caller->text)
		caller->text = text_of("%s", place_text(caller->place, text));
	return caller->text;
}

bool symbols_folder(const char *folder)
{
	/* Absolute: libdwfl resolves relative paths against each program's folder. */
	static char path[PATH_MAX];
	struct stat status;

	if (!realpath(folder, path) || stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) {
		complain("--symbols %s: not a folder", folder);
		return false;
	}
	table.folder = path;
	return true;
}

void symbols_free(void)
{
	for (size_t i = 0; i < table.capacity; i++) {
		for (unsigned j = 0; j < table.slots[i].count; j++) {
			release((char *)table.slots[i].places[j].function);
			release((char *)table.slots[i].places[j].source);
		}
		release(table.slots[i].places);
	}
	release(table.slots);
	table.slots = NULL;
	table.capacity = table.used = 0;
	for (size_t i = 0; i < callers.capacity; i++)
		release(callers.slots[i].text);
	release(callers.slots);
	memset(&callers, 0, sizeof(callers));
	symbols_close();
}
