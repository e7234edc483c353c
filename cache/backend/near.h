/* SPDX-License-Identifier: MIT */
/* The rule by which a dma-buf gets its mapping, for the library and for `pindown doctor`. */
#ifndef PDN_NEAR_H
#define PDN_NEAR_H

#include "cache/base/environment/config.h"

/*
 * Whether two devices are below one PCIe bridge, by their paths in sysfs from "/devices/" on:
 * "/devices/pci0000:00/0000:00:01.0/0000:01:00.0".
 */
bool pdn_share_a_bridge(const char *a, const char *b);

/*
 * Whether the mapping over PCIe is tried first. `near`: the card shares a bridge with the GPU,
 * whose memory the processor reaches coherently.
 */
static inline bool pdn_mapping_is_pcie(enum pdn_mapping setting, bool near)
{
	return setting == PDN_MAPPING_PCIE || (setting == PDN_MAPPING_AUTO && near);
}

#endif
