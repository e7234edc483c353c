/* SPDX-License-Identifier: MIT */
/*
 * A table of records that stay where they are for good, so that a reader without a lock may look at
 * any of them; with a few columns of 32-bit numbers beside it, one for each record. Address space
 * is reserved once, for all tables together whose records share their numbers, so that each has
 * room for as many. Memory is used as a table grows. Changes are made under the cache's lock.
 */
#ifndef PDN_TABLE_H
#define PDN_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PDN_TABLE_MAX_COLUMNS 11

struct pdn_table {
	/* Constant. */
	size_t record_bytes;
	unsigned columns;
	bool is_sparse;	  /* not all records are ever written: none gets memory before */
	bool is_for_hits; /* most hits read a record: many of them lie in huge pages */

	char *records;
	uint32_t *column[PDN_TABLE_MAX_COLUMNS];
	/*
	 * One bit for each column that gets memory only by pdn_table_use_column(). `unused`: it has
	 * none yet. `unwanted`: nobody has called that yet, and grow() leaves it out. Changed
	 * atomically.
	 */
	uint32_t unused, unwanted;
	uint32_t capacity, usable;
	uint32_t reach;	    /* how many records are usable, or about to be */
	uint32_t used;	    /* numbers above it were never given out; number 0 never is */
	uint32_t populated; /* records up to here have memory already */
	uint32_t ready;	    /* of the first table: so have those of all that share its numbers */
};

/*
 * Reserves room for `most` records (a power of two) in each of these tables; for fewer where
 * address space is limited: the tables get a small part of it (address_space.h). false: there is
 * not even room for a few.
 */
bool pdn_tables_reserve(struct pdn_table *const *tables, unsigned count, uint32_t most);

/* How many records that would be. */
uint32_t pdn_tables_plan(struct pdn_table *const *tables, unsigned count, uint32_t most);

/*
 * The next number that was never given out; 0 when the table is full or memory is short. Where
 * several tables share their numbers, the first of them counts.
 */
uint32_t pdn_tables_next(struct pdn_table *const *tables, unsigned count);

static inline uint32_t pdn_table_next(struct pdn_table *table)
{
	return pdn_tables_next(&table, 1);
}

/*
 * Memory for a column that is unused and unwanted. Also without the lock, but one thread at a time
 * for each column. false: memory is short.
 */
bool pdn_table_use_column(struct pdn_table *table, unsigned column);

/* No record is in use: give the memory back. A reader that comes late sees zeroes. */
void pdn_table_clear(struct pdn_table *table);

/*
 * Lock held. A record that was given back rests for a while, so that a late use of it is not
 * mistaken for a use of its next life. Returns a record that has rested, or 0.
 */
struct pdn_resting {
	uint32_t number[1024], next;
};
uint32_t pdn_misuse_delay_reuse(struct pdn_resting *resting, uint32_t number);

#endif
