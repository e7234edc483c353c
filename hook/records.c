/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include "records.h"

#define CHAINS 512

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock. */
static struct pd_record *records;
static uint32_t room, used, unused; /* unused: index + 1 of the first free record */
static uint32_t chains[CHAINS];

static uint32_t *chain_of(enum pd_kind kind, uint64_t key)
{
	uint64_t mixed = (key ^ ((uint64_t)kind << 56)) * 0x9e3779b97f4a7c15u;

	return &chains[mixed >> 55];
}

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
		unused = records[number - 1].next;
		return number;
	}
	if (used == room && !grow())
		return 0;
	return ++used;
}

static void give_back(uint32_t number)
{
	records[number - 1].kind = PD_KIND_NONE;
	records[number - 1].next = unused;
	unused = number;
}

/* The first record of this key in the chain from `number` on, or NULL. */
static struct pd_record *first(uint32_t number, enum pd_kind kind, uint64_t key)
{
	for (; number; number = records[number - 1].next) {
		struct pd_record *record = &records[number - 1];

		if (record->kind == kind && record->key == key)
			return record;
	}
	return NULL;
}

/* False: no memory for it. */
static bool add(enum pd_kind kind, uint64_t key, uint64_t a, uint64_t b)
{
	uint32_t *chain = chain_of(kind, key);
	uint32_t number = take_unused();

	if (!number)
		return false;
	records[number - 1] = (struct pd_record){key, a, b, *chain, kind};
	*chain = number;
	return true;
}

bool pd_record_add(enum pd_kind kind, uint64_t key, uint64_t a, uint64_t b)
{
	const struct pd_record *record;
	bool added;

	pthread_mutex_lock(&lock);
	record = first(*chain_of(kind, key), kind, key);
	while (record && record->a != a)
		record = first(record->next, kind, key);
	added = !record && add(kind, key, a, b);
	pthread_mutex_unlock(&lock);
	return added;
}

unsigned pd_record_get(enum pd_kind kind, uint64_t key, unsigned skip, struct pd_record *out,
		       unsigned space)
{
	const struct pd_record *record;
	unsigned count = 0;

	pthread_mutex_lock(&lock);
	for (record = first(*chain_of(kind, key), kind, key); record && count < space;
	     record = first(record->next, kind, key)) {
		if (skip)
			skip--;
		else
			out[count++] = *record;
	}
	pthread_mutex_unlock(&lock);
	return count;
}

/* Unlink those of a chain that match; key or a is ignored when its pointer is NULL. */
static unsigned remove_from(uint32_t *link, enum pd_kind kind, const uint64_t *key,
			    const uint64_t *a)
{
	unsigned count = 0;

	while (*link) {
		uint32_t number = *link;
		struct pd_record *record = &records[number - 1];

		if (record->kind != kind || (key && record->key != *key) ||
		    (a && record->a != *a)) {
			link = &record->next;
			continue;
		}
		*link = record->next;
		give_back(number);
		count++;
	}
	return count;
}

unsigned pd_record_remove(enum pd_kind kind, uint64_t key)
{
	unsigned count;

	pthread_mutex_lock(&lock);
	count = remove_from(chain_of(kind, key), kind, &key, NULL);
	pthread_mutex_unlock(&lock);
	return count;
}

unsigned pd_record_remove_value(enum pd_kind kind, uint64_t a)
{
	unsigned count = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < CHAINS; i++)
		count += remove_from(&chains[i], kind, NULL, &a);
	pthread_mutex_unlock(&lock);
	return count;
}

int64_t pd_record_count(enum pd_kind kind, uint64_t key, int change)
{
	struct pd_record *record;
	int64_t now = PD_NOT_COUNTED;

	pthread_mutex_lock(&lock);
	record = first(*chain_of(kind, key), kind, key);
	if (record) {
		record->a += (uint64_t)(int64_t)change;
		now = (int64_t)record->a;
	}
	pthread_mutex_unlock(&lock);
	return now;
}

void pd_record_begin_count(enum pd_kind kind, uint64_t key)
{
	pthread_mutex_lock(&lock);
	if (!first(*chain_of(kind, key), kind, key))
		add(kind, key, 0, 0);
	pthread_mutex_unlock(&lock);
}

void pd_record_end_count(enum pd_kind kind, uint64_t key)
{
	const struct pd_record *record;

	pthread_mutex_lock(&lock);
	record = first(*chain_of(kind, key), kind, key);
	if (record && (int64_t)record->a <= 0)
		remove_from(chain_of(kind, key), kind, &key, NULL);
	pthread_mutex_unlock(&lock);
}

/* Another thread may have held the lock when the process was forked, halfway through a change. */
void pd_records_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	records = NULL; /* its memory is left: the child of a CUDA program execs or exits soon */
	room = used = unused = 0;
	for (unsigned i = 0; i < CHAINS; i++)
		chains[i] = 0;
}
