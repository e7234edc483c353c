/* SPDX-License-Identifier: MIT */
/*
 * The uses of registrations in a trace, independent of the cache of that run: which allocation was
 * requested, in which order, and when each ended. For `pindown replay`.
 */
#ifndef USES_H
#define USES_H

#include "tools/trace/reader.h"

/* An allocation that was registered at least once. */
struct allocation {
	uint64_t bytes;	 /* pinned for it, in whole pages */
	uint64_t pin_ns; /* mean time of its pins in the trace; 0: there are none */
	uint64_t pins;	 /* number of its pins in the trace */
};

enum use_kind { USE_GET, USE_END };

struct use {
	uint32_t allocation; /* index */
	enum use_kind kind;
};

struct uses {
	struct allocation *allocations;
	unsigned allocation_count, allocation_capacity;
	struct use *uses;
	unsigned use_count, use_capacity;
	uint64_t gets, hits; /* of the traced run */
	uint64_t peak_bytes; /* maximum of the bytes alive at once */
	uint64_t mean_ns;    /* mean of all pins */
};

/* Reads all events. */
struct uses *uses_make(struct reader *reader);
void uses_free(struct uses *uses);

#endif
