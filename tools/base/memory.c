// SPDX-License-Identifier: MIT
/* Allocates memory, and ends the command when a trace asks for more than its limit. */
#include "tools/base/memory.h"

#include <malloc.h>
#include <stdlib.h>

#include "tools/base/out.h"
#include "tools/base/status.h"

static uint64_t held;		/* bytes allocated now */
static uint64_t opened, length; /* open traces, and the sum of their lengths */

static uint64_t max_held(void)
{
	if (!opened)
		return UINT64_MAX;
	return length > MEMORY_FOR_TRACES / 4 ? length * 4 : MEMORY_FOR_TRACES;
}

/* Ends the command if `bytes` more would exceed the limit. Called before memory is allocated. */
static void ask_for(size_t bytes)
{
	if (held + bytes <= max_held())
		return;
	complain("%s for more than %s of memory, the limit for %s length",
		 opened == 1 ? "this trace asks" : "these traces ask", bytes_text(max_held()).text,
		 opened == 1 ? "a trace of this" : "traces of this");
	exit(STATUS_DAMAGED);
}

static void *took(void *memory)
{
	if (!memory) {
		complain("out of memory");
		exit(STATUS_USAGE);
	}
	held += malloc_usable_size(memory);
	return memory;
}

void *allocate(size_t bytes)
{
	ask_for(bytes);
	return took(calloc(1, bytes));
}

void *grow(void *array, unsigned *capacity, unsigned used, size_t each)
{
	if (used < *capacity)
		return array;
	*capacity = *capacity ? *capacity * 2 : 16;
	ask_for(*capacity * each); /* the old array stays until its content is copied */
	held -= malloc_usable_size(array);
	return took(reallocarray(array, *capacity, each));
}

void release(void *memory)
{
	held -= malloc_usable_size(memory);
	free(memory);
}

void sort(void *array, size_t count, size_t each, int (*compare)(const void *, const void *))
{
	ask_for(count * each);
	if (count)
		qsort(array, count, each, compare);
}

void memory_trace_opened(uint64_t bytes)
{
	opened++;
	length += bytes;
}

void memory_trace_closed(uint64_t bytes)
{
	opened--;
	length -= bytes;
}
