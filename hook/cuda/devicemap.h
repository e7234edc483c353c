/* SPDX-License-Identifier: MIT */
/*
 * A map of where device memory has ever been: one bit for 2 MiB of address space, set by each
 * allocation that is seen. An address without a bit is a host address, and the driver need not be
 * asked; an address with one may be either. This serves calls that take both kinds of addresses,
 * and mostly get host addresses.
 *
 * A second bit is set, too, where that memory has been cuMemAlloc's. It serves cuMemFreeAsync,
 * which mostly gets memory of pools: a piece of address space is the one's or the other's.
 *
 * The map is made of parts of 8 KiB, one for 64 GiB of address space. A part is made for the first
 * device memory there: the process may have little address space left (RLIMIT_AS).
 */
#ifndef PDN_DEVICEMAP_H
#define PDN_DEVICEMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define PDN_DEVICE_SHIFT      21
#define PDN_DEVICE_PART_SHIFT 36
#define PDN_DEVICE_ADDRESS    48 /* bits; no device address lies above */
#define PDN_DEVICE_PARTS      (1u << (PDN_DEVICE_ADDRESS - PDN_DEVICE_PART_SHIFT))
/* In each part: of all memory; those of cuMemAlloc's follow. */
#define PDN_DEVICE_WORDS (1ull << (PDN_DEVICE_PART_SHIFT - PDN_DEVICE_SHIFT - 6))
enum pdn_device_map { PDN_DEVICE_ALL, PDN_DEVICE_LINEAR, PDN_DEVICE_MAPS };

/*
 * NULL: no device memory yet, or no memory for the part. Loaded with acquire, which pairs with the
 * exchange in make_part(). The bits and the flag below are relaxed: a thread that asks about an
 * address has got it from the thread that allocated the memory, which has set the bits before.
 */
extern uint64_t *pdn_device_part[PDN_DEVICE_PARTS];
extern bool pdn_device_part_failed;

void pdn_device_mark(enum pdn_device_map map, uint64_t addr, uint64_t length);

/* Only for an address below 1 << PDN_DEVICE_ADDRESS. */
static inline const uint64_t *pdn_device_part_of(uint64_t addr)
{
	return __atomic_load_n(&pdn_device_part[addr >> PDN_DEVICE_PART_SHIFT], __ATOMIC_ACQUIRE);
}

static inline bool pdn_device_bit(const uint64_t *part, enum pdn_device_map map, uint64_t addr)
{
	uint64_t slot = addr >> PDN_DEVICE_SHIFT;
	uint64_t word = map * PDN_DEVICE_WORDS + slot / 64 % PDN_DEVICE_WORDS;

	return __atomic_load_n(&part[word], __ATOMIC_RELAXED) >> slot % 64 & 1;
}

static inline bool pdn_is_marked(enum pdn_device_map map, uint64_t addr)
{
	const uint64_t *part = addr >> PDN_DEVICE_ADDRESS ? NULL : pdn_device_part_of(addr);

	return part && pdn_device_bit(part, map, addr);
}

/* Device memory of this kind is at [addr, addr + length). */
static inline void pdn_device_seen_in(enum pdn_device_map map, uint64_t addr, uint64_t length)
{
	uint64_t first = addr >> PDN_DEVICE_SHIFT, last = (addr + length - 1) >> PDN_DEVICE_SHIFT;

	if (__builtin_expect(first != last || !pdn_is_marked(map, addr), 0))
		pdn_device_mark(map, addr, length);
}

static inline void pdn_device_seen(uint64_t addr, uint64_t length)
{
	pdn_device_seen_in(PDN_DEVICE_ALL, addr, length);
}

static inline bool pdn_device_may_be_in(enum pdn_device_map map, uint64_t addr)
{
	const uint64_t *part;

	if (__builtin_expect(addr >> PDN_DEVICE_ADDRESS, 0))
		return false;
	part = pdn_device_part_of(addr);
	return part ? pdn_device_bit(part, map, addr)
		    : __atomic_load_n(&pdn_device_part_failed, __ATOMIC_RELAXED);
}

static inline bool pdn_may_be_device(uint64_t addr)
{
	return pdn_device_may_be_in(PDN_DEVICE_ALL, addr);
}

#pragma GCC visibility pop

#endif
