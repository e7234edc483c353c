/* SPDX-License-Identifier: MIT */
/* Memory for the command: when there is none, it says so and ends. */
#ifndef MEMORY_H
#define MEMORY_H

#include <stddef.h>

/* Zeroed. */
void *allocate(size_t bytes);

/* Room for one more in an array of `used`, which *room may hold; returns the array. */
void *grow(void *array, unsigned *room, unsigned used, size_t each);

#endif
