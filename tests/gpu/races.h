/* SPDX-License-Identifier: MIT */
/* What races.c and races_kinds.c share: a piece of memory, and the kinds that there are. */
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

/* One thread at a time makes it and ends it. */
struct piece {
	const struct kind *kind;
	unsigned number; /* of the slot that it is in */
	CUdeviceptr at;
	size_t size;
	size_t part; /* mappings side by side are so long; other memory is one part */
	CUcontext context;
	CUmemGenericAllocationHandle handles[PARTS];
};

struct kind {
	const char *name;
	int refusal;	   /* what pindown_get() answers: PINDOWN_OK, or why it can't be pinned */
	bool unexportable; /* the driver makes no dma-buf of it */
	unsigned rarely;   /* one of so many turns at it ends it */
	bool (*make)(struct piece *piece, uint64_t random);
	bool (*end)(struct piece *piece, uint64_t random);
};

extern const struct kind kinds[];

/* For the kind that is another process's memory. */
bool exporter_start(unsigned count);
void exporter_end(void);
int exporter_main(unsigned count); /* that process */

/* The driver's call failed: says so once, and counts it. */
bool driver(CUresult result, const char *call);

#endif
