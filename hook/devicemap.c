/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#include "devicemap.h"

#define SLOTS (1ull << (PD_DEVICE_ADDRESS - PD_DEVICE_SHIFT))
#define BYTES (SLOTS / 8)

uint64_t *pd_device_map;
bool pd_device_map_failed;

/* 16 MiB of address space, of which a page is taken for each 64 GiB that hold device memory. */
static uint64_t *map_it(void)
{
	uint64_t *map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t *there = NULL;

	if (map == MAP_FAILED) {
		__atomic_store_n(&pd_device_map_failed, true, __ATOMIC_RELAXED);
		return NULL;
	}
	madvise(map, BYTES, MADV_DONTDUMP);
	/* Pairs with the acquire where it is looked at: see devicemap.h, also for what is relaxed here. */
	if (__atomic_compare_exchange_n(&pd_device_map, &there, map, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return map;
	munmap(map, BYTES); /* another thread was faster */
	return there;
}

static void set(uint64_t *word, uint64_t bits)
{
	if ((__atomic_load_n(word, __ATOMIC_RELAXED) & bits) != bits)
		__atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
}

void pd_device_mark(uint64_t addr, uint64_t length)
{
	uint64_t *map = __atomic_load_n(&pd_device_map, __ATOMIC_ACQUIRE);
	uint64_t first = addr >> PD_DEVICE_SHIFT, last = (addr + length - 1) >> PD_DEVICE_SHIFT;
	int error = errno;

	if (!length || last < first || first >= SLOTS)
		return;
	if (!map && !__atomic_load_n(&pd_device_map_failed, __ATOMIC_RELAXED))
		map = map_it();
	if (last >= SLOTS)
		last = SLOTS - 1;
	for (uint64_t word = first / 64; map && word <= last / 64; word++) {
		uint64_t bits = ~0ull;

		if (word == first / 64)
			bits &= ~0ull << first % 64;
		if (word == last / 64)
			bits &= ~0ull >> (63 - last % 64);
		set(&map[word], bits);
	}
	errno = error;
}
