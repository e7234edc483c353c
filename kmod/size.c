// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * size.c - how large a request the driver is bothered with.
 *
 * nvidia.ko makes room for its page table first, 16 bytes of the host's memory for each 64 KiB of
 * the request, and looks at the address then. So a made-up address costs host memory, for as long
 * as the call takes, and no cgroup is charged for it. A request is therefore no larger than what a
 * device could reach; and large ones go one at a time, see budget.c.
 */
#include <linux/mm.h>
#include <linux/pci.h>

#include "internal.h"

/* The page table of such a request is as large as the stack of the thread that asks: no lever. */
#define SMALL_BYTES (64ull << 20)

static u64 largest_bar(void)
{
	struct pci_dev *dev = NULL;
	u64 largest = 0;
	int i;

	for_each_pci_dev(dev) {
		if (dev->class >> 16 != PCI_BASE_CLASS_DISPLAY)
			continue;
		for (i = 0; i < PCI_STD_NUM_BARS; i++)
			if (pci_resource_flags(dev, i) & IORESOURCE_MEM)
				largest = max_t(u64, largest, pci_resource_len(dev, i));
	}
	return largest;
}

/*
 * On coherent machines (Grace) memory is pinned that no BAR shows: the GPU's memory has addresses
 * of its own there. A page table for all of the host's memory is 1/4096 of it, so that is the
 * limit, as it is where no GPU has a BAR at all.
 */
static u64 largest_request(void)
{
	u64 bar = largest_bar();

	if (bar && !IS_ENABLED(CONFIG_ARM64))
		return bar;
	return max_t(u64, bar, (u64)totalram_pages() << PAGE_SHIFT);
}

bool pd_size_is_small(u64 length)
{
	return length <= SMALL_BYTES;
}

/* BARs come and go with their devices: they are looked at when it matters. */
bool pd_size_is_possible(u64 length)
{
	return pd_size_is_small(length) || length <= largest_request();
}
