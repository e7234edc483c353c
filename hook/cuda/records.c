/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#include "cache/base/lock.h"
#include "hook/cuda/records.h"

/*
 * What a record is found by. A chain by key holds each; one by value those of is_found_by_value().
 */
enum by { BY_KEY, BY_VALUE };

/* Under PD_LOCK_RECORDS. */
static struct pd_record *records;
static uint32_t room, used, unused; /* unused: index + 1 of the first free record */
static uint32_t alive;
static uint32_t *chains; /* two tables of 1 << chain_bits, by key and by value */
static unsigned chain_bits;

#define FIRST_BITS 9

static void *map(size_t bytes)
{
	int error = errno;
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	errno = error;
	return at == MAP_FAILED ? NULL : at;
}

static void unmap(void *at, size_t bytes)
{
	int error = errno;

	munmap(at, bytes);
	errno = error;
}

/* Others may be many of one value: to take one of those out of its chain would take long. */
static bool is_found_by_value(enum pd_kind kind)
{
	return kind == PD_KIND_OWNED_BY_EXTERNAL || kind == PD_KIND_MODULE || kind == PD_KIND_FRAME;
}

/* ---- chains --------------------------------------------------------------------------------- */

static size_t bytes_of_chains(unsigned bits)
{
	return 2 * sizeof(*chains) << bits;
}

static bool have_chains(void)
{
	if (!chains) {
		chains = map(bytes_of_chains(FIRST_BITS));
		chain_bits = FIRST_BITS;
	}
	return chains != NULL;
}

/*
 * Only where have_chains() has said yes. The upper bits: with twice as many chains each becomes two
 * side by side.
 */
static uint32_t *chain_of(enum by by, enum pd_kind kind, uint64_t number)
{
	uint64_t mixed = (number ^ ((uint64_t)kind << 56)) * 0x9e3779b97f4a7c15u;

	return &chains[((size_t)by << chain_bits) + (mixed >> (64 - chain_bits))];
}

static uint32_t *chain_for(enum by by, const struct pd_record *record)
{
	return chain_of(by, (enum pd_kind)record->kind, by == BY_KEY ? record->key : record->a);
}

/* Of an old chain, in the order that it has: somebody may be counting (pd_record_get()). */
static void move_to_new_chains(enum by by, uint32_t number)
{
	for (uint32_t next; number; number = next) {
		struct pd_record *record = &records[number - 1];
		uint32_t *end = chain_for(by, record);

		next = record->next[by];
		while (*end)
			end = &records[*end - 1].next[by];
		record->next[by] = 0;
		*end = number;
	}
}

/* So that chains stay short. Without memory for that they get longer. */
static void double_chains(void)
{
	uint32_t *old = chains, *more = map(bytes_of_chains(chain_bits + 1));

	if (!more)
		return;
	chains = more;
	chain_bits++;
	for (uint32_t i = 0; i < 1u << (chain_bits - 1); i++) {
		move_to_new_chains(BY_KEY, old[i]);
		move_to_new_chains(BY_VALUE, old[(1u << (chain_bits - 1)) + i]);
	}
	unmap(old, bytes_of_chains(chain_bits - 1));
}

/* ---- room ----------------------------------------------------------------------------------- */

static bool grow(void)
{
	uint32_t more = room ? room * 2 : 4096 / sizeof(*records);
	int error = errno;
	void *at;

	if (room)
		at = mremap(records, room * sizeof(*records), more * sizeof(*records),
			    MREMAP_MAYMOVE);
	else
		at = mmap(NULL, more * sizeof(*records), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	errno = error;
	if (at == MAP_FAILED)
		return false;
	records = at;
	room = more;
	return true;
}

/* Index + 1 of a record that is the caller's to fill, or 0. */
static uint32_t take_unused(void)
{
	uint32_t number = unused;

	if (number) {
		unused = records[number - 1].next[BY_KEY];
		return number;
	}
	if (used == room && !grow())
		return 0;
	return ++used;
}

static void give_back(uint32_t number)
{
	records[number - 1].kind = PD_KIND_NONE;
	records[number - 1].next[BY_KEY] = unused;
	unused = number;
	alive--;
}

/* ---- by key --------------------------------------------------------------------------------- */

/* The first record of this key in the chain from `number` on, or NULL. */
static struct pd_record *first_from(uint32_t number, enum pd_kind kind, uint64_t key)
{
	for (; number; number = records[number - 1].next[BY_KEY]) {
		struct pd_record *record = &records[number - 1];

		if (record->kind == kind && record->key == key)
			return record;
	}
	return NULL;
}

static struct pd_record *first(enum pd_kind kind, uint64_t key)
{
	return chains ? first_from(*chain_of(BY_KEY, kind, key), kind, key) : NULL;
}

static struct pd_record *next_of(const struct pd_record *record)
{
	return first_from(record->next[BY_KEY], (enum pd_kind)record->kind, record->key);
}

static void link_in(enum by by, uint32_t number)
{
	uint32_t *chain = chain_for(by, &records[number - 1]);

	records[number - 1].next[by] = *chain;
	*chain = number;
}

/* False: no memory for it. */
static bool add(enum pd_kind kind, uint64_t key, uint64_t a, uint64_t b)
{
	uint32_t number = have_chains() ? take_unused() : 0;

	if (!number)
		return false;
	records[number - 1] = (struct pd_record){.key = key, .a = a, .b = b, .kind = kind};
	link_in(BY_KEY, number);
	if (is_found_by_value(kind))
		link_in(BY_VALUE, number);
	if (++alive > 1u << chain_bits)
		double_chains();
	return true;
}

bool pd_record_add(enum pd_kind kind, uint64_t key, uint64_t a, uint64_t b)
{
	const struct pd_record *record;
	bool added;

	pd_take(PD_LOCK_RECORDS);
	record = first(kind, key);
	while (record && record->a != a)
		record = next_of(record);
	added = !record && add(kind, key, a, b);
	pd_let_go(PD_LOCK_RECORDS);
	return added;
}

unsigned pd_record_get(enum pd_kind kind, uint64_t key, unsigned skip, struct pd_record *out,
		       unsigned space)
{
	const struct pd_record *record;
	unsigned count = 0;

	pd_take(PD_LOCK_RECORDS);
	for (record = first(kind, key); record && count < space; record = next_of(record)) {
		if (skip)
			skip--;
		else
			out[count++] = *record;
	}
	pd_let_go(PD_LOCK_RECORDS);
	return count;
}

/* ---- removing ------------------------------------------------------------------------------- */

static void unlink_from(enum by by, uint32_t number)
{
	uint32_t *link = chain_for(by, &records[number - 1]);

	while (*link != number)
		link = &records[*link - 1].next[by];
	*link = records[number - 1].next[by];
}

static void remove_record(uint32_t number)
{
	unlink_from(BY_KEY, number);
	if (is_found_by_value((enum pd_kind)records[number - 1].kind))
		unlink_from(BY_VALUE, number);
	give_back(number);
}

/* Those of a chain that match; key or a is ignored when its pointer is NULL. */
static unsigned remove_from(enum by by, enum pd_kind kind, const uint64_t *key, const uint64_t *a)
{
	uint32_t number = chains ? *chain_of(by, kind, by == BY_KEY ? *key : *a) : 0;
	unsigned count = 0;

	for (uint32_t next; number; number = next) {
		const struct pd_record *record = &records[number - 1];

		next = record->next[by];
		if (record->kind != kind || (key && record->key != *key) || (a && record->a != *a))
			continue;
		remove_record(number);
		count++;
	}
	return count;
}

unsigned pd_record_remove(enum pd_kind kind, uint64_t key)
{
	unsigned count;

	pd_take(PD_LOCK_RECORDS);
	count = remove_from(BY_KEY, kind, &key, NULL);
	pd_let_go(PD_LOCK_RECORDS);
	return count;
}

unsigned pd_record_remove_one(enum pd_kind kind, uint64_t key, uint64_t a)
{
	unsigned count;

	pd_take(PD_LOCK_RECORDS);
	count = remove_from(BY_KEY, kind, &key, &a);
	pd_let_go(PD_LOCK_RECORDS);
	return count;
}

unsigned pd_record_remove_value(enum pd_kind kind, uint64_t a)
{
	unsigned count;

	pd_take(PD_LOCK_RECORDS);
	count = remove_from(BY_VALUE, kind, NULL, &a);
	pd_let_go(PD_LOCK_RECORDS);
	return count;
}

void pd_record_replace(enum pd_kind kind, uint64_t key, uint64_t a, uint64_t b)
{
	pd_take(PD_LOCK_RECORDS);
	remove_from(BY_KEY, kind, &key, NULL);
	add(kind, key, a, b);
	pd_let_go(PD_LOCK_RECORDS);
}

/* ---- counts --------------------------------------------------------------------------------- */

int64_t pd_record_count(enum pd_kind kind, uint64_t key, int change)
{
	struct pd_record *record;
	int64_t now = PD_NOT_COUNTED;

	pd_take(PD_LOCK_RECORDS);
	record = first(kind, key);
	if (record) {
		record->a += (uint64_t)(int64_t)change;
		now = (int64_t)record->a;
	}
	pd_let_go(PD_LOCK_RECORDS);
	return now;
}

void pd_record_begin_count(enum pd_kind kind, uint64_t key)
{
	pd_take(PD_LOCK_RECORDS);
	if (!first(kind, key))
		add(kind, key, 0, 0);
	pd_let_go(PD_LOCK_RECORDS);
}

void pd_record_end_count(enum pd_kind kind, uint64_t key)
{
	const struct pd_record *record;

	pd_take(PD_LOCK_RECORDS);
	record = first(kind, key);
	if (record && (int64_t)record->a <= 0)
		remove_from(BY_KEY, kind, &key, NULL);
	pd_let_go(PD_LOCK_RECORDS);
}

/* Another thread may have been halfway through a change when the process was forked. */
void pd_records_fork_child(void)
{
	records = NULL; /* its memory is left: the child of a CUDA program execs or exits soon */
	room = used = unused = alive = 0;
	chains = NULL;
}
