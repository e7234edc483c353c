/* SPDX-License-Identifier: MIT */
/*
 * Memory for the command, and how much of it there may be. When there is none, or a trace asks for more
 * than it may have, one line says so and the command ends.
 */
#ifndef MEMORY_H
#define MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed. */
void *allocate(size_t bytes);

/* Room for one more in an array of `used`, which *capacity may hold; returns the array. */
void *grow(void *array, unsigned *capacity, unsigned used, size_t each);

/* What these two gave, and nothing else; NULL is nothing. */
void release(void *memory);

/* qsort(), which takes as much memory again; an empty array may be NULL. */
void sort(void *array, size_t count, size_t each, int (*compare)(const void *, const void *));

/*
 * A trace is a file from anywhere: whatever its bytes say, it takes no more than this, or four times its
 * length where that is more. What elfutils takes for names is not counted: it is of files of ours.
 */
#define MEMORY_FOR_TRACES (1ull << 30)
void memory_trace_opened(uint64_t length);
void memory_trace_closed(uint64_t length);

#endif
