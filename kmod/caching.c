// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * caching.c - the memory type that a region may be mapped with.
 *
 * Most GPUs show their memory through a BAR, which is mapped write-combined or uncached. On
 * coherent platforms (Grace) GPU memory is part of the system's memory: everybody else maps it
 * cached, and a mapping of another type would see stale data. Drivers from 580 on state the type in
 * the page table; older ones do not. For all of them the place of the pages is checked as well,
 * since a wrong type is worse than no mapping: on arm64 only the page tables keep a BAR from being
 * cached.
 */
#include <linux/ioport.h>
#include <linux/pci.h>

#include "internal.h"

struct bar {
	u64 start, end; /* end is exclusive */
};

static bool is_within(const struct bar *bar, u64 start, u64 length)
{
	return start >= bar->start && start < bar->end && length <= bar->end - start;
}

static bool bar_of_device(struct pci_dev *device, u64 start, u64 length, struct bar *bar)
{
	int i;

	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		if (!(pci_resource_flags(device, i) & IORESOURCE_MEM) ||
		    !pci_resource_len(device, i))
			continue;
		bar->start = pci_resource_start(device, i);
		bar->end = bar->start + pci_resource_len(device, i);
		if (is_within(bar, start, length))
			return true;
	}
	return false;
}

static bool bar_of(u64 start, u64 length, struct bar *bar)
{
	struct pci_dev *device = NULL;

	for_each_pci_dev(device) {
		if (bar_of_device(device, start, length, bar)) {
			pci_dev_put(device);
			return true;
		}
	}
	*bar = (struct bar){};
	return false;
}

static bool is_ram(u64 start, u64 length)
{
	return region_intersects(start, length, IORESOURCE_SYSTEM_RAM, IORES_DESC_NONE) ==
	       REGION_INTERSECTS;
}

enum pdn_memory pdn_memory_of(const struct pdn_region *region)
{
	u32 i, in_bars = 0, in_ram = 0;
	struct bar bar = {};

	for (i = 0; i < region->run_count; i++) {
		u64 start = region->runs[i].start, length = pdn_run_length(region, i);

		/* Most runs lie in the same BAR as the previous one. */
		if (is_within(&bar, start, length) || bar_of(start, length, &bar))
			in_bars++;
		else
			in_ram += is_ram(start, length);
	}
	switch (region->cpu_caching) {
	case PDN_CPU_UNCACHED:
		return in_bars == region->run_count ? PDN_MEMORY_OF_DEVICE : PDN_MEMORY_UNCLEAR;
	case PDN_CPU_CACHED:
		return in_bars ? PDN_MEMORY_UNCLEAR : PDN_MEMORY_COHERENT;
	default:
		if (in_bars == region->run_count)
			return PDN_MEMORY_OF_DEVICE;
		return in_ram == region->run_count ? PDN_MEMORY_COHERENT : PDN_MEMORY_UNCLEAR;
	}
}
