/* SPDX-License-Identifier: MIT */
/* Declarations for races.c and races_kinds.c: a piece of memory, and the kinds of memory. */
#ifndef RACES_H
#define RACES_H

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

/* For memory of another process. */
bool exporter_start(unsigned count);
void exporter_end(void);
int exporter_main(unsigned count); /* the main function of that process */

/* The driver's call has failed: prints a line once, and counts it. */
bool driver(CUresult result, const char *call);

#endif
