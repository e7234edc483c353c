// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * size.c - the maximum size of a request to the driver.
 *
 * nvidia.ko allocates its page table before it checks the address: 16 bytes of host memory for each
 * 64 KiB of the request. So a made-up address costs host memory for the time of the call, and no
 * cgroup is charged for it. A request is therefore limited to the size that a device could reach,
 * and large requests are made one at a time, see budget.c.
 */
#include <linux/mm.h>
#include <linux/pci.h>

#include "internal.h"

/* The page table of such a request is no larger than the stack of its thread: no way to attack. */
#define SMALL_BYTES (64ull << 20)

static u64 largest_bar_of(struct pci_dev *dev)
{
	u64 largest = 0;
	int i;

	if (dev->class >> 16 != PCI_BASE_CLASS_DISPLAY)
		return 0;
	for (i = 0; i < PCI_STD_NUM_BARS; i++)
		if (pci_resource_flags(dev, i) & IORESOURCE_MEM)
			largest = max_t(u64, largest, pci_resource_len(dev, i));
	return largest;
}

static u64 largest_bar(void)
{
	struct pci_dev *dev = NULL;
	u64 largest = 0;

	for_each_pci_dev(dev)
		largest = max(largest, largest_bar_of(dev));
	return largest;
}

/*
 * On coherent machines (Grace) no BAR shows the pinned memory: the GPU's memory has addresses of
 * its own there. The limit is then the size of the host's memory, whose page table takes 1/4096 of
 * it. The same limit applies where no GPU has a BAR at all.
 */
static u64 or_of_host(u64 bar)
{
	if (bar && !IS_ENABLED(CONFIG_ARM64))
		return bar;
	return max_t(u64, bar, (u64)totalram_pages() << PAGE_SHIFT);
}

static u64 bytes_of_bars;

u64 pdn_size_of_bars(void)
{
	return READ_ONCE(bytes_of_bars);
}

/* BARs come and go with their devices. A process that opens the device looks again. */
void pdn_size_look(void)
{
	struct pci_dev *dev = NULL;
	u64 all = 0;

	for_each_pci_dev(dev)
		all += largest_bar_of(dev);
	WRITE_ONCE(bytes_of_bars, or_of_host(all));
}

bool pdn_size_is_small(u64 length)
{
	return length <= SMALL_BYTES;
}

bool pdn_size_is_possible(u64 length)
{
	return pdn_size_is_small(length) || length <= or_of_host(largest_bar());
}
