/* SPDX-License-Identifier: MIT */
/*
 * Eviction policies for `pindown replay`. A policy knows the registered allocations by their index;
 * replay.c keeps their bytes within the budget.
 */
#ifndef POLICY_H
#define POLICY_H

#include <stdbool.h>
#include <stdint.h>

/* A policy's data about one allocation. */
struct member {
	uint64_t bytes;
	uint32_t older, newer; /* neighbours in the queue; index + 1 */
	uint8_t queue;	       /* 0: in no queue */
	uint8_t used;	       /* hits since its insertion or its last second chance */
};

enum { QUEUES = 4 };

struct queue {
	uint32_t oldest, newest; /* index + 1 */
	uint64_t bytes;
	uint32_t count;
};

struct policy_state {
	struct member *members;
	struct queue queues[QUEUES];
	uint64_t max_bytes;
};

struct policy {
	const char *name, *what;
	void (*hit)(struct policy_state *state, uint32_t member);
	/* Adds a member; the caller has made space for it. */
	void (*insert)(struct policy_state *state, uint32_t member);
	/* Chooses a victim and removes it from its queue. At least one member must be registered. */
	uint32_t (*evict)(struct policy_state *state);
};

extern const struct policy *const policies[];
extern const unsigned policy_count;

/* Removes a member whose memory has been freed, registered or not. */
void policy_end(struct policy_state *state, uint32_t member);

#endif
