/* SPDX-License-Identifier: MIT */
/*
 * What a trace says about the use of registrations, without what the cache of that run made of it: which
 * allocation was asked for, in what order, and when each came to its end. For `pindown replay`.
 */
#ifndef USES_H
#define USES_H

#include "tools/trace/reader.h"

/* An allocation that was registered at least once. */
struct allocation {
	uint64_t bytes;	 /* pinned for it, whole pages */
	uint64_t pin_ns; /* what a pin of it took, the mean of those in the trace; 0: none is */
	uint64_t pins;	 /* in the trace */
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
	uint64_t peak_bytes; /* of all that were alive at once */
	uint64_t mean_ns;    /* of a pin */
};

/* Reads all events. */
struct uses *uses_make(struct reader *reader);
void uses_free(struct uses *uses);

#endif
