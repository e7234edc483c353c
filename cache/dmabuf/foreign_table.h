/* SPDX-License-Identifier: MIT */
/*
 * The table of the program's own dma-bufs: each is found by the file behind its descriptors, and by
 * the addresses of its memory. It is used under the cache's lock, except for pdn_foreign_peek() and
 * pdn_foreign_may_overlap().
 */
#ifndef PDN_FOREIGN_TABLE_H
#define PDN_FOREIGN_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/memory/hashed.h"
#include "cache/base/memory/tree.h"
#include "cache/base/visible.h"
#include "cache/driver/driver.h"

/*
 * The file behind a descriptor. Every dma-buf has an inode of its own (since Linux 5.3; before that
 * all share one, and which of them a descriptor stands for is then not known). A regular file may
 * stand for all memory of a device, as the simulated driver's does: its position is where the
 * exported range begins. Duplicates of a descriptor share all three.
 */
struct pdn_file {
	uint64_t inode, device;
	int64_t position; /* -1: it is no regular file */
};

struct pdn_export {
	struct pdn_hashed_link link; /* must be first */
	struct pdn_file file;
	struct pdn_memory memory; /* the allocation that was exported */
	uint64_t buffer_id, mappings_hash;
	uint64_t begin, length;	   /* the range */
	uint64_t flags;		   /* of the export: how the memory is mapped for a device */
	struct pdn_tree_node node; /* in the tree of addresses */
	uint32_t number;	   /* of the latest export of it; counted from 1, in the trace */
	uint32_t first;		   /* number of its first export: no other record has it */
	uint32_t imports;	   /* known ones that hold it */
	uint32_t seen;		   /* the last search that found a descriptor of it open */
	int fd;			   /* as it was exported; the program may have closed it */
} __attribute__((aligned(64)));

/* false: this is no open descriptor. */
bool pdn_file_of(int fd, struct pdn_file *file);

static inline bool pdn_file_is(const struct pdn_file *a, const struct pdn_file *b)
{
	return a->inode == b->inode && a->device == b->device && a->position == b->position;
}

/*
 * Are dma-bufs of the program's own remembered? Then frees look there. Acquire: the table is there
 * for walks without the lock. The memory that a caller frees is exported by no other thread
 * meanwhile.
 */
extern PDN_HIDDEN bool pdn_any_export; /* changed under the lock */
static inline bool pdn_exports_any(void)
{
	return __atomic_load_n(&pdn_any_export, __ATOMIC_ACQUIRE);
}

/* The number of a record with these contents, from 1; 0: there is no room. */
uint32_t pdn_foreign_add(const struct pdn_export *contents);
/* The same memory was exported once more as the same file, whose earlier descriptor is closed. */
void pdn_foreign_exported_again(uint32_t record, const struct pdn_export *again);
void pdn_foreign_remove(uint32_t record);
struct pdn_export *pdn_foreign_at(uint32_t record);
uint32_t pdn_foreign_count(void);

/* Those of a file: the first one, and the one after it; 0: none. */
uint32_t pdn_foreign_of_file(const struct pdn_file *file);
uint32_t pdn_foreign_next_of_file(uint32_t record);

/*
 * Without the lock: the one record of a file. PDN_FALSE: there is none. PDN_UNKNOWN: there are
 * several, or the table has changed meanwhile; take the lock and look again.
 */
enum pdn_truth pdn_foreign_peek(const struct pdn_file *file, struct pdn_export *copy);

/* One whose memory overlaps [begin, end); 0: none. */
uint32_t pdn_foreign_overlapping(uint64_t begin, uint64_t end);

/* Without the lock. False: there is none for sure. */
bool pdn_foreign_may_overlap(uint64_t begin, uint64_t end);

/* The first one after this record (0: of all), in no particular order; 0: that was the last. */
uint32_t pdn_foreign_after(uint32_t record);

#endif
