/* SPDX-License-Identifier: MIT */
/* Tables of records that stay in place. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "cache/base/memory/address_space.h"
#include "cache/base/memory/table.h"

/*
 * The first records take memory by small pages, as most processes have few. From the step that is
 * large enough, huge pages are requested (see pdn_prefer_huge()): for all of what hits read, the
 * columns and some tables' records; for other records, which are used one after the other, only as
 * far as MOST_HUGE. Their page tables are copied by each fork, so few are better; but the host of a
 * virtual machine may take unused huge pages away, and then a pin waits for each of them. FEW
 * numbers lie before a column's first boundary of huge pages, so that those are not begun before
 * the column is that large.
 */
#define HUGE_COLUMN ((uint32_t)(PDN_HUGE_PAGE / sizeof(uint32_t)))
#define FEW	    (1u << 16)
#define MOST_HUGE   (4 * PDN_HUGE_PAGE)

#define FEWEST 1024u

static size_t round_up(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* Each array begins with a page, so that a step of one makes no part of another usable. */
static size_t records_bytes(const struct pdn_table *table, uint32_t most)
{
	return round_up((size_t)most * table->record_bytes,
			most > FEW ? PDN_HUGE_PAGE : pdn_page_size());
}

static size_t column_bytes(uint32_t most)
{
	if (most <= FEW)
		return round_up(most * sizeof(uint32_t), pdn_page_size());
	return (((size_t)most - 1) / HUGE_COLUMN + 2) * PDN_HUGE_PAGE;
}

static size_t column_begins(uint32_t most)
{
	return most <= FEW ? 0 : PDN_HUGE_PAGE - FEW * sizeof(uint32_t);
}

static size_t bytes_for(struct pdn_table *const *tables, unsigned count, uint32_t most)
{
	size_t bytes = 0;

	for (unsigned i = 0; i < count; i++)
		bytes += records_bytes(tables[i], most) + tables[i]->columns * column_bytes(most);
	return bytes;
}

uint32_t pdn_tables_plan(struct pdn_table *const *tables, unsigned count, uint32_t most)
{
	uint64_t share = pdn_address_space_share();

	while (most > FEWEST && bytes_for(tables, count, most) > share)
		most /= 2;
	return most;
}

static char *carve(struct pdn_table *table, char *at, uint32_t most)
{
	table->capacity = most;
	table->records = at;
	at += records_bytes(table, most);
	for (unsigned c = 0; c < table->columns; c++) {
		table->column[c] = (uint32_t *)(void *)(at + column_begins(most));
		at += column_bytes(most);
	}
	return at;
}

bool pdn_tables_reserve(struct pdn_table *const *tables, unsigned count, uint32_t most)
{
	char *at = NULL;

	most = pdn_tables_plan(tables, count, most);
	while (!(at = pdn_reserve(bytes_for(tables, count, most))) && most > FEWEST)
		most /= 2;
	for (unsigned i = 0; at && i < count; i++)
		at = carve(tables[i], at, most);
	return at;
}

/* How many records become usable at a time. */
static uint32_t step(const struct pdn_table *table)
{
	uint32_t left = table->capacity - table->usable;
	uint32_t records = 1024; /* a power of two of them always fills whole pages */

	while (records < table->usable && records * table->record_bytes < PDN_HUGE_PAGE)
		records *= 2;
	if (table->usable >= FEW)
		records = HUGE_COLUMN;
	return records < left ? records : left;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Of an array, from this byte on. Of a larger page, a part may be usable already. */
static bool make_usable(void *array, size_t from, size_t bytes, bool for_hits)
{
	char *start = (char *)array + from;

	if (!pdn_make_usable(start, bytes))
		return false;
	if (!for_hits)
		bytes = from < MOST_HUGE ? least(bytes, MOST_HUGE - from) : 0;
	if (bytes >= PDN_HUGE_PAGE)
		pdn_prefer_huge(start, bytes);
	return true;
}

/*
 * Sequentially consistent, here and in grow(): a thread that begins to use a column while the table
 * grows sees how far it will reach, or is seen. Both may make the same part usable.
 */
bool pdn_table_use_column(struct pdn_table *table, unsigned column)
{
	uint32_t bit = 1u << column;

	__atomic_fetch_and(&table->unwanted, ~bit, __ATOMIC_SEQ_CST);
	if (!make_usable(table->column[column], 0,
			 __atomic_load_n(&table->reach, __ATOMIC_SEQ_CST) * sizeof(uint32_t), true))
		return false;
	/* Not earlier: a child that is forked here asks once more. */
	__atomic_fetch_and(&table->unused, ~bit, __ATOMIC_RELEASE);
	return true;
}

static bool grow(struct pdn_table *table)
{
	bool ok = table->usable < table->capacity;
	uint32_t records = ok ? step(table) : 0, unwanted;

	__atomic_store_n(&table->reach, table->usable + records, __ATOMIC_SEQ_CST);
	unwanted = __atomic_load_n(&table->unwanted, __ATOMIC_SEQ_CST);
	ok = ok && make_usable(table->records, table->usable * table->record_bytes,
			       records * table->record_bytes, table->is_for_hits);
	for (unsigned c = 0; ok && c < table->columns; c++)
		ok = unwanted & 1u << c ||
		     make_usable(table->column[c], table->usable * sizeof(uint32_t),
				 records * sizeof(uint32_t), true);
	if (ok)
		table->usable += records;
	return ok;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a < b ? b : a;
}

/*
 * Memory for the next records at once: a page fault for each page of them would be most of the time
 * that a new region takes. An eighth of the present size, and no more than a huge page, so that
 * little is wasted. Not for the first ones: for few pages their faults take no longer than the
 * system call. Not for columns: most stripes stay empty.
 */
static void populate(struct pdn_table *table)
{
	const uint32_t few = (uint32_t)(65536 / table->record_bytes);
	const uint32_t most = (uint32_t)(PDN_HUGE_PAGE / table->record_bytes);
	uint32_t has = table->populated;
	uint32_t records = least(least(larger(has / 8, few), most), table->usable - has);

	if (records > few)
		pdn_populate(table->records + has * table->record_bytes,
			     records * table->record_bytes);
	table->populated += records;
}

/* false: there is no room for the record. */
static bool have_record(struct pdn_table *table, uint32_t number)
{
	if (number >= table->usable && !grow(table))
		return false;
	if (!table->is_sparse && number >= table->populated)
		populate(table);
	return true;
}

static bool have_records(struct pdn_table *const *tables, unsigned count, uint32_t number)
{
	uint32_t ready = UINT32_MAX;

	for (unsigned i = 0; i < count; i++) {
		uint32_t here;

		if (!have_record(tables[i], number))
			return false;
		here = tables[i]->is_sparse ? tables[i]->usable : tables[i]->populated;
		ready = here < ready ? here : ready;
	}
	tables[0]->ready = ready;
	return true;
}

uint32_t pdn_tables_next(struct pdn_table *const *tables, unsigned count)
{
	struct pdn_table *first = tables[0];
	uint32_t number = first->used + 1;

	if (number >= first->ready && !have_records(tables, count, number))
		return 0;
	/* Relaxed: read without the lock by pdn_past_begins(). */
	__atomic_store_n(&first->used, number, __ATOMIC_RELAXED);
	return number;
}

void pdn_table_clear(struct pdn_table *table)
{
	for (unsigned c = 0; table->usable && c < table->columns; c++)
		pdn_advise(table->column[c], table->usable * sizeof(uint32_t), MADV_DONTNEED);
	if (table->usable)
		pdn_advise(table->records, table->usable * table->record_bytes, MADV_DONTNEED);
	table->used = table->populated = table->ready = 0;
}

uint32_t pdn_misuse_delay_reuse(struct pdn_resting *resting, uint32_t number)
{
	uint32_t *place = &resting->number[resting->next++ % 1024];
	uint32_t rested = *place;

	*place = number;
	return rested;
}
