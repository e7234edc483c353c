/* SPDX-License-Identifier: MIT */
/* Sets bits in the map of device memory, and makes its parts. */
#define _GNU_SOURCE
#include <stddef.h>

#include "cache/base/memory/address_space.h"
#include "hook/cuda/devicemap.h"

#define SLOTS (1ull << (PDN_DEVICE_ADDRESS - PDN_DEVICE_SHIFT))
#define BYTES (PDN_DEVICE_MAPS * PDN_DEVICE_WORDS * sizeof(uint64_t))

uint64_t *pdn_device_part[PDN_DEVICE_PARTS];
bool pdn_device_part_failed;

static uint64_t *make_part(uint64_t **place)
{
	uint64_t *there = NULL;
	uint64_t *part = pdn_map(BYTES, PROT_READ | PROT_WRITE);

	if (!part) {
		__atomic_store_n(&pdn_device_part_failed, true, __ATOMIC_RELAXED);
		return NULL;
	}
	pdn_advise(part, BYTES, MADV_DONTDUMP);
	/*
	 * Release pairs with the acquires in devicemap.h and in set_in_word(). devicemap.h says why
	 * the rest is relaxed.
	 */
	if (__atomic_compare_exchange_n(place, &there, part, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return part;
	pdn_unreserve(part, BYTES); /* another thread was faster */
	return there;
}

static void set(uint64_t *word, uint64_t bits)
{
	if ((__atomic_load_n(word, __ATOMIC_RELAXED) & bits) != bits)
		__atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
}

/* `word` is counted through all parts. */
static void set_in_word(enum pdn_device_map map, uint64_t word, uint64_t bits)
{
	uint64_t **place = &pdn_device_part[word / PDN_DEVICE_WORDS];
	uint64_t *part = __atomic_load_n(place, __ATOMIC_ACQUIRE);

	if (!part && !__atomic_load_n(&pdn_device_part_failed, __ATOMIC_RELAXED))
		part = make_part(place);
	if (part)
		set(&part[map * PDN_DEVICE_WORDS + word % PDN_DEVICE_WORDS], bits);
}

static void mark_in(enum pdn_device_map map, uint64_t addr, uint64_t length)
{
	uint64_t first = addr >> PDN_DEVICE_SHIFT, last = (addr + length - 1) >> PDN_DEVICE_SHIFT;

	if (!length || last < first || first >= SLOTS)
		return;
	if (last >= SLOTS)
		last = SLOTS - 1;
	for (uint64_t word = first / 64; word <= last / 64; word++) {
		uint64_t bits = ~0ull;

		if (word == first / 64)
			bits &= ~0ull << first % 64;
		if (word == last / 64)
			bits &= ~0ull >> (63 - last % 64);
		set_in_word(map, word, bits);
	}
}

/* In this order: whoever sees the second bit need not look for the first. */
void pdn_device_mark(enum pdn_device_map map, uint64_t addr, uint64_t length)
{
	mark_in(PDN_DEVICE_ALL, addr, length);
	if (map != PDN_DEVICE_ALL)
		mark_in(map, addr, length);
}
