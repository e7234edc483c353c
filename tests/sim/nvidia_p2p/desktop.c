// SPDX-License-Identifier: MIT OR GPL-2.0
/* The driver's API: its symbols, and the page tables that it hands out. */
#include <linux/export.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "gpu.h"

/*
 * EXPORT_SYMBOL_GPL, as the driver has it. In a namespace, so that no module is linked with this
 * one.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define EXPORT(symbol) EXPORT_SYMBOL_NS_GPL(symbol, "PINDOWN_SIM")
#else
#define EXPORT(symbol) EXPORT_SYMBOL_NS_GPL(symbol, PINDOWN_SIM)
#endif

const bool sim_has_own_api = true;

static u8 gpu_uuid[16] = "pindown sim GPU";

#define TABLE_VERSION_1 0x00010002 /* up to driver 575; then 0x00020000 */

static u32 table_major(void)
{
	u32 asked = sim_knob(SIM_GPU_TABLE_MAJOR);

	return asked ? asked : gpu.table_major;
}

/* A table of the old version has no members after this one. */
static size_t table_size(u32 major)
{
	return major == 1 ? offsetof(struct nvidia_p2p_page_table, flags)
			  : sizeof(struct nvidia_p2p_page_table);
}

/* Reuses the address of the last table, when a test wants that. */
static struct nvidia_p2p_page_table *table_alloc(u32 major)
{
	struct nvidia_p2p_page_table *table = gpu.spare_table;

	if (!sim_knob(SIM_GPU_REUSE_TABLES))
		return kzalloc(table_size(major), GFP_KERNEL);
	if (!table)
		return kzalloc(sizeof(*table), GFP_KERNEL);
	gpu.spare_table = NULL;
	memset(table, 0, sizeof(*table));
	return table;
}

void sim_table_delete(struct nvidia_p2p_page_table *table)
{
	kvfree(table->pages);
	if (sim_knob(SIM_GPU_REUSE_TABLES) && !gpu.spare_table)
		gpu.spare_table = table;
	else
		kfree(table);
}

static u64 place_of_page(const struct sim_pin *pin, u32 i, bool small)
{
	u64 at = (u64)i << (small ? 12 : SIM_PAGE_SHIFT);

	return sim_memory_page(pin->memory, pin->offset + at) + at % SIM_GPU_PAGE;
}

struct nvidia_p2p_page_table *sim_table_new(const struct sim_pin *pin)
{
	bool small = sim_knob(SIM_GPU_SMALL_PAGES);
	u32 i, count = pin->length >> (small ? 12 : SIM_PAGE_SHIFT), major = table_major();
	struct nvidia_p2p_page_table *table = table_alloc(major);
	struct nvidia_p2p_page *page;

	if (!table)
		return NULL;
	/* The pointers, and after them the pages that they point to. */
	table->pages = kvcalloc(count, sizeof(*table->pages) + sizeof(*page), GFP_KERNEL);
	if (!table->pages) {
		kfree(table);
		return NULL;
	}
	page = (struct nvidia_p2p_page *)(table->pages + count);
	for (i = 0; i < count; i++) {
		page[i].physical_address = place_of_page(pin, i, small);
		table->pages[i] = &page[i];
	}
	table->version = major == 1 ? TABLE_VERSION_1 : major << 16;
	table->page_size = small ? NVIDIA_P2P_PAGE_SIZE_4KB : NVIDIA_P2P_PAGE_SIZE_64KB;
	table->entries = count;
	table->gpu_uuid = gpu_uuid;
	if (major > 1 && pin->memory->ram)
		table->flags = NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE;
	return table;
}

/* Up to 575 the driver has separate objects for both kinds of pins. */
bool sim_bar_is_shared(void)
{
	return table_major() != 1;
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

/* Refuses to run beside a GPU that has a driver. */
int sim_provider_init(void)
{
	struct pci_dev *real = pci_get_device(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID, NULL);

	if (!real)
		return 0;
	pci_err(real, "sim_gpu: this is a real GPU: the simulated one does not load\n");
	pci_dev_put(real);
	return -ENODEV;
}

void sim_provider_exit(void)
{
}
