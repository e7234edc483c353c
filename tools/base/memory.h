/* SPDX-License-Identifier: MIT */
/*
 * Memory for the command, with a limit. When the system has none left, or a trace asks for more
 * than the limit, the command prints one line and exits.
 */
#ifndef MEMORY_H
#define MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed. */
void *allocate(size_t bytes);

/*
 * Makes sure that an array of `used` elements can hold one more; *capacity is how many it can hold.
 * Returns the array, which may have moved.
 */
void *grow(void *array, unsigned *capacity, unsigned used, size_t each);

/* Frees memory from allocate() or grow(), and from nowhere else. NULL is allowed. */
void release(void *memory);

/* qsort(), counted against the limit: it allocates a copy. An empty array may be NULL. */
void sort(void *array, size_t count, size_t each, int (*compare)(const void *, const void *));

/*
 * A trace may come from anywhere. Whatever its bytes say, reading it takes at most this much memory,
 * or four times its length where that is more. Memory that elfutils allocates for names is not
 * counted: it depends on files of this machine, not on the trace.
 */
#define MEMORY_FOR_TRACES (1ull << 30)
void memory_trace_opened(uint64_t length);
void memory_trace_closed(uint64_t length);

#endif
