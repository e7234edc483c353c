/* SPDX-License-Identifier: MIT */
/* The regions that are pinned at the current position of a reader. */
#ifndef REGIONS_H
#define REGIONS_H

#include <stdbool.h>
#include <stdint.h>

struct region {
	uint64_t addr, size, pin_size;
	uint64_t pinned_at, freed_at; /* ns; freed_at only if `freed` */
	/*
	 * These three are the key. A number alone is reused as soon as its region is unpinned, and
	 * events come in the order of their begin: a number's next pin may begin before its unpin.
	 */
	uint64_t buffer_id;
	uint32_t number;
	uint32_t file;				      /* index */
	uint32_t pin_stack, freed_stack, unpin_stack; /* call stacks; 0: none */
	int16_t device;
	bool freed;    /* its memory ended while it was in use */
	bool ordered;  /* ... in stream order: perhaps only after its last put */
	bool is_cured; /* ... by registrations, which ended right behind the free */
	bool used;     /* the slot is taken */
	/* Of freed memory: registrations on it, by their fate (report/registrations.c). */
	bool reserved;
	uint32_t kept, revoked, cured;
	uint32_t first; /* of those listed: its index + 1; or 0 */
};

struct regions {
	struct region *slots; /* a hash table with linear probing */
	uint32_t capacity, count;
};

struct region *regions_find(const struct regions *regions, uint32_t file, uint32_t number,
			    uint64_t buffer_id);

/* Adds a region that is not in the table yet; its key is set, the rest is zero. */
struct region *regions_add(struct regions *regions, uint32_t file, uint32_t number,
			   uint64_t buffer_id);
void regions_remove(struct regions *regions, struct region *region);
void regions_free(struct regions *regions);

#endif
