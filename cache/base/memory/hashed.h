/* SPDX-License-Identifier: MIT */
/*
 * Records that are found by a hash, in a table that grows (table.h). A record stays where it is
 * until it is removed; then its number and its place are used again. Several records may have the
 * same hash.
 *
 * All changes are made under the cache's lock. No memory is taken before the first record.
 *
 * A thread without the lock may walk a chain if it can tell afterwards whether anything has changed
 * meanwhile: the owner counts its changes. Everything that such a walk reads is stored atomically,
 * with release: a walk that reads a changed value sees the count that the owner stored before it.
 * The owner stores the contents of its records in the same way.
 */
#ifndef PDN_HASHED_H
#define PDN_HASHED_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/memory/table.h"

/* Must be the first member of a record. */
struct pdn_hashed_link {
	uint64_t hash;
	uint32_t next; /* in the bucket, or in the list of free records */
	uint32_t taken;
};

struct pdn_hashed {
	struct pdn_table table; /* the owner sets record_bytes, and columns to 1: the buckets */
	uint32_t buckets, free, count;
	uint32_t most;			 /* room for this many, a power of two; 0: for a million */
	struct pdn_hashed *begun_before; /* the list of all that have wanted memory */
};

#define PDN_HASHED(record)                                               \
	{                                                                \
		.table = {.record_bytes = sizeof(record), .columns = 1 } \
	}

/* A new record, zero but for its link. 0: there is no room, or memory is short. */
uint32_t pdn_hashed_add(struct pdn_hashed *in, uint64_t hash);
void pdn_hashed_remove(struct pdn_hashed *in, uint32_t number);

/* The first record with this hash, and the one after it; 0: none. */
uint32_t pdn_hashed_first(const struct pdn_hashed *in, uint64_t hash);
uint32_t pdn_hashed_next(const struct pdn_hashed *in, uint32_t number);

/*
 * For a walk without the lock: the first record of the chain, and the next one, whatever their
 * hashes are. In the middle of a change the chain may be another one, or a ring.
 */
static inline uint32_t pdn_hashed_chain(const struct pdn_hashed *in, uint64_t hash)
{
	uint32_t buckets = __atomic_load_n(&in->buckets, __ATOMIC_ACQUIRE);

	return __atomic_load_n(&in->table.column[0][hash & (buckets - 1)], __ATOMIC_ACQUIRE);
}

static inline uint32_t pdn_hashed_chain_next(const struct pdn_hashed_link *link)
{
	return __atomic_load_n(&link->next, __ATOMIC_ACQUIRE);
}

/* Lock held. Replaces what follows the link in a record; `record` is a whole record too. */
void pdn_hashed_fill(const struct pdn_hashed *in, uint32_t number, const void *record);

static inline void *pdn_hashed_at(const struct pdn_hashed *in, uint32_t number)
{
	return in->table.records + number * in->table.record_bytes;
}

/* For a walk over all numbers from 1 to in->table.used. */
static inline bool pdn_hashed_is_taken(const struct pdn_hashed *in, uint32_t number)
{
	return ((const struct pdn_hashed_link *)pdn_hashed_at(in, number))->taken;
}

/* In a child: removes all records of all tables. Keeps errno, is async-signal-safe. */
void pdn_hashed_clear_all(void);

/* Spreads the bits of a number: the finish of SplitMix64. */
static inline uint64_t pdn_hash(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

#endif
