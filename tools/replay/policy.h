/* SPDX-License-Identifier: MIT */
/*
 * Which region makes room: policies for `pindown replay`. A policy knows the allocations that are
 * registered by their index; the one who replays keeps the bytes below the budget.
 */
#ifndef POLICY_H
#define POLICY_H

#include <stdbool.h>
#include <stdint.h>

/* What a policy keeps of one allocation. */
struct member {
	uint64_t bytes;
	uint32_t older, newer; /* in one of the queues; index + 1 */
	uint8_t queue;	       /* 0: in none */
	uint8_t used;	       /* hits since it came, or since it was last looked at */
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
	/* Room has been made for it. */
	void (*insert)(struct policy_state *state, uint32_t member);
	/* The one to go; it is in no queue of registered ones any more. Something is registered. */
	uint32_t (*evict)(struct policy_state *state);
};

extern const struct policy *const policies[];
extern const unsigned policy_count;

/* Its memory has been freed; it may be registered or not. */
void policy_end(struct policy_state *state, uint32_t member);

#endif
