// SPDX-License-Identifier: MIT
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>

static void *check(void *memory)
{
	if (!memory) {
		fputs("pindown: out of memory\n", stderr);
		exit(2);
	}
	return memory;
}

void *allocate(size_t bytes)
{
	return check(calloc(1, bytes));
}

void *grow(void *array, unsigned *room, unsigned used, size_t each)
{
	if (used < *room)
		return array;
	*room = *room ? *room * 2 : 16;
	return check(reallocarray(array, *room, each));
}
