/* SPDX-License-Identifier: MIT */
/*
 * A table of records that stay where they are for good, so that a reader without a lock may look at
 * any of them; with a few columns of 32-bit numbers beside it, one for each record. Address space
 * is reserved once, for all tables together whose records share their numbers, so that each has
 * room for as many. Memory is used as a table grows. Changes are made under the cache's lock.
 */
#ifndef PD_TABLE_H
#define PD_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PD_TABLE_MOST_COLUMNS 9

struct pd_table {
	/* Constant. */
	size_t record_bytes;
	unsigned columns;

	char *records;
	uint32_t *column[PD_TABLE_MOST_COLUMNS];
	uint32_t capacity, usable;
	uint32_t used;	    /* numbers above it were never given out; number 0 never is */
	uint32_t populated; /* records up to here have memory already */
};

/*
 * Reserves room for `most` records (a power of two) in each of these tables; for fewer where
 * address space is limited: the tables get a small part of it (address_space.h). false: there is
 * not even room for a few.
 */
bool pd_tables_reserve(struct pd_table *const *tables, unsigned count, uint32_t most);

/* How many records that would be. */
uint32_t pd_tables_plan(struct pd_table *const *tables, unsigned count, uint32_t most);

/* The next number that was never given out; 0 when the table is full or memory is short. */
uint32_t pd_table_next(struct pd_table *table);

/* Takes back the last number that was given out. */
void pd_table_take_back(struct pd_table *table);

/* No record is in use: give the memory back. A reader that comes late sees zeroes. */
void pd_table_clear(struct pd_table *table);

/*
 * Lock held. A record that was given back rests for a while, so that a late use of it is not
 * mistaken for a use of its next life. Returns a record that has rested, or 0.
 */
struct pd_resting {
	uint32_t number[1024], next;
};
uint32_t pd_let_rest(struct pd_resting *resting, uint32_t number);

#endif
