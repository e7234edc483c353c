// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The API of the driver for Jetson and Drive: pages of 4 KiB, no tokens, no persistent pins, and a
 * put that always fires the callback. The real one hands out host memory; this one the same BAR as
 * for discrete GPUs, and struct page pointers that are good for page_to_phys() alone.
 */
#include <linux/export.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "gpu.h"

bool sim_bar_is_shared(void)
{
	return true;
}

u64 sim_pin_granule(void)
{
	return PAGE_SIZE;
}

void sim_table_delete(struct nvidia_p2p_page_table *table)
{
	kvfree(table->pages);
	kfree(table);
}

struct nvidia_p2p_page_table *sim_table_new(const struct sim_pin *pin)
{
	struct nvidia_p2p_page_table *table = kzalloc(sizeof(*table), GFP_KERNEL);
	u32 i, count = pin->length >> PAGE_SHIFT;
	phys_addr_t at;
	u64 offset;

	if (!table)
		return NULL;
	table->pages = kvcalloc(count, sizeof(*table->pages), GFP_KERNEL);
	if (!table->pages) {
		kfree(table);
		return NULL;
	}
	for (i = 0; i < count; i++) {
		offset = pin->offset + ((u64)i << PAGE_SHIFT);
		at = sim_memory_page(pin->memory, offset) + (offset & (SIM_GPU_PAGE - 1));
		table->pages[i] = pfn_to_page(PHYS_PFN(at));
	}
	table->version = NVIDIA_P2P_PAGE_TABLE_VERSION;
	table->page_size = PAGE_SIZE;
	table->size = pin->length;
	table->entries = count;
	table->vaddr = pin->va;
	return table;
}

/* Nobody is given a DMA mapping here. */
void sim_dma_end(struct sim_pin *pin)
{
}

int nvidia_p2p_get_pages(u64 vaddr, u64 size, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	return sim_pin_get(0, 0, vaddr, size, page_table, free_callback, data, false, 0);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages);

int nvidia_p2p_put_pages(struct nvidia_p2p_page_table *page_table)
{
	return sim_pin_put_with_callback(page_table);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	return sim_table_free(page_table);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_free_page_table);
