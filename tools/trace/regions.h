/* SPDX-License-Identifier: MIT */
/* The regions that are pinned at the moment that a reader has come to. */
#ifndef REGIONS_H
#define REGIONS_H

#include <stdbool.h>
#include <stdint.h>

struct region {
	uint64_t addr, size, pin_size;
	uint64_t pinned_at, freed_at; /* ns; freed_at only if `freed` */
	/*
	 * These three name it. A number alone is used again as soon as a region is unpinned, and events
	 * are seen by when they began: the next pin of a number may begin before the unpin of the last.
	 */
	uint64_t buffer_id;
	uint32_t number;
	uint32_t file;				      /* index */
	uint32_t pin_stack, freed_stack, unpin_stack; /* call stacks; 0: none */
	int16_t device;
	bool freed;   /* its memory ended while somebody held it */
	bool ordered; /* ... in stream order: perhaps not before somebody let go of it */
	bool used;    /* the slot of the table */
};

struct regions {
	struct region *slots; /* a hash table with linear probing */
	uint32_t capacity, count;
};

struct region *regions_find(const struct regions *regions, uint32_t file, uint32_t number,
			    uint64_t buffer_id);

/* A region that is not there yet; its key is set, the rest is zero. */
struct region *regions_add(struct regions *regions, uint32_t file, uint32_t number,
			   uint64_t buffer_id);
void regions_remove(struct regions *regions, struct region *region);
void regions_free(struct regions *regions);

#endif
