/* SPDX-License-Identifier: MIT */
/*
 * The GPU memory that a program allocates and maps by calls of the driver: how much at each time,
 * by which code, and which of it no call frees. Memory of graphs and arrays, and memory that other
 * processes own, is not counted: no call allocates it at an address.
 */
#ifndef ALLOCATIONS_H
#define ALLOCATIONS_H

#include "tools/trace/reader.h"
#include "tools/trace/regions.h"

/* What a call means for memory. */
enum memory_call {
	MEMORY_STAYS,
	MEMORY_BEGINS,
	MEMORY_IS_MAPPED,
	MEMORY_ENDS,
	MEMORY_IS_UNMAPPED,
	CONTEXT_BEGINS,
	CONTEXT_ENDS,
	CONTEXT_IS_RETAINED,
	CONTEXT_IS_RELEASED,
	CONTEXT_IS_RESET,
};
enum memory_call memory_call_of(const char *name);

/* Allocations of one call stack of one file; without stacks, of one call of it. */
struct stack_memory {
	uint32_t file, stack; /* stack 0: none */
	unsigned call;
	uint64_t now, at_peak, total; /* bytes */
	uint64_t count, unfreed, unfreed_count;
	uint64_t peak; /* at_peak belongs to the peak of this number */
};

/* The same for all stacks that have the same caller. */
struct site_memory {
	const char *caller; /* NULL: the trace has no stacks */
	const char *call;
	uint64_t at_peak, total, count, unfreed, unfreed_count;
};

/* Memory that no call has freed. */
struct unfreed {
	uint64_t with_context; /* the process's last context ended before it did */
	uint64_t cut_off;      /* the process has no end mark */
};

/* The contexts of a process, and the memory that ends with them. */
struct contexts {
	uint64_t created, retained;
	uint64_t primary;     /* the primary context; ~0: there are several */
	uint64_t allocations; /* live ones, without mappings */
};

struct allocations {
	/*
	 * Live allocations, each as a region: its buffer id is its address, its number is 1 for a
	 * mapping, its pin_stack an index in `stacks`; its call was from pinned_at to freed_at.
	 */
	struct regions live;
	struct stack_memory *stacks;
	unsigned stack_count, stack_capacity;
	uint32_t **stack_of; /* by file: index in `stacks` + 1, by stack, then by call */
	struct contexts *contexts;
	unsigned files;
	struct site_memory *sites; /* after allocations_end(); most bytes at the peak first */
	unsigned site_count, site_capacity;
	struct unfreed unfreed;
	uint64_t now, total, count;
	uint64_t peak, peak_at, peak_number;
};

void allocations_begin(struct allocations *all, const struct reader *reader);
void allocations_count(struct allocations *all, const struct event *event, enum memory_call call);
/* Counts what is left as unfreed, and finds the callers. */
void allocations_end(struct allocations *all, const struct reader *reader);
/* The stacks with unfreed memory, most bytes first; with release(). */
const struct stack_memory **allocations_unfreed(const struct allocations *all, unsigned *count);
void allocations_free(struct allocations *all);

#endif
