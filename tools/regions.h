/* SPDX-License-Identifier: MIT */
/* The regions that are pinned at the moment that a reader has come to. */
#ifndef REGIONS_H
#define REGIONS_H

#include <stdbool.h>
#include <stdint.h>

struct region {
	uint64_t addr, size, pin_size;
	uint64_t pinned_at, freed_at; /* ns; freed_at only if `freed` */
	uint32_t number;
	uint32_t file; /* index; with the number it names a region */
	int16_t device;
	bool freed; /* its memory ended while somebody held it */
	bool used;  /* the slot of the table */
};

struct regions {
	struct region *slots; /* a hash table with linear probing */
	uint32_t room, count;
};

struct region *regions_find(const struct regions *regions, uint32_t file, uint32_t number);

/* A region that is not there yet; its key is set, the rest is zero. */
struct region *regions_add(struct regions *regions, uint32_t file, uint32_t number);
void regions_remove(struct regions *regions, struct region *region);
void regions_free(struct regions *regions);

#endif
