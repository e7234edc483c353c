// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The API of the driver for discrete GPUs.
 */
#include <linux/export.h>
#include <linux/version.h>

#include "gpu.h"

/* For the GPL, as the driver does. In a namespace, so that nothing is linked with this one. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define EXPORT(symbol) EXPORT_SYMBOL_NS_GPL(symbol, "PINDOWN_SIM")
#else
#define EXPORT(symbol) EXPORT_SYMBOL_NS_GPL(symbol, PINDOWN_SIM)
#endif

u64 sim_pin_granule(void)
{
	return SIM_GPU_PAGE;
}

int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	return sim_pin_get(p2p_token, va_space, virtual_address, length, page_table, free_callback,
			   data, false, 0);
}
EXPORT(nvidia_p2p_get_pages);

int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags)
{
	return sim_pin_get(0, 0, virtual_address, length, page_table, NULL, NULL, true, flags);
}
EXPORT(nvidia_p2p_get_pages_persistent);

int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	return sim_pin_put(p2p_token, virtual_address, page_table, false);
}
EXPORT(nvidia_p2p_put_pages);

int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table,
				    u32 flags)
{
	if (flags)
		return -EINVAL;
	return sim_pin_put(0, virtual_address, page_table, true);
}
EXPORT(nvidia_p2p_put_pages_persistent);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	return sim_table_free(page_table);
}
EXPORT(nvidia_p2p_free_page_table);

int nvidia_p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping)
{
	return sim_dma_map(peer ? &peer->dev : NULL, page_table, dma_mapping, DMA_BIDIRECTIONAL);
}
EXPORT(nvidia_p2p_dma_map_pages);

int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			       struct nvidia_p2p_dma_mapping *dma_mapping)
{
	return sim_dma_unmap(peer ? &peer->dev : NULL, page_table, dma_mapping);
}
EXPORT(nvidia_p2p_dma_unmap_pages);

int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping)
{
	return sim_dma_free(dma_mapping);
}
EXPORT(nvidia_p2p_free_dma_mapping);
