/* SPDX-License-Identifier: MIT */
/*
 * Where device memory has ever been: one bit for 2 MiB of address space, set by each allocation that we
 * see. Where no bit is set an address is the host's, without asking the driver; where one is, it may be
 * either's. For calls that take both kinds of addresses, and mostly the host's.
 */
#ifndef PD_DEVICEMAP_H
#define PD_DEVICEMAP_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define PD_DEVICE_SHIFT	  21
#define PD_DEVICE_ADDRESS 48 /* bits; no device address lies above */

/*
 * NULL: no device memory yet, or no room for the map. Loaded with acquire, which pairs with the exchange in
 * map_it(). Bits are relaxed, as the other flag is: who asks about an address has it from the thread that
 * allocated it, which has set the bits before.
 */
extern uint64_t *pd_device_map;
extern bool pd_device_map_failed;

void pd_device_mark(uint64_t addr, uint64_t length);

static inline bool pd_device_bit(const uint64_t *map, uint64_t slot)
{
	return __atomic_load_n(&map[slot / 64], __ATOMIC_RELAXED) >> slot % 64 & 1;
}

/* Device memory is at [addr, addr + length). */
static inline void pd_device_seen(uint64_t addr, uint64_t length)
{
	const uint64_t *map = __atomic_load_n(&pd_device_map, __ATOMIC_ACQUIRE);
	uint64_t first = addr >> PD_DEVICE_SHIFT, last = (addr + length - 1) >> PD_DEVICE_SHIFT;

	if (__builtin_expect(!map || first != last || addr >> PD_DEVICE_ADDRESS ||
				     !pd_device_bit(map, first),
			     0))
		pd_device_mark(addr, length);
}

static inline bool pd_may_be_device(uint64_t addr)
{
	const uint64_t *map = __atomic_load_n(&pd_device_map, __ATOMIC_ACQUIRE);

	if (__builtin_expect(!map, 0))
		return __atomic_load_n(&pd_device_map_failed, __ATOMIC_RELAXED);
	return !(addr >> PD_DEVICE_ADDRESS) && pd_device_bit(map, addr >> PD_DEVICE_SHIFT);
}

#pragma GCC visibility pop

#endif
