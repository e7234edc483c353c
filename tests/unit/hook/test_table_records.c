/* SPDX-License-Identifier: MIT */
/*
 * The tables of what hook/ remembers between calls, hook/cuda/memory/records.c, against a plain
 * array that holds the same. The source is included, to look at what a search has to go through.
 */
#include "hook/cuda/memory/records.c"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "tests/unit/hook/checked.h"

#define MAX_RECORDS 12000
#define TABLES	    3

struct record {
	uint64_t key, second, third;
};
static PDN_TABLE(struct record) tables[TABLES];

static bool add_record(unsigned table, uint64_t key, uint64_t second, uint64_t third)
{
	struct record record = {key, second, third};

	return pdn_record_add(&tables[table], &record);
}

static void replace_record(unsigned table, uint64_t key, uint64_t second, uint64_t third)
{
	struct record record = {key, second, third};

	pdn_record_replace(&tables[table], &record);
}

/* ---- the model ------------------------------------------------------------------------------- */

static struct {
	unsigned table;
	struct record record;
} model[MAX_RECORDS];
static unsigned in_model;

static bool model_has(unsigned table, uint64_t key, uint64_t second)
{
	for (unsigned i = 0; i < in_model; i++)
		if (model[i].table == table && model[i].record.key == key &&
		    model[i].record.second == second)
			return true;
	return false;
}

static void model_add(unsigned table, uint64_t key, uint64_t second, uint64_t third)
{
	model[in_model].table = table;
	model[in_model++].record = (struct record){key, second, third};
}

static unsigned model_remove(unsigned table, uint64_t key, const uint64_t *second)
{
	unsigned kept = 0, before = in_model;

	for (unsigned i = 0; i < in_model; i++)
		if (model[i].table != table || model[i].record.key != key ||
		    (second && model[i].record.second != *second))
			model[kept++] = model[i];
	in_model = kept;
	return before - kept;
}

static unsigned model_count(unsigned table, uint64_t key)
{
	unsigned count = 0;

	for (unsigned i = 0; i < in_model; i++)
		count += model[i].table == table && model[i].record.key == key;
	return count;
}

static bool model_has_all_of(unsigned table, const struct record *record)
{
	for (unsigned i = 0; i < in_model; i++)
		if (model[i].table == table && !memcmp(&model[i].record, record, sizeof(*record)))
			return true;
	return false;
}

/* Every record of the key, read a few at a time, is in the model, and as many. */
static bool agrees(unsigned table, uint64_t key)
{
	struct record found[3];
	unsigned done = 0, count;

	do {
		count = pdn_record_get(&tables[table], key, done, found, 3);
		for (unsigned i = 0; i < count; i++)
			if (found[i].key != key || !model_has_all_of(table, &found[i]))
				return false;
		done += count;
	} while (count == 3);
	return done == model_count(table, key);
}

static bool same_at_random(void)
{
	srandom(1);
	for (unsigned step = 0; step < 12000; step++) {
		unsigned table = (unsigned)random() % TABLES;
		uint64_t key = (uint64_t)(random() % 2000) << 12, second = random() % 40;
		bool known;

		if (in_model == MAX_RECORDS)
			return false; /* then it is too small */
		known = model_has(table, key, second);
		switch (random() % 64) {
		case 0:
			if (pdn_record_remove(&tables[table], key) !=
			    model_remove(table, key, NULL))
				return false;
			break;
		case 1:
			if (pdn_record_remove_one(&tables[table], key, second) !=
			    model_remove(table, key, &second))
				return false;
			break;
		case 2:
			model_remove(table, key, NULL);
			replace_record(table, key, second, step);
			model_add(table, key, second, step);
			break;
		default:
			if (add_record(table, key, second, step) == known)
				return false;
			if (!known)
				model_add(table, key, second, step);
		}
		if (!agrees(table, key))
			return false;
	}
	return true;
}

/* ---- how long a search takes ----------------------------------------------------------------- */

static unsigned longest_chain(const struct pdn_records *table)
{
	unsigned longest = 0;

	for (size_t i = 0; i < (size_t)1 << table->chain_bits; i++) {
		unsigned length = 0;

		for (uint32_t number = table->chains[i]; number; length++)
			number = table->slots[number - 1].next;
		longest = length > longest ? length : longest;
	}
	return longest;
}

/* As many as a GPU has mappings of 2 MiB. */
static void many(void)
{
	const uint64_t base = UINT64_C(0x7f4400000000), step = 2 << 20;
	bool all = true;

	pdn_thread_life++; /* the tables are empty */
	for (uint64_t i = 0; i < 100000; i++)
		replace_record(0, base + i * step, i + 1, step);
	check(longest_chain(&tables[0].table) <= 8, "a search of many goes through few");
	for (uint64_t i = 0; i < 100000; i++)
		all &= pdn_record_remove_one(&tables[0], base + i * step, i + 1) == 1;
	check(all, "and each is found");
}

/* ---- no memory ------------------------------------------------------------------------------- */

/* The table is full, and so is its memory, which has whole pages: it can't grow. */
static void without_memory(void)
{
	struct rlimit limit, none;
	bool all = true, added, kept;
	uint64_t key = 0;

	pdn_thread_life++; /* the tables are empty */
	getrlimit(RLIMIT_AS, &limit);
	do
		add_record(0, ++key, 2, 3);
	while (tables[0].table.used < tables[0].table.capacity ||
	       tables[0].table.capacity * sizeof(struct pdn_slot) < (size_t)sysconf(_SC_PAGESIZE));
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
	setrlimit(RLIMIT_AS, &none);
	errno = 77;
	added = add_record(0, key + 1, 2, 3);
	kept = errno == 77;
	setrlimit(RLIMIT_AS, &limit);
	check(!added && kept, "a record without memory is not added, and errno is kept");
	for (uint64_t k = 1; k <= key; k++)
		all &= pdn_record_remove(&tables[0], k) == 1;
	check(all, "and the others are still there");
}

/* ---- counts ---------------------------------------------------------------------------------- */

static struct pdn_key_counts counted;

static void counts(void)
{
	check(pdn_count_change(&counted, 5, 1) == PDN_NOT_COUNTED, "no count where none was begun");
	pdn_count_begin(&counted, 5);
	pdn_count_begin(&counted, 5);
	check(pdn_count_change(&counted, 5, 1) == 1 && pdn_count_change(&counted, 5, 1) == 2,
	      "a count goes up");
	pdn_count_end(&counted, 5);
	check(pdn_count_change(&counted, 5, -1) == 1, "and stays as long as it is not 0");
	check(pdn_count_change(&counted, 5, -1) == 0 && pdn_count_change(&counted, 5, -1) == -1,
	      "and goes down");
	pdn_count_end(&counted, 5);
	check(pdn_count_change(&counted, 5, -1) == PDN_NOT_COUNTED, "and is gone then");
	pdn_count_set(&counted, 5, 7);
	check(pdn_count_change(&counted, 5, 0) == 7, "a count can be set");
	pdn_count_remove(&counted, 5);
	check(pdn_count_change(&counted, 5, 0) == PDN_NOT_COUNTED, "and removed, whatever it is");
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *add_own(void *arg)
{
	uint64_t own = (uintptr_t)arg;

	for (uint64_t second = 0; second < 3000; second++) {
		add_record(1, own, second, 0);
		pdn_count_change(&counted, 1, 1);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread[4];
	bool all = true;

	pdn_count_begin(&counted, 1);
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, add_own, (void *)(i + 100));
	for (unsigned i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	for (uint64_t i = 0; i < 4; i++)
		all &= pdn_record_remove(&tables[1], i + 100) == 3000;
	check(all, "what threads add at once is all there");
	check(pdn_count_change(&counted, 1, 0) == 12000, "and what they count");
}

int main(void)
{
	check(same_at_random(), "after random operations, records equal a plain array");
	many();
	if (!getenv("TEST_EMULATOR")) /* which need not know the limit */
		without_memory();
	counts();
	threads();
	pdn_thread_life++;
	check(pdn_count_change(&counted, 1, 0) == PDN_NOT_COUNTED, "a child begins with none");
	check(add_record(2, 1, 2, 3) && !add_record(2, 1, 2, 3), "and can have its own");
	return checked_end();
}
