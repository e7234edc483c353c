/* SPDX-License-Identifier: MIT */
/*
 * What hook/cuda/memory/mappings.c says of memory that was mapped, unmapped and mapped again, with
 * calls that it sees or without. The source is included, to look into its table.
 */
#include "hook/cuda/memory/mappings.c"

#include "tests/unit/hook/checked.h"

#define MIB(n) ((uint64_t)(n) << 20)
#define BASE   UINT64_C(0x7f4400000000)

/* ---- a driver: a mapping of 2 MiB at each place, or none ---- */

#define PLACES 64

static uint64_t ids[PLACES], last_id = 100;

static uint64_t at(unsigned place)
{
	return BASE + MIB(2) * place;
}

uint64_t pdn_buffer_id(uint64_t addr)
{
	return ids[(addr - BASE) / MIB(2)];
}

static void map_unseen(unsigned place)
{
	ids[place] = ++last_id;
}

static void map(unsigned place)
{
	map_unseen(place);
	pdn_mapped(at(place), MIB(2));
}

static void unmap(unsigned place, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		ids[place + i] = 0;
	pdn_unmapped(at(place), count * MIB(2));
}

static bool is_known(unsigned place)
{
	return pdn_mapping_is_known(at(place), ids[place]);
}

static bool is_remembered(unsigned place)
{
	struct mapping found;

	return pdn_record_get(&mappings, at(place), 0, &found, 1);
}

int main(void)
{
	uint64_t old;

	map(0);
	map(1);
	map(2);
	check(is_known(0) && is_known(1) && is_known(2), "mapped memory is known");
	check(!pdn_mapping_is_known(at(0) + 1, ids[0]), "by its first address");
	check(!pdn_mapping_is_known(at(0), ids[1]), "and by its id");

	old = ids[0];
	unmap(0, 2);
	check(!pdn_mapping_is_known(at(0), old), "unmapped memory is not known");
	check(!is_remembered(0) && !is_remembered(1), "and takes no memory");
	check(is_known(2), "its neighbour is known");

	/* Unmapped unseen, and now something else is there: a graph's memory. */
	map_unseen(2);
	check(!is_known(2), "an id of other memory is no mapping's");
	map(2);
	check(is_known(2), "until the mapping is there");

	/* Another thread has mapped again before pdn_unmapped() is called. */
	map(3);
	map(4);
	ids[3] = 0;
	map(3);
	ids[4] = 0;
	pdn_unmapped(at(3), MIB(4));
	check(is_known(3), "a mapping newer than the unmap stays");
	check(!is_remembered(4), "the one after it goes");

	for (unsigned round = 0; round < 1000; round++) {
		for (unsigned place = 8; place < 40; place++)
			map(place);
		unmap(8, 32);
	}
	for (unsigned place = 8; place < 40; place++)
		check(!is_remembered(place), "nothing is left of mappings that have ended");
	return checked_end();
}
