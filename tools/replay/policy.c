// SPDX-License-Identifier: MIT
/* The eviction policies that pindown replay knows: LRU, CLOCK and S3-FIFO. */
#include "tools/replay/policy.h"

/* ---- queues --------------------------------------------------------------------------------- */

/* NONE: in no queue. */
enum { NONE, MAIN, SMALL, GHOSTS };

static struct member *at(struct policy_state *state, uint32_t link)
{
	return &state->members[link - 1];
}

static void take_out(struct policy_state *state, uint32_t link)
{
	struct member *member = at(state, link);
	struct queue *queue = &state->queues[member->queue];

	if (member->queue == NONE)
		return;
	if (member->older)
		at(state, member->older)->newer = member->newer;
	else
		queue->oldest = member->newer;
	if (member->newer)
		at(state, member->newer)->older = member->older;
	else
		queue->newest = member->older;
	queue->bytes -= member->bytes;
	queue->count--;
	member->older = member->newer = 0;
	member->queue = NONE;
}

static void append(struct policy_state *state, uint32_t link, uint8_t to)
{
	struct member *member = at(state, link);
	struct queue *queue = &state->queues[to];

	take_out(state, link);
	member->queue = to;
	member->older = queue->newest;
	if (queue->newest)
		at(state, queue->newest)->newer = link;
	else
		queue->oldest = link;
	queue->newest = link;
	queue->bytes += member->bytes;
	queue->count++;
}

void policy_end(struct policy_state *state, uint32_t member)
{
	take_out(state, member + 1);
	state->members[member].used = 0;
}

/* ---- least recently used -------------------------------------------------------------------- */

static void lru_hit(struct policy_state *state, uint32_t member)
{
	append(state, member + 1, MAIN);
}

/* Its `used` is 0: it is new, or has been evicted, or has ended. */
static void insert_in_main(struct policy_state *state, uint32_t member)
{
	append(state, member + 1, MAIN);
}

static uint32_t lru_evict(struct policy_state *state)
{
	uint32_t link = state->queues[MAIN].oldest;

	take_out(state, link);
	return link - 1;
}

static const struct policy lru = {"lru", "least recently used first", lru_hit, insert_in_main,
				  lru_evict};

/* ---- CLOCK: a used member gets a second chance ---------------------------------------------- */

static void count_use(struct policy_state *state, uint32_t member)
{
	struct member *used = &state->members[member];

	if (used->used < 3)
		used->used++;
}

static uint32_t clock_evict(struct policy_state *state)
{
	for (;;) {
		uint32_t link = state->queues[MAIN].oldest;

		if (!at(state, link)->used) {
			take_out(state, link);
			return link - 1;
		}
		at(state, link)->used = 0;
		append(state, link, MAIN);
	}
}

static const struct policy clock_policy = {"clock", "first in, first out, with a second chance",
					   count_use, insert_in_main, clock_evict};

/* ---- S3-FIFO (Yang et al., SOSP 2023), by bytes --------------------------------------------- */

/*
 * New members enter a small queue, a tenth of the budget. A member that is not used there leaves
 * soon and is remembered as a ghost. A member that was used there, or returns while it is a ghost,
 * goes to the main queue, which gives it a second chance for each use, up to three.
 *
 * A few new members are always kept: a registration cache often holds only some regions, and a
 * buffer that was just used is often used again soon.
 */
static uint32_t to_keep(const struct policy_state *state)
{
	const uint32_t few = 4, half = (state->queues[SMALL].count + state->queues[MAIN].count) / 2;

	return half < few ? half : few;
}

static void s3fifo_insert(struct policy_state *state, uint32_t member)
{
	bool known = state->members[member].queue == GHOSTS;

	state->members[member].used = 0;
	append(state, member + 1, known ? MAIN : SMALL);
}

static void remember(struct policy_state *state, uint32_t link)
{
	struct queue *ghosts = &state->queues[GHOSTS];

	append(state, link, GHOSTS);
	while (ghosts->bytes > state->max_bytes)
		take_out(state, ghosts->oldest);
}

/* 0: all but `keep` members of the small queue were used and have moved to the main queue. */
static uint32_t evict_from_small(struct policy_state *state, uint32_t keep)
{
	while (state->queues[SMALL].count > keep) {
		uint32_t link = state->queues[SMALL].oldest;

		if (!at(state, link)->used) {
			remember(state, link);
			return link;
		}
		at(state, link)->used = 0;
		append(state, link, MAIN);
	}
	return 0;
}

static uint32_t evict_from_main(struct policy_state *state)
{
	for (;;) {
		uint32_t link = state->queues[MAIN].oldest;

		if (!at(state, link)->used) {
			take_out(state, link);
			return link;
		}
		at(state, link)->used--;
		append(state, link, MAIN);
	}
}

static uint32_t s3fifo_evict(struct policy_state *state)
{
	uint32_t link = 0;

	if (state->queues[SMALL].bytes * 10 >= state->max_bytes)
		link = evict_from_small(state, to_keep(state));
	if (!link && !state->queues[MAIN].oldest)
		link = evict_from_small(state, 0);
	if (!link)
		link = evict_from_main(state);
	return link - 1;
}

static const struct policy s3fifo = {"s3fifo", "S3-FIFO: new regions must be used soon to stay",
				     count_use, s3fifo_insert, s3fifo_evict};

const struct policy *const policies[] = {&lru, &clock_policy, &s3fifo};
const unsigned policy_count = sizeof(policies) / sizeof(policies[0]);
