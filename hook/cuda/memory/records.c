/* SPDX-License-Identifier: MIT */
/* The hash table behind each table of records. */
#define _GNU_SOURCE
#include <string.h>

#include "cache/base/memory/address_space.h"
#include "cache/base/thread/lock.h"
#include "cache/base/thread/thread.h"
#include "cache/base/process/system.h"
#include "hook/cuda/memory/records.h"

enum { KEY, SECOND, MEMBERS = 3 };

struct pdn_slot {
	uint64_t member[MEMBERS];
	uint32_t next; /* index + 1 of the next in its chain, or of the next unused one */
};

#define FIRST_BITS 9

static void *map(size_t bytes)
{
	return pdn_map(bytes, PROT_READ | PROT_WRITE);
}

/*
 * Before a table is used. All tables are under this lock. In a forked child each is made empty
 * first: another thread may have been halfway through a change of it. Its memory is left.
 */
static void lock(struct pdn_records *table)
{
	pdn_lock_one(PDN_LOCK_RECORDS);
	if (table->life != pdn_thread_life)
		*table = (struct pdn_records){.life = pdn_thread_life};
}

static void unlock(void)
{
	pdn_unlock_one(PDN_LOCK_RECORDS);
}

/* ---- chains; lock held ----------------------------------------------------------------------- */

static size_t bytes_of_chains(unsigned bits)
{
	return sizeof(uint32_t) << bits;
}

static bool make_chains(struct pdn_records *table)
{
	if (!table->chains) {
		table->chains = map(bytes_of_chains(FIRST_BITS));
		table->chain_bits = FIRST_BITS;
	}
	return table->chains != NULL;
}

/*
 * Only of a table with chains. The number is that of the upper bits, so that with twice as many
 * chains each one becomes two that are side by side.
 */
static uint32_t *chain_of(const struct pdn_records *table, uint64_t key)
{
	uint64_t mixed = key * 0x9e3779b97f4a7c15u;

	return &table->chains[mixed >> (64 - table->chain_bits)];
}

/* Keeps the order of the old chain: a caller of pdn_record_get() may be counting. */
static void move_to_new_chains(struct pdn_records *table, uint32_t number)
{
	for (uint32_t next; number; number = next) {
		struct pdn_slot *slot = &table->slots[number - 1];
		uint32_t *end = chain_of(table, slot->member[KEY]);

		next = slot->next;
		while (*end)
			end = &table->slots[*end - 1].next;
		slot->next = 0;
		*end = number;
	}
}

/* Keeps chains short. Without memory for it they get longer. */
static void double_chains(struct pdn_records *table)
{
	uint32_t *old = table->chains, *more = map(bytes_of_chains(table->chain_bits + 1));

	if (!more)
		return;
	table->chains = more;
	table->chain_bits++;
	for (uint32_t i = 0; i < 1u << (table->chain_bits - 1); i++)
		move_to_new_chains(table, old[i]);
	pdn_unreserve(old, bytes_of_chains(table->chain_bits - 1));
}

/* ---- slots; lock held ------------------------------------------------------------------------ */

static bool grow(struct pdn_records *table)
{
	uint32_t more = table->capacity ? table->capacity * 2 : 4096 / sizeof(struct pdn_slot);
	long at;

	if (!table->capacity)
		at = (long)map(more * sizeof(struct pdn_slot));
	else
		at = pdn_sys(SYS_mremap, table->slots, table->capacity * sizeof(struct pdn_slot),
			     more * sizeof(struct pdn_slot), MREMAP_MAYMOVE);
	if (at <= 0)
		return false;
	table->slots = (struct pdn_slot *)at;
	table->capacity = more;
	return true;
}

/* Index + 1 of a slot that the caller fills, or 0: no memory. */
static uint32_t take_slot(struct pdn_records *table)
{
	uint32_t number = table->unused;

	if (number) {
		table->unused = table->slots[number - 1].next;
		return number;
	}
	if (table->used == table->capacity && !grow(table))
		return 0;
	return ++table->used;
}

/* ---- records; lock held ---------------------------------------------------------------------- */

/* The first record of this key in the chain from `number` on, or NULL. */
static struct pdn_slot *first_from(const struct pdn_records *table, uint32_t number, uint64_t key)
{
	for (; number; number = table->slots[number - 1].next)
		if (table->slots[number - 1].member[KEY] == key)
			return &table->slots[number - 1];
	return NULL;
}

static struct pdn_slot *first(const struct pdn_records *table, uint64_t key)
{
	return table->chains ? first_from(table, *chain_of(table, key), key) : NULL;
}

static struct pdn_slot *next_of(const struct pdn_records *table, const struct pdn_slot *slot)
{
	return first_from(table, slot->next, slot->member[KEY]);
}

/* Of the first two members, whatever their types. */
static uint64_t member_of(const void *record, unsigned which)
{
	uint64_t member;

	memcpy(&member, (const char *)record + which * sizeof(member), sizeof(member));
	return member;
}

/* False: no memory for it. */
static bool add(struct pdn_records *table, const void *record, size_t size)
{
	uint32_t number = make_chains(table) ? take_slot(table) : 0, *chain;
	struct pdn_slot *slot;

	if (!number)
		return false;
	slot = &table->slots[number - 1];
	memcpy(slot->member, record, size);
	chain = chain_of(table, slot->member[KEY]);
	slot->next = *chain;
	*chain = number;
	if (++table->alive > 1u << table->chain_bits)
		double_chains(table);
	return true;
}

/* All of a key; those with this second member only, unless it is NULL. Returns how many. */
static unsigned remove_from(struct pdn_records *table, uint64_t key, const uint64_t *second)
{
	uint32_t *link = table->chains ? chain_of(table, key) : NULL;
	unsigned count = 0;

	while (link && *link) {
		uint32_t number = *link;
		struct pdn_slot *slot = &table->slots[number - 1];

		if (slot->member[KEY] != key || (second && slot->member[SECOND] != *second)) {
			link = &slot->next;
			continue;
		}
		*link = slot->next;
		slot->next = table->unused;
		table->unused = number;
		table->alive--;
		count++;
	}
	return count;
}

/* ---- tables ---------------------------------------------------------------------------------- */

bool pdn_records_add(struct pdn_records *table, const void *record, size_t size)
{
	const struct pdn_slot *slot;
	bool added;

	lock(table);
	slot = first(table, member_of(record, KEY));
	while (slot && slot->member[SECOND] != member_of(record, SECOND))
		slot = next_of(table, slot);
	added = !slot && add(table, record, size);
	unlock();
	return added;
}

void pdn_records_replace(struct pdn_records *table, const void *record, size_t size)
{
	lock(table);
	remove_from(table, member_of(record, KEY), NULL);
	add(table, record, size);
	unlock();
}

unsigned pdn_records_get(struct pdn_records *table, uint64_t key, unsigned skip, void *out,
			 size_t size, unsigned room)
{
	const struct pdn_slot *slot;
	unsigned count = 0;

	lock(table);
	for (slot = first(table, key); slot && count < room; slot = next_of(table, slot)) {
		if (skip)
			skip--;
		else
			memcpy((char *)out + count++ * size, slot->member, size);
	}
	unlock();
	return count;
}

unsigned pdn_records_remove(struct pdn_records *table, uint64_t key)
{
	unsigned count;

	lock(table);
	count = remove_from(table, key, NULL);
	unlock();
	return count;
}

unsigned pdn_records_remove_one(struct pdn_records *table, uint64_t key, uint64_t second)
{
	unsigned count;

	lock(table);
	count = remove_from(table, key, &second);
	unlock();
	return count;
}

/* ---- counts ---------------------------------------------------------------------------------- */

int64_t pdn_count_change(struct pdn_key_counts *counts, uint64_t key, int change)
{
	struct pdn_slot *slot;
	int64_t now = PDN_NOT_COUNTED;

	lock(&counts->table);
	slot = first(&counts->table, key);
	if (slot) {
		slot->member[SECOND] += (uint64_t)(int64_t)change;
		now = (int64_t)slot->member[SECOND];
	}
	unlock();
	return now;
}

void pdn_count_begin(struct pdn_key_counts *counts, uint64_t key)
{
	const struct pdn_count none = {.key = key};

	lock(&counts->table);
	if (!first(&counts->table, key))
		add(&counts->table, &none, sizeof(none));
	unlock();
}

void pdn_count_end(struct pdn_key_counts *counts, uint64_t key)
{
	const struct pdn_slot *slot;

	lock(&counts->table);
	slot = first(&counts->table, key);
	if (slot && (int64_t)slot->member[SECOND] <= 0)
		remove_from(&counts->table, key, NULL);
	unlock();
}

void pdn_count_set(struct pdn_key_counts *counts, uint64_t key, int64_t count)
{
	pdn_records_replace(&counts->table, &(struct pdn_count){.key = key, .count = count},
			    sizeof(struct pdn_count));
}

void pdn_count_remove(struct pdn_key_counts *counts, uint64_t key)
{
	pdn_records_remove(&counts->table, key);
}
