/* SPDX-License-Identifier: MIT */
/*
 * A map of where device memory has ever been: one bit for 2 MiB of address space, set by each
 * allocation that is seen. An address without a bit is a host address, and the driver need not be
 * asked; an address with one may be either. This serves calls that take both kinds of addresses,
 * and mostly get host addresses.
 *
 * The map is made of parts of 4 KiB, one for 64 GiB of address space. A part is made for the first
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
/* In each part. */
#define PDN_DEVICE_WORDS (1u << (PDN_DEVICE_PART_SHIFT - PDN_DEVICE_SHIFT - 6))

/*
 * NULL: no device memory yet, or no memory for the part. Loaded with acquire, which pairs with the
 * exchange in make_part(). The bits and the flag below are relaxed: a thread that asks about an
 * address has got it from the thread that allocated the memory, which has set the bits before.
 */
extern uint64_t *pdn_device_part[PDN_DEVICE_PARTS];
extern bool pdn_device_part_failed;

void pdn_device_mark(uint64_t addr, uint64_t length);

/* Only for an address below 1 << PDN_DEVICE_ADDRESS. */
static inline const uint64_t *pdn_device_part_of(uint64_t addr)
{
	return __atomic_load_n(&pdn_device_part[addr >> PDN_DEVICE_PART_SHIFT], __ATOMIC_ACQUIRE);
}

static inline bool pdn_device_bit(const uint64_t *part, uint64_t addr)
{
	uint64_t slot = addr >> PDN_DEVICE_SHIFT;

	return __atomic_load_n(&part[slot / 64 % PDN_DEVICE_WORDS], __ATOMIC_RELAXED) >> slot % 64 &
	       1;
}

static inline bool pdn_is_marked(uint64_t addr)
{
	const uint64_t *part = addr >> PDN_DEVICE_ADDRESS ? NULL : pdn_device_part_of(addr);

	return part && pdn_device_bit(part, addr);
}

/* Device memory is at [addr, addr + length). */
static inline void pdn_device_seen(uint64_t addr, uint64_t length)
{
	uint64_t first = addr >> PDN_DEVICE_SHIFT, last = (addr + length - 1) >> PDN_DEVICE_SHIFT;

	if (__builtin_expect(first != last || !pdn_is_marked(addr), 0))
		pdn_device_mark(addr, length);
}

static inline bool pdn_may_be_device(uint64_t addr)
{
	const uint64_t *part;

	if (__builtin_expect(addr >> PDN_DEVICE_ADDRESS, 0))
		return false;
	part = pdn_device_part_of(addr);
	return part ? pdn_device_bit(part, addr)
		    : __atomic_load_n(&pdn_device_part_failed, __ATOMIC_RELAXED);
}

#pragma GCC visibility pop

#endif
