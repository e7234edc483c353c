/* SPDX-License-Identifier: MIT */
/*
 * Device memory itself, without addresses. The memory of each device is one memfd, in which 2 MiB
 * pages are handed out as extents. Many device addresses may come and go over one extent; the
 * memory lives as long as its extent.
 *
 * An exported descriptor is a new open file description of that memfd. It holds a read lock (F_OFD)
 * on exactly the exported bytes, and the kernel drops that lock when the last duplicate of the
 * descriptor is closed and its last mapping is gone, in any process. So a lock shows that some
 * process still holds the memory. An extent without users that is still locked is kept aside,
 * neither usable nor free, as in the real driver.
 *
 * Offsets in the memfd:
 *	0 .. span          device memory; span is larger than the device's size, so that there is
 *	                   always a contiguous place. The memory in use never exceeds the size.
 *	SIM_RECORDS_AT ..  one struct sim_record for each thing that was shared with other
 *	                   processes
 *	SIM_EXPORT_IDS ..  no bytes, only locks: one for each export, to count the open ones
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
	bool touched;		 /* written to: its pages are in RAM */
	bool exported;		 /* at least once: locks have to be checked */
	uint64_t bar_memory;	 /* with /dev/sim_gpu: its name there, otherwise 0 (bar.h) */
	struct sim_extent *next; /* the list of kept or of spare extents */
};

/* Allocates with one user. NULL: the device has not enough memory left. */
struct sim_extent *sim_extent_take(int device, uint64_t size);
void sim_extent_hold(struct sim_extent *extent);
/* The last drop frees the memory, or keeps it aside until its exports are closed. */
void sim_extent_drop(struct sim_extent *extent);
/* The device; -1: it was imported. */
int sim_extent_device(const struct sim_extent *extent);
/* Its address for the host. */
char *sim_extent_view(struct sim_extent *extent);

/* Memory of another process, or of this one, that was reached through a descriptor; owned. */
struct sim_extent *sim_extent_import(int fd, uint64_t offset, uint64_t size, CUresult *why);

/* Brings two extents together, one after the other. False: an extent is held in its place. */
bool sim_extents_join(struct sim_extent **extents, unsigned count, int device);

/* Moves an extent with its contents; its exports stay behind. Imported extents stay. */
void sim_extent_move(struct sim_extent *extent);

/*
 * A new description of the store's memfd, locked as above. The lock makes it an export of
 * pin_bytes; 0: it keeps the memory but uses no pin space. Its file position is the beginning of
 * the range. Returns the descriptor, -1 when the pin space is used up, -2 with errno on other
 * failures.
 */
int sim_store_export(struct sim_extent *extent, uint64_t offset, uint64_t size, bool pins);

/* The data with which another process finds the memory again. */
struct sim_record {
	uint64_t magic;
	uint64_t id; /* 0: its memory has been freed */
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
/* Reads a record from any descriptor of any store. False: it is not one of a store. */
bool sim_record_read(int fd, uint64_t at, struct sim_record *record);
/* The memfd, to be named to other processes, and its inode number, to recognize a later one. */
int sim_store_fd(const struct sim_store *store, uint64_t *inode);
struct sim_store *sim_store_of(int device);

CUresult sim_stores_start(void);
void sim_store_info(int device, uint64_t *free_bytes, uint64_t *total);

#endif
