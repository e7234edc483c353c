/* SPDX-License-Identifier: MIT */
/* A memory region, which memory.c registers and access.c reaches. */
#ifndef SOFTNIC_REGION_H
#define SOFTNIC_REGION_H

#include "softnic.h"

/* As libibverbs and its providers have it (driver.h, which isn't installed). */
struct verbs_mr {
	struct ibv_mr ibv; /* must be first */
	uint32_t type;
	int32_t access;
};
enum { TYPE_MR = 0, TYPE_DMABUF = 3 };

struct region {
	struct verbs_mr verbs; /* must be first; what programs write there is not read */
	struct region *next;   /* in its bucket */
	struct ibv_pd *pd;
	uint32_t key;
	int access;
	uint64_t iova, length;
	uint64_t memory;	/* address of its first byte in this process */
	struct gpu_memory *gpu; /* NULL: host memory, or a dma-buf of memory that is not known */
	int dmabuf;		/* descriptor that holds its memory; -1: none */
	off_t file_at;		/* of its first byte in that file; -1: it can't be read */
	unsigned users;		/* number of accesses in progress; protected by the lock */
};

/* Needs the lock. NULL: no such key. */
struct region *region_find(uint32_t key);

#endif
