/* SPDX-License-Identifier: MIT */
/*
 * A sequence count: what is changed under a lock, and read without it. It counts each change twice,
 * so it is odd in the middle of one. What was read is good if the count was even before it and is
 * the same behind it. All that is read so is stored with release, after the first count, and loaded
 * with acquire, before the last look at it: then neither moves past the count.
 */
#ifndef PDN_SEQCOUNT_H
#define PDN_SEQCOUNT_H

#include <stdbool.h>
#include <stdint.h>

struct pdn_seqcount {
	uint64_t count;
};

/* Lock held. Relaxed: each store that follows is a release, and so is never seen before this. */
static inline void pdn_seqcount_write_begin(struct pdn_seqcount *s)
{
	__atomic_store_n(&s->count, s->count + 1, __ATOMIC_RELAXED);
}

static inline void pdn_seqcount_write_end(struct pdn_seqcount *s)
{
	__atomic_store_n(&s->count, s->count + 1, __ATOMIC_RELEASE);
}

static inline uint64_t pdn_seqcount_read_begin(const struct pdn_seqcount *s)
{
	return __atomic_load_n(&s->count, __ATOMIC_ACQUIRE);
}

/* Has nothing changed since then? Relaxed: the loads before it are acquires. */
static inline bool pdn_seqcount_unchanged(const struct pdn_seqcount *s, uint64_t begun)
{
	return !(begun & 1) && __atomic_load_n(&s->count, __ATOMIC_RELAXED) == begun;
}

/* In a child: what its parent has read is good no longer, however often this changes. */
static inline void pdn_seqcount_reset(struct pdn_seqcount *s)
{
	s->count = (s->count | 1) + 1;
}

#endif
