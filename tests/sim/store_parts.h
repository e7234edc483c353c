/* SPDX-License-Identifier: MIT */
/* What the two halves of the store share: store.c hands memory out, sharing.c exports it. */
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
	uint64_t last_page, last_pages; /* given back last: the next of that size goes there */
	uint64_t lowest;		/* no free page below */
	struct sim_extent *kept;	/* aside: without a user, but exported */
	struct sim_export *exports;	/* those not known to be closed */
	uint64_t export_bytes, next_export, next_record;
};

/* A zeroed record, and back with it. */
struct sim_extent *sim_extent_new(void);
void sim_extent_delete(struct sim_extent *extent);
/* Whether somebody holds a lock there. */
bool sim_store_locked(const struct sim_store *store, uint64_t offset, uint64_t size);
/* A store that was made for one imported extent goes with it. */
void sim_import_close(struct sim_extent *extent);
/* Gives back what was kept for exports that are closed now. */
void sim_store_free_closed(struct sim_store *store);
/* NULL: there is no such device. */
struct sim_store *sim_store_known(int device);

#endif
