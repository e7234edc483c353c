/* SPDX-License-Identifier: MIT */
/*
 * Declarations for races.c, races_slots.c, races_kinds.c and races_crash.c: a piece of memory, the
 * slot that it is in, and the kinds of memory.
 */
#ifndef RACES_H
#define RACES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hook/cuda/abi.h"

#define MIB 1048576u

/* A buffer id that the driver knows at an address has one; each is used once. */
#define PARTS 2

struct kind;

/* One thread at a time allocates and frees it. */
struct piece {
	const struct kind *kind;
	unsigned number; /* the number of its slot */
	CUdeviceptr at;
	size_t size;
	size_t part; /* the length of each of several mappings; other memory is one part */
	CUcontext context;
	CUmemGenericAllocationHandle handles[PARTS];
};

struct kind {
	const char *name;
	int refusal;	   /* what pindown_get() answers: PINDOWN_OK, or why it can't be pinned */
	bool unexportable; /* the driver makes no dma-buf of it */
	unsigned rarely;   /* only one of this many turns frees it */
	bool (*make)(struct piece *piece, uint64_t random);
	bool (*end)(struct piece *piece, uint64_t random);
};

extern const struct kind kinds[];

/* Where one piece after another is. */
struct slot {
	pthread_mutex_t owner; /* the thread that holds it may replace the piece */
	struct piece piece;
	bool full;
	/* Published to all threads, as races.c says. at 0: there is no memory. */
	uint64_t generation;
	uint64_t at, size, part;
	uint64_t id[PARTS];
	uint64_t dead[PARTS]; /* the ids of the previous piece, once it had ended */
} __attribute__((aligned(128)));

static inline void store(uint64_t *where, uint64_t value)
{
	__atomic_store_n(where, value, __ATOMIC_RELAXED);
}

static inline uint64_t load(const uint64_t *where)
{
	return __atomic_load_n(where, __ATOMIC_RELAXED);
}

/*
 * The driver's buffer id of memory in the slot, of which the caller is the owner; 0: it knows none.
 * It is asked again then, if the memory can be pinned, and that is counted.
 */
uint64_t driver_id(const struct slot *slot, uint64_t at);
extern unsigned long driver_forgot;

/* The caller is the slot's owner. Between the last two the generation is odd. */
void slot_empty(struct slot *slot, uint64_t random);
void slot_fill(struct slot *slot, uint64_t random);
void slot_begin_change(struct slot *slot);
void slot_end_change(struct slot *slot);

/* For memory of another process. */
bool exporter_start(unsigned count);
void exporter_end(void);
int exporter_main(unsigned count); /* the main function of that process */

/* What this thread is doing, and with which kind of memory: a crash tells it of all threads. */
extern __thread const char *stage, *stage_of;
void tell_of_crashes(void);

/* The driver's call has failed: prints a line once, and counts it. */
bool driver(CUresult result, const char *call);

#endif
