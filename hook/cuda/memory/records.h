/* SPDX-License-Identifier: MIT */
/*
 * Tables of what hook/ remembers between calls. A table has records of one struct type, which the
 * file that owns the table defines. The type's members are 8 bytes each, three at most. The first
 * one is the key; a key may have several records, which the second member tells apart.
 *
 * The time that a search takes does not grow with the number of records. Each function here takes
 * PDN_LOCK_RECORDS, which is one for all tables, holds it until it returns, and calls nothing
 * outside but mmap and its like. So records are copied in and out, and a caller may make any call
 * with its copies.
 */
#ifndef PDN_RECORDS_H
#define PDN_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero: an empty table. */
struct pdn_records {
	struct pdn_slot *slots;
	uint32_t capacity, used, alive;
	uint32_t unused;  /* index + 1 of the first slot that was given back */
	uint32_t *chains; /* 1 << chain_bits of them, by key */
	unsigned chain_bits;
	uint32_t life; /* pdn_thread_life when the table was filled; another one in a child */
};

/*
 * PDN_TABLE(struct mapping) is the type of a table of these. Its member `record` is never used; it
 * makes the compiler refuse records of another type.
 */
#define PDN_TABLE(type)                                                                \
	union {                                                                        \
		struct pdn_records table;                                              \
		type *record;                                                          \
		_Static_assert(sizeof(type) == 16 || sizeof(type) == 24, "see above"); \
	}
#define PDN_OF_TABLE(of, given) (1 ? (given) : (of)->record)

/* Add *given unless the table has one with the same first two members. True: it is new. */
#define pdn_record_add(of, given) \
	pdn_records_add(&(of)->table, PDN_OF_TABLE(of, given), sizeof(*(given)))

/* Make *given the only record of its key. */
#define pdn_record_replace(of, given) \
	pdn_records_replace(&(of)->table, PDN_OF_TABLE(of, given), sizeof(*(given)))

/* Copy up to `room` records of this key, after the first `skip` ones; returns how many. */
#define pdn_record_get(of, key, skip, out, room) \
	pdn_records_get(&(of)->table, key, skip, PDN_OF_TABLE(of, out), sizeof(*(out)), room)

/* Remove all records of this key; returns how many there were. */
#define pdn_record_remove(of, key) pdn_records_remove(&(of)->table, key)

/* Remove the record with these first two members; returns how many there were, 0 or 1. */
#define pdn_record_remove_one(of, key, second) pdn_records_remove_one(&(of)->table, key, second)

bool pdn_records_add(struct pdn_records *table, const void *record, size_t size);
void pdn_records_replace(struct pdn_records *table, const void *record, size_t size);
unsigned pdn_records_get(struct pdn_records *table, uint64_t key, unsigned skip, void *out,
			 size_t size, unsigned room);
unsigned pdn_records_remove(struct pdn_records *table, uint64_t key);
unsigned pdn_records_remove_one(struct pdn_records *table, uint64_t key, uint64_t second);

/* A table of counts, one for each key. */
struct pdn_count {
	uint64_t key;
	int64_t count;
};
struct pdn_key_counts {
	struct pdn_records table;
};
#define PDN_NOT_COUNTED INT64_MIN

/* Add `change` to the key's count and return the sum; PDN_NOT_COUNTED if the key has none. */
int64_t pdn_count_change(struct pdn_key_counts *counts, uint64_t key, int change);
/* The key's count begins with 0 if it has none yet. */
void pdn_count_begin(struct pdn_key_counts *counts, uint64_t key);
/* The key's count is removed if it is 0 or less. */
void pdn_count_end(struct pdn_key_counts *counts, uint64_t key);
void pdn_count_set(struct pdn_key_counts *counts, uint64_t key, int64_t count);
/* The key has no count from here on. */
void pdn_count_remove(struct pdn_key_counts *counts, uint64_t key);

#endif
