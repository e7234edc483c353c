/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

#include "pages.h"
#include "table.h"

/*
 * The first records take memory by small pages, as most processes have few. From where a step is huge
 * pages of records, and then of columns, they are asked for: see pd_prefer_huge(). FEW numbers lie
 * before a column's first boundary of huge pages, so that these are not begun before it is that large.
 */
#define HUGE_COLUMN ((uint32_t)(PD_HUGE_PAGE / sizeof(uint32_t)))
#define FEW	    (1u << 16)

/* Address space only. Under `ulimit -v` less will do. */
static bool reserve(struct pd_table *table)
{
	for (uint32_t n = table->most; n >= table->least; n /= 2) {
		size_t records = (size_t)n * table->record_bytes;
		size_t column = (((size_t)n - 1) / HUGE_COLUMN + 2) * PD_HUGE_PAGE;
		size_t before = PD_HUGE_PAGE - FEW * sizeof(uint32_t);
		char *p = pd_reserve(records + table->columns * column);

		if (!p)
			continue;
		for (unsigned c = 0; c < table->columns; c++)
			table->column[c] = (uint32_t *)(void *)(p + records + c * column + before);
		table->records = p;
		table->capacity = n;
		return true;
	}
	return false;
}

/* How many records become usable at a time. */
static uint32_t step(const struct pd_table *table)
{
	uint32_t left = table->capacity - table->usable;
	uint32_t records = 1024; /* a power of two of them is always a number of whole pages */

	while (records < table->usable && records * table->record_bytes < PD_HUGE_PAGE)
		records *= 2;
	if (table->usable >= FEW)
		records = HUGE_COLUMN;
	return records < left ? records : left;
}

static bool make_usable(void *start, size_t bytes)
{
	if (!pd_make_usable(start, bytes))
		return false;
	if (bytes >= PD_HUGE_PAGE)
		pd_prefer_huge(start, bytes);
	return true;
}

static bool make_column_usable(uint32_t *column, uint32_t usable, uint32_t records)
{
	/* 1024 numbers are exactly a page of 4 KiB; a larger page is made usable more than once. */
	uintptr_t first = (uintptr_t)&column[usable];
	uintptr_t page = first & ~(uintptr_t)65535;

	if (page < (uintptr_t)column)
		page = (uintptr_t)column;
	return make_usable((void *)page, first - page + records * sizeof(uint32_t));
}

static bool grow(struct pd_table *table)
{
	bool ok = table->usable < table->capacity || (table->capacity == 0 && reserve(table));
	uint32_t records = ok ? step(table) : 0;

	ok = ok && make_usable(table->records + table->usable * table->record_bytes,
			       records * table->record_bytes);
	for (unsigned c = 0; ok && c < table->columns; c++)
		ok = make_column_usable(table->column[c], table->usable, records);
	if (ok)
		table->usable += records;
	return ok;
}

/*
 * Memory for the next records at once: a page fault for each page of them would be most of what a new region
 * takes. An eighth of what there is, so that not much is taken in vain. Columns have no such use: most stripes stay empty.
 */
static void populate(struct pd_table *table)
{
	const uint32_t least = (uint32_t)(16384 / table->record_bytes);
	uint32_t left = table->usable - table->populated;
	uint32_t records = table->populated / 8 > least ? table->populated / 8 : least;

	records = records < left ? records : left;
	pd_populate(table->records + table->populated * table->record_bytes,
		    records * table->record_bytes);
	table->populated += records;
}

uint32_t pd_table_next(struct pd_table *table)
{
	if (table->used + 1 >= table->usable && !grow(table))
		return 0;
	if (table->used + 1 >= table->populated)
		populate(table);
	return ++table->used;
}

void pd_table_take_back(struct pd_table *table)
{
	table->used--;
}

void pd_table_clear(struct pd_table *table)
{
	int saved = errno;

	for (unsigned c = 0; table->usable && c < table->columns; c++)
		madvise(table->column[c], table->usable * sizeof(uint32_t), MADV_DONTNEED);
	if (table->usable)
		madvise(table->records, table->usable * table->record_bytes, MADV_DONTNEED);
	table->used = table->populated = 0;
	errno = saved;
}
