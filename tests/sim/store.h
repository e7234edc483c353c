/* SPDX-License-Identifier: MIT */
/*
 * Device memory itself, without addresses. Each device's memory is one memfd, in which 2 MiB pages
 * are handed out as extents. Many device addresses may come and go over one extent; what decides
 * about the memory is the extent's life.
 *
 * An exported descriptor is a new open file description of that memfd. It holds a read lock (F_OFD)
 * on exactly the bytes that were exported, and the kernel drops that lock when the last duplicate
 * of the descriptor is closed and its last mapping is gone, in whatever process they are. So a lock
 * that is still there says that somebody still holds the memory, and an extent whose last user is
 * gone but which is still locked is kept aside, neither usable nor free: as the real driver does.
 *
 * Offsets in the memfd:
 *	0 .. span          device memory; span is larger than the device's size, so that there
 *	                   always is a contiguous place. What is in use never exceeds the size.
 *	SIM_RECORDS_AT ..  one struct sim_record for each thing that was shared with other
 *	                   processes
 *	SIM_EXPORT_IDS ..  no bytes, only locks: one for each export, to tell how many are open
 *
 * All functions need the API lock.
 */
#ifndef SIM_STORE_H
#define SIM_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

#define SIM_PAGE       (2ull << 20)
#define SIM_PAGE_SHIFT 21
#define SIM_RECORDS_AT (1ull << 60)
#define SIM_EXPORT_IDS (1ull << 61)

struct sim_store;

struct sim_extent {
	struct sim_store *store;
	uint64_t offset, size; /* multiples of SIM_PAGE */
	unsigned users;
	bool touched;	     /* written to: its pages are in RAM */
	bool exported;	     /* at least once: locks have to be looked for */
	uint64_t bar_memory; /* where /dev/sim_gpu is: its name there, and 0 elsewhere (bar.h) */
	struct sim_extent *next; /* kept aside, or spare */
};

/* NULL when the device has not that much memory left. One user. */
struct sim_extent *sim_extent_take(int device, uint64_t size);
void sim_extent_hold(struct sim_extent *extent);
/* The last drop gives the memory back, or keeps it aside until its exports are closed. */
void sim_extent_drop(struct sim_extent *extent);
/* -1: it was imported. */
int sim_extent_device(const struct sim_extent *extent);
/* Where the host can reach it. */
char *sim_extent_view(struct sim_extent *extent);

/* Memory of another process, or of this one, that was reached through a descriptor; owned. */
struct sim_extent *sim_extent_import(int fd, uint64_t offset, uint64_t size, CUresult *why);

/* Lets an extent move, so that two extents lie one behind the other. False: it is held where it is.
 */
bool sim_extents_join(struct sim_extent **extents, unsigned count, int device);

/* Moves one, with its contents; what was exported of it stays behind. Imported ones stay. */
void sim_extent_move(struct sim_extent *extent);

/*
 * A new description of the store's memfd, locked as above. The lock makes it an export of
 * pin_bytes; 0: it keeps the memory but uses no pin space. Its file position says where the range
 * begins. Returns the descriptor, -1 when the pin space is used up, -2 with errno on other
 * failures.
 */
int sim_store_export(struct sim_extent *extent, uint64_t offset, uint64_t size, bool pins);

/* What another process needs to find the memory again. */
struct sim_record {
	uint64_t magic;
	uint64_t id; /* 0: its memory is gone */
	uint64_t offset, size;
	uint64_t inner, length; /* the allocation within */
	uint64_t flags;
	int32_t device;
	int32_t kind;
};
#define SIM_RECORD_MAGIC 0x70696e646f776e31ull
/* Writes a record to the store of the extent; returns its offset in the memfd, 0 on failure. */
uint64_t sim_record_write(struct sim_store *store, struct sim_record *record);
void sim_record_end(struct sim_store *store, uint64_t at);
/* From any descriptor of any store. False: it is none of ours. */
bool sim_record_read(int fd, uint64_t at, struct sim_record *record);
/* The memfd, to be named to other processes, and its inode number, to tell it from a later one. */
int sim_store_fd(const struct sim_store *store, uint64_t *inode);
struct sim_store *sim_store_of(int device);

CUresult sim_stores_start(void);
void sim_store_info(int device, uint64_t *free_bytes, uint64_t *total);

#endif
