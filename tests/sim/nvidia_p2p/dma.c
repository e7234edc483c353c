// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * DMA mappings of pinned pages, for other devices, through the kernel's own dma_map_resource(): an
 * IOMMU translates them, if there is one.
 */
#include <linux/errno.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "gpu.h"

static void dma_unmap(struct sim_dma *dma, u32 count)
{
	while (count-- && dma->is_mapped)
		dma_unmap_resource(dma->peer, dma->mapping.dma_addresses[count], SIM_GPU_PAGE,
				   dma->direction, 0);
}

static void dma_free(struct sim_dma *dma)
{
	dma_unmap(dma, dma->mapping.entries);
	list_del(&dma->of_pin);
	kvfree(dma->mapping.dma_addresses);
	kfree(dma);
	sim_count(SIM_GPU_DMA_MAPPINGS, -1);
}

/* Like nvidia.ko, which uses a length of the BAR that is a byte too short. */
static bool ends_in_bar(phys_addr_t page)
{
	return page + SIM_GPU_PAGE < gpu.bar_start + ((u64)gpu.bar_pages << SIM_PAGE_SHIFT);
}

static u64 map_gpu_page(struct sim_dma *dma, phys_addr_t page)
{
	u64 address;

	if (!ends_in_bar(page))
		return DMA_MAPPING_ERROR;
	if (!dma->is_mapped)
		return page;
	address = dma_map_resource(dma->peer, page, SIM_GPU_PAGE, dma->direction, 0);
	return dma_mapping_error(dma->peer, address) ? DMA_MAPPING_ERROR : address;
}

static int dma_map(struct sim_dma *dma, const struct sim_pin *pin)
{
	u32 i, count = pin->length >> SIM_PAGE_SHIFT;
	u64 *address;

	address = dma->mapping.dma_addresses = kvcalloc(count, sizeof(*address), GFP_KERNEL);
	if (!address)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		u64 offset = pin->offset + ((u64)i << SIM_PAGE_SHIFT);

		address[i] = map_gpu_page(dma, sim_memory_page(pin->memory, offset));
		if (address[i] == DMA_MAPPING_ERROR) {
			dma_unmap(dma, i);
			kvfree(address);
			return -EIO;
		}
	}
	dma->mapping.version = NVIDIA_P2P_DMA_MAPPING_VERSION;
	dma->mapping.page_size_type = NVIDIA_P2P_PAGE_SIZE_64KB;
	dma->mapping.entries = count;
	dma->mapping.pci_dev = dev_is_pci(dma->peer) ? to_pci_dev(dma->peer) : NULL;
	return 0;
}

int sim_dma_map(struct device *peer, struct nvidia_p2p_page_table *table,
		struct nvidia_p2p_dma_mapping **mapping, enum dma_data_direction direction)
{
	struct sim_dma *dma;
	struct sim_pin *pin;
	int error;

	if (!peer || !table || !mapping)
		return -EINVAL;
	*mapping = NULL;
	if (sim_in_callback()) {
		sim_misuse("dma_map_pages from a callback");
		return -EDEADLK;
	}
	if (sim_fails_now(SIM_GPU_FAIL_MAP))
		return -(int)(sim_knob(SIM_GPU_FAIL_ERROR) ?: EIO);
	dma = kzalloc(sizeof(*dma), GFP_KERNEL);
	if (!dma)
		return -ENOMEM;
	dma->peer = peer;
	dma->direction = direction;
	dma->is_mapped = !sim_knob(SIM_GPU_MAPS_NOTHING);
	mutex_lock(&gpu.api_lock);
	mutex_lock(&gpu.pins_lock);
	pin = sim_pin_of(table);
	if (!pin) {
		sim_misuse("dma_map_pages of a page table that is not there");
		error = -EINVAL;
	} else if (pin->memory->ram) {
		error = -ENOTSUPP;
	} else {
		error = dma_map(dma, pin);
	}
	if (!error) {
		list_add_tail(&dma->of_pin, &pin->dma_mappings);
		*mapping = &dma->mapping;
		sim_count(SIM_GPU_DMA_MAPPINGS, 1);
	}
	mutex_unlock(&gpu.pins_lock);
	mutex_unlock(&gpu.api_lock);
	if (error)
		kfree(dma);
	return error;
}

/* Needs gpu.pins_lock. */
static struct sim_dma *dma_of(struct sim_pin *pin, struct nvidia_p2p_dma_mapping *mapping)
{
	struct sim_dma *dma;

	list_for_each_entry(dma, &pin->dma_mappings, of_pin) {
		if (&dma->mapping == mapping)
			return dma;
	}
	return NULL;
}

int sim_dma_unmap(struct device *peer, struct nvidia_p2p_page_table *table,
		  struct nvidia_p2p_dma_mapping *mapping)
{
	struct sim_dma *dma;
	struct sim_pin *pin;

	if (!peer || !table || !mapping)
		return -EINVAL;
	if (sim_in_callback()) {
		sim_misuse("dma_unmap_pages from a callback");
		return -EDEADLK;
	}
	mutex_lock(&gpu.pins_lock);
	pin = sim_pin_of(table);
	dma = pin ? dma_of(pin, mapping) : NULL;
	if (!pin)
		sim_misuse("dma_unmap_pages with a page table that is not there");
	else if (!dma)
		sim_misuse("dma_unmap_pages of a mapping that is not there");
	else if (dma->peer != peer)
		sim_misuse("dma_unmap_pages for another device than it was mapped for");
	else
		dma_free(dma);
	mutex_unlock(&gpu.pins_lock);
	return 0;
}

/* A callback may call this function, for its own pin. */
int sim_dma_free(struct nvidia_p2p_dma_mapping *mapping)
{
	struct sim_dma *dma;

	if (!mapping)
		return -EINVAL;
	if (!sim_in_callback()) {
		sim_misuse("free_dma_mapping outside the callback");
		return -EINVAL;
	}
	mutex_lock(&gpu.pins_lock);
	dma = dma_of(gpu.called, mapping);
	if (dma)
		dma_free(dma);
	else
		sim_misuse("free_dma_mapping of a mapping that is not of this callback's pin");
	mutex_unlock(&gpu.pins_lock);
	return dma ? 0 : -EINVAL;
}

/* Frees the mappings that the pinning driver has left. gpu.pins_lock is held. */
void sim_dma_end(struct sim_pin *pin)
{
	struct sim_dma *dma, *next;

	if (!list_empty(&pin->dma_mappings))
		sim_misuse("a pin ends with DMA mappings left");
	list_for_each_entry_safe(dma, next, &pin->dma_mappings, of_pin)
		dma_free(dma);
}
