/* SPDX-License-Identifier: MIT */
/* The common part of both halves of the store: store.c hands memory out, sharing.c exports it. */
#ifndef SIM_STORE_PARTS_H
#define SIM_STORE_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "store.h"

#define MAX_DEVICES 16

struct sim_export {
	uint64_t id, size;
	struct sim_export *next;
};

struct sim_store {
	int fd;
	int device;
	char *view;
	uint64_t inode;
	uint64_t total, used; /* bytes */
	uint64_t pages;	      /* in the span */
	uint64_t *taken;      /* a bit for each page of the span */
	uint64_t *touched;    /* pages that are free but in RAM */
	uint64_t touched_bytes;
	uint64_t last_page, last_pages; /* freed last: the next request of that size goes there */
	uint64_t lowest;		/* no free page is below it */
	struct sim_extent *kept;	/* aside: without users, but exported */
	struct sim_export *exports;	/* those that may still be open */
	uint64_t export_bytes, next_export, next_record;
};

/* Allocates a zeroed record, and frees it. */
struct sim_extent *sim_extent_new(void);
void sim_extent_delete(struct sim_extent *extent);
/* Does any process hold a lock there? */
bool sim_store_locked(const struct sim_store *store, uint64_t offset, uint64_t size);
/* A store that was made for one imported extent ends with it. */
void sim_import_close(struct sim_extent *extent);
/* Frees the extents whose exports are all closed now. */
void sim_store_free_closed(struct sim_store *store);
/* NULL: there is no such device. */
struct sim_store *sim_store_known(int device);

#endif
