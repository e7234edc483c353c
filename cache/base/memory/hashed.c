/* SPDX-License-Identifier: MIT */
/* Records found by a hash: chains in buckets, as many buckets as the table has room for records. */
#define _GNU_SOURCE
#include "cache/base/memory/hashed.h"

#define MOST (1u << 20) /* address space is reserved for these; far more than a process can use */

static struct pdn_hashed_link *link_at(const struct pdn_hashed *in, uint32_t number)
{
	return pdn_hashed_at(in, number);
}

static uint32_t *bucket_of(const struct pdn_hashed *in, uint64_t hash)
{
	return &in->table.column[0][hash & (in->buckets - 1)];
}

/* Release, also in fill_words(): pairs with the acquires of a walk without the lock (hashed.h). */
static void set(uint32_t *at, uint32_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static void put_in_bucket(struct pdn_hashed *in, uint32_t number)
{
	uint32_t *bucket = bucket_of(in, link_at(in, number)->hash);

	set(&link_at(in, number)->next, *bucket);
	set(bucket, number);
}

/* Records are aligned for these, and their size is a multiple of one. */
typedef uint64_t __attribute__((may_alias)) word;

/* Relaxed would do for words that no walk reads. */
static void fill_words(void *record, const void *from, size_t begin, size_t end)
{
	word *to = record;
	const word *values = from;

	for (size_t i = begin / sizeof(word); i < end / sizeof(word); i++)
		__atomic_store_n(&to[i], values ? values[i] : 0, __ATOMIC_RELEASE);
}

void pdn_hashed_fill(const struct pdn_hashed *in, uint32_t number, const void *record)
{
	fill_words(link_at(in, number), record, sizeof(struct pdn_hashed_link),
		   in->table.record_bytes);
}

/* The table has grown: twice the buckets, or more, and all records go into their new ones. */
static void add_buckets(struct pdn_hashed *in)
{
	uint32_t buckets = 1;

	while (buckets * 2 <= in->table.usable)
		buckets *= 2;
	if (buckets == in->buckets)
		return;
	set(&in->buckets, buckets);
	for (uint32_t i = 0; i < buckets; i++)
		set(&in->table.column[0][i], 0);
	for (uint32_t n = 1; n <= in->table.used; n++)
		if (link_at(in, n)->taken)
			put_in_bucket(in, n);
}

/* All that have wanted memory. Under the cache's lock; release: for a child, forked meanwhile. */
static struct pdn_hashed *begun;

static bool begin(struct pdn_hashed *in)
{
	struct pdn_table *tables[] = {&in->table};
	struct pdn_hashed *listed = begun;

	while (listed && listed != in)
		listed = listed->begun_before;
	if (!listed) {
		in->begun_before = begun;
		__atomic_store_n(&begun, in, __ATOMIC_RELEASE);
	}
	return pdn_tables_reserve(tables, 1, in->most ? in->most : MOST);
}

static uint32_t take_record(struct pdn_hashed *in)
{
	uint32_t number = in->free;

	if (number) {
		in->free = link_at(in, number)->next;
		return number;
	}
	if (!in->table.records && !begin(in))
		return 0;
	number = pdn_table_next(&in->table);
	if (number)
		add_buckets(in);
	return number;
}

uint32_t pdn_hashed_add(struct pdn_hashed *in, uint64_t hash)
{
	uint32_t number = take_record(in);

	if (!number)
		return 0;
	fill_words(link_at(in, number), NULL, 0, in->table.record_bytes);
	__atomic_store_n(&link_at(in, number)->hash, hash, __ATOMIC_RELEASE);
	link_at(in, number)->taken = 1;
	put_in_bucket(in, number);
	/* Relaxed, here and below: for an owner that asks without the lock whether there is any. */
	__atomic_store_n(&in->count, in->count + 1, __ATOMIC_RELAXED);
	return number;
}

void pdn_hashed_remove(struct pdn_hashed *in, uint32_t number)
{
	struct pdn_hashed_link *link = link_at(in, number);
	uint32_t *at = bucket_of(in, link->hash);

	while (*at != number)
		at = &link_at(in, *at)->next;
	set(at, link->next);
	link->taken = 0;
	set(&link->next, in->free);
	in->free = number;
	__atomic_store_n(&in->count, in->count - 1, __ATOMIC_RELAXED);
}

static uint32_t with_hash(const struct pdn_hashed *in, uint32_t number, uint64_t hash)
{
	while (number && link_at(in, number)->hash != hash)
		number = link_at(in, number)->next;
	return number;
}

uint32_t pdn_hashed_first(const struct pdn_hashed *in, uint64_t hash)
{
	return in->count ? with_hash(in, *bucket_of(in, hash), hash) : 0;
}

uint32_t pdn_hashed_next(const struct pdn_hashed *in, uint32_t number)
{
	const struct pdn_hashed_link *link = link_at(in, number);

	return with_hash(in, link->next, link->hash);
}

void pdn_hashed_clear_all(void)
{
	for (struct pdn_hashed *in = begun; in; in = in->begun_before) {
		pdn_table_clear(&in->table);
		in->free = in->count = 0;
	}
}
