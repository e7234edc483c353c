/* SPDX-License-Identifier: MIT */
/*
 * What hook/ remembers between calls: hook/cuda/records.c, against a plain array with the same
 * contents. The test includes the source, to count what a search has to go through.
 */
#include "hook/cuda/records.c"

#include <stdio.h>
#include <pthread.h>
#include <stdlib.h>

#define MOST 12000

static unsigned passed, failed;

static void check(bool well, const char *what)
{
	if (well) {
		passed++;
		return;
	}
	failed++;
	printf("not so: %s\n", what);
}

/* ---- the model ------------------------------------------------------------------------------ */

static struct {
	enum pd_kind kind;
	uint64_t key, a;
} model[MOST];
static unsigned in_model;

static unsigned model_has(enum pd_kind kind, uint64_t key, uint64_t a)
{
	for (unsigned i = 0; i < in_model; i++)
		if (model[i].kind == kind && model[i].key == key && model[i].a == a)
			return true;
	return false;
}

static unsigned model_remove(enum pd_kind kind, const uint64_t *key, const uint64_t *a)
{
	unsigned kept = 0, before = in_model;

	for (unsigned i = 0; i < in_model; i++)
		if (model[i].kind != kind || (key && model[i].key != *key) ||
		    (a && model[i].a != *a))
			model[kept++] = model[i];
	in_model = kept;
	return before - kept;
}

static unsigned model_count(enum pd_kind kind, uint64_t key)
{
	unsigned count = 0;

	for (unsigned i = 0; i < in_model; i++)
		count += model[i].kind == kind && model[i].key == key;
	return count;
}

/* Every record of the key, read a few at a time, is in the model, and there are as many of them. */
static bool agrees(enum pd_kind kind, uint64_t key)
{
	struct pd_record found[3];
	unsigned done = 0, count;

	do {
		count = pd_record_get(kind, key, done, found, 3);
		for (unsigned i = 0; i < count; i++)
			if (found[i].key != key || !model_has(kind, key, found[i].a))
				return false;
		done += count;
	} while (count == 3);
	return done == model_count(kind, key);
}

static bool same_at_random(void)
{
	static const enum pd_kind kinds[] = {PD_KIND_OWNED_BY_EXTERNAL, PD_KIND_MODULE,
					     PD_KIND_EXEC};

	srandom(1);
	for (unsigned step = 0; step < 12000; step++) {
		enum pd_kind kind = kinds[random() % 3];
		uint64_t key = (uint64_t)(random() % 2000) << 12, a = random() % 40;
		bool known;

		if (in_model == MOST)
			return false; /* the array was too small */
		known = model_has(kind, key, a);
		switch (random() % 64) {
		case 0:
			if (pd_record_remove(kind, key) != model_remove(kind, &key, NULL))
				return false;
			break;
		case 1:
			if (kind == PD_KIND_EXEC)
				break;
			if (pd_record_remove_value(kind, a) != model_remove(kind, NULL, &a))
				return false;
			break;
		case 2:
			if (pd_record_remove_one(kind, key, a) != model_remove(kind, &key, &a))
				return false;
			break;
		case 3:
			model_remove(kind, &key, NULL);
			pd_record_replace(kind, key, a, step);
			model[in_model].kind = kind;
			model[in_model].key = key;
			model[in_model++].a = a;
			break;
		default:
			if (pd_record_add(kind, key, a, step) == known)
				return false;
			if (!known) {
				model[in_model].kind = kind;
				model[in_model].key = key;
				model[in_model++].a = a;
			}
		}
		if (!agrees(kind, key))
			return false;
	}
	return true;
}

/* ---- how long a search takes ---- */

static unsigned longest_chain(void)
{
	unsigned longest = 0;

	for (size_t i = 0; i < (size_t)2 << chain_bits; i++) {
		unsigned length = 0;

		for (uint32_t number = chains[i]; number; length++)
			number = records[number - 1].next[i >> chain_bits];
		longest = length > longest ? length : longest;
	}
	return longest;
}

/* As many as a GPU has mappings of 2 MiB, all of one owner. */
static void many(void)
{
	const uint64_t base = UINT64_C(0x7f4400000000), step = 2 << 20;
	bool all = true;

	pd_records_fork_child(); /* it is empty */
	for (uint64_t i = 0; i < 100000; i++)
		pd_record_replace(PD_KIND_MAPPING, base + i * step, i + 1, step);
	for (uint64_t i = 0; i < 1000; i++)
		pd_record_add(PD_KIND_OWNED_BY_EXTERNAL, i, base - i * step, step);
	check(longest_chain() <= 8, "a search among many goes through few");
	for (uint64_t i = 0; i < 100000; i++)
		all &= pd_record_remove_one(PD_KIND_MAPPING, base + i * step, i + 1) == 1;
	for (uint64_t i = 0; i < 1000; i++)
		all &= pd_record_remove_value(PD_KIND_OWNED_BY_EXTERNAL, base - i * step) == 1;
	check(all, "and each is found");
}

/* ---- counts --------------------------------------------------------------------------------- */

static void counts(void)
{
	check(pd_record_count(PD_KIND_IPC, 5, 1) == PD_NOT_COUNTED,
	      "no count where none was begun");
	pd_record_begin_count(PD_KIND_IPC, 5);
	pd_record_begin_count(PD_KIND_IPC, 5);
	check(pd_record_count(PD_KIND_IPC, 5, 1) == 1 && pd_record_count(PD_KIND_IPC, 5, 1) == 2,
	      "a count goes up");
	pd_record_end_count(PD_KIND_IPC, 5);
	check(pd_record_count(PD_KIND_IPC, 5, -1) == 1, "and stays as long as it is not 0");
	check(pd_record_count(PD_KIND_IPC, 5, -1) == 0 && pd_record_count(PD_KIND_IPC, 5, -1) == -1,
	      "and goes down");
	pd_record_end_count(PD_KIND_IPC, 5);
	check(pd_record_count(PD_KIND_IPC, 5, -1) == PD_NOT_COUNTED, "and is gone then");
}

/* ---- threads -------------------------------------------------------------------------------- */

static void *add_own(void *arg)
{
	uint64_t own = (uintptr_t)arg;

	for (uint64_t a = 0; a < 3000; a++) {
		pd_record_add(PD_KIND_MODULE, own, a, 0);
		pd_record_count(PD_KIND_CONTEXT, 1, 1);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread[4];
	bool all = true;

	pd_record_begin_count(PD_KIND_CONTEXT, 1);
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, add_own, (void *)(i + 100));
	for (unsigned i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	for (uint64_t i = 0; i < 4; i++)
		all &= pd_record_remove(PD_KIND_MODULE, i + 100) == 3000;
	check(all, "records that threads add at once are all there");
	check(pd_record_count(PD_KIND_CONTEXT, 1, 0) == 12000, "and so are their counts");
}

int main(void)
{
	check(same_at_random(), "after random operations, records equal a plain array");
	many();
	counts();
	threads();
	pd_records_fork_child();
	check(pd_record_count(PD_KIND_CONTEXT, 1, 0) == PD_NOT_COUNTED, "a child begins with none");
	check(pd_record_add(PD_KIND_EXEC, 1, 2, 3) && !pd_record_add(PD_KIND_EXEC, 1, 2, 3),
	      "and can have its own");
	printf("%u passed, %u failed\n", passed, failed);
	return failed != 0;
}
