// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * provider.c - the calls of the NVIDIA driver.
 *
 * They are looked up by name when the module is loaded, which also keeps the driver from being
 * unloaded. So one build serves drivers with the persistent calls and without, needs no
 * Module.symvers of theirs, and is not tied to the checksums of one release; the layout of what the
 * driver hands out is checked by its version at run time. The kernel gives out symbols that are
 * exported for GPL modules only: those of the open kernel modules are.
 *
 * A look-up takes what is there under the name. Dummies and simulations of the driver have been
 * left behind on real machines, so the module that it is from must be the driver.
 */
#include <linux/errno.h>
#include <linux/kallsyms.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/pci.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "compat.h"
#include "internal.h"
#include "trace.h"

#ifdef PINDOWN_NV_P2P_H
#include PINDOWN_NV_P2P_H
#else
#include "nv_p2p_abi.h"
#endif

/* Older headers lack these; the driver at run time may have them nevertheless. */
#ifndef PINDOWN_TEGRA
#ifndef NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API
int nvidia_p2p_get_pages_persistent(uint64_t virtual_address, uint64_t length,
				    struct nvidia_p2p_page_table **page_table, uint32_t flags);
int nvidia_p2p_put_pages_persistent(uint64_t virtual_address,
				    struct nvidia_p2p_page_table *page_table, uint32_t flags);
#endif
#define FORCE_BAR1_MAPPING 1
#endif

static struct {
	typeof(nvidia_p2p_get_pages) *get;
	typeof(nvidia_p2p_put_pages) *put;
	typeof(nvidia_p2p_free_page_table) *free_table;
#ifndef PINDOWN_TEGRA
	typeof(nvidia_p2p_get_pages_persistent) *get_persistent;
	typeof(nvidia_p2p_put_pages_persistent) *put_persistent;
	typeof(nvidia_p2p_dma_map_pages) *dma_map;
	typeof(nvidia_p2p_dma_unmap_pages) *dma_unmap;
#endif
} driver __ro_after_init;

#ifdef PINDOWN_TEGRA
#define DRIVER_MODULE "nvidia_p2p"
#else
#define DRIVER_MODULE "nvidia"
#endif

/* The symbol table names a function of a module "function [module]". */
static bool __init is_of_driver(const void *function)
{
	char name[KSYM_SYMBOL_LEN];

	sprint_symbol_no_offset(name, (unsigned long)function);
	if (strstr(name, " [" DRIVER_MODULE "]"))
		return true;
#ifdef PD_SIMULATED
	pr_warn("takes %s for the driver: for tests only\n", name);
	return true;
#else
	pr_err("%s is not the NVIDIA driver's: unload that module, load " DRIVER_MODULE ".ko\n",
	       name);
	return false;
#endif
}

#define PUT(call, name)                                                                            \
	do {                                                                                       \
		if (driver.call)                                                                   \
			symbol_put(name);                                                          \
	} while (0)

void pd_provider_exit(void)
{
	PUT(get, nvidia_p2p_get_pages);
	PUT(put, nvidia_p2p_put_pages);
	PUT(free_table, nvidia_p2p_free_page_table);
#ifndef PINDOWN_TEGRA
	PUT(get_persistent, nvidia_p2p_get_pages_persistent);
	PUT(put_persistent, nvidia_p2p_put_pages_persistent);
	PUT(dma_map, nvidia_p2p_dma_map_pages);
	PUT(dma_unmap, nvidia_p2p_dma_unmap_pages);
#endif
}

int __init pd_provider_init(void)
{
	driver.get = symbol_get(nvidia_p2p_get_pages);
	driver.put = symbol_get(nvidia_p2p_put_pages);
	driver.free_table = symbol_get(nvidia_p2p_free_page_table);
#ifndef PINDOWN_TEGRA
	driver.get_persistent = symbol_get(nvidia_p2p_get_pages_persistent);
	driver.put_persistent = symbol_get(nvidia_p2p_put_pages_persistent);
	driver.dma_map = symbol_get(nvidia_p2p_dma_map_pages);
	driver.dma_unmap = symbol_get(nvidia_p2p_dma_unmap_pages);
#endif
	if (!driver.get || !driver.put || !driver.free_table) {
		pr_err("no NVIDIA driver with the peer-to-peer interface is loaded: load %s.ko (the open kernel module) first\n",
		       DRIVER_MODULE);
		pd_provider_exit();
		return -ENODEV;
	}
	if (!is_of_driver(driver.get)) {
		pd_provider_exit();
		return -ENODEV;
	}
	return 0;
}

/*
 * The driver has error numbers that user space does not know (524, ENOTSUPP), and answers
 * want of BAR space with ENOMEM as it does want of host memory.
 */
static int errno_of(int error)
{
	switch (error) {
	case 0:
		return 0;
	case -ENOTSUPP:
		return -EOPNOTSUPP;
	case -ENOSPC:
		return -ENOMEM;
	default:
		return error < 0 && error >= -MAX_ERRNO ? error : -EIO;
	}
}

#ifndef PINDOWN_TEGRA

const bool pd_put_calls_back;
const u32 pd_granularity = 65536;

bool pd_provider_is_persistent(void)
{
	return driver.get_persistent && driver.put_persistent;
}

bool pd_provider_maps_dma(void)
{
	return driver.dma_map && driver.dma_unmap;
}

static int get_pages(struct pd_region *region)
{
	return driver.get(0, 0, region->address, region->length, &region->table, pd_region_callback,
			   (void *)region->ticket);
}

static int put_pages(struct pd_region *region, struct nvidia_p2p_page_table *table)
{
	return driver.put(0, 0, region->address, table);
}

static int get_persistent(struct pd_hold *hold, u32 flags)
{
	u32 driver_flags = flags & PINDOWN_PIN_FORCE_BAR1 ? FORCE_BAR1_MAPPING : 0;

	return driver.get_persistent(hold->address, hold->length, &hold->table, driver_flags);
}

static int put_persistent(struct pd_hold *hold)
{
	return driver.put_persistent(hold->address, hold->table, 0);
}

/* What is used has been the same since 1.2; 2.0 added `flags` at the end, which is not read. */
static bool version_is_known(u32 version)
{
	return version >> 16 == 2 || (version >> 16 == 1 && (version & 0xffff) >= 2);
}

/* Until 575 a page that is pinned with callback and without is in the BAR twice. */
static bool pins_share_bar(u32 version)
{
	return version >> 16 >= 2;
}

static u32 bytes_of(u32 page_size)
{
	switch (page_size) {
	case NVIDIA_P2P_PAGE_SIZE_4KB:
		return 4096;
	case NVIDIA_P2P_PAGE_SIZE_64KB:
		return 65536;
	case NVIDIA_P2P_PAGE_SIZE_128KB:
		return 131072;
	default:
		return 0;
	}
}

static u64 physical(const struct nvidia_p2p_page_table *table, u32 i)
{
	return table->pages[i]->physical_address;
}

static const u8 *uuid_of(const struct nvidia_p2p_page_table *table)
{
	return table->gpu_uuid;
}

int pd_dma_map(struct pci_dev *peer, struct pd_hold *hold, struct pd_dma *dma)
{
	struct nvidia_p2p_dma_mapping *mapping = NULL;
	int ret;

	ret = errno_of(driver.dma_map(peer, hold->table, &mapping));
	if (ret)
		return ret;
	dma->mapping = mapping;
	if (mapping->version >> 16 == NVIDIA_P2P_DMA_MAPPING_VERSION >> 16) {
		dma->addresses = mapping->dma_addresses;
		dma->count = mapping->entries;
		dma->page_size = bytes_of(mapping->page_size_type);
		if (dma->page_size && (u64)dma->page_size * dma->count == hold->length)
			return 0;
	}
	pr_err_ratelimited("DMA mapping of the driver, version %#x, %u pages: not understood\n",
			   mapping->version, mapping->entries);
	pd_dma_unmap(peer, hold, dma);
	return -EOPNOTSUPP;
}

void pd_dma_unmap(struct pci_dev *peer, struct pd_hold *hold, struct pd_dma *dma)
{
	int ret = driver.dma_unmap(peer, hold->table, dma->mapping);

	if (ret)
		pr_err_ratelimited("the driver can't unmap from %s: error %d\n", pci_name(peer),
				   ret);
	dma->mapping = NULL;
}

#else /* PINDOWN_TEGRA */

const bool pd_put_calls_back = true;
const u32 pd_granularity = 4096;

/*
 * Memory there is the host's, without persistent pins. A dma-buf's mapping could meet the callback
 * on its way and the memory would pass to somebody else under the device: not offered.
 */
bool pd_provider_is_persistent(void)
{
	return false;
}

bool pd_provider_maps_dma(void)
{
	return false;
}

static int get_pages(struct pd_region *region)
{
	return driver.get(region->address, region->length, &region->table, pd_region_callback,
			   (void *)region->ticket);
}

static int put_pages(struct pd_region *region, struct nvidia_p2p_page_table *table)
{
	return driver.put(table);
}

static int get_persistent(struct pd_hold *hold, u32 flags)
{
	return -EOPNOTSUPP;
}

static int put_persistent(struct pd_hold *hold)
{
	return -EOPNOTSUPP;
}

static bool version_is_known(u32 version)
{
	return version >> 16 == 1;
}

static bool pins_share_bar(u32 version)
{
	return true;
}

static u32 bytes_of(u32 page_size)
{
	return is_power_of_2(page_size) && page_size >= 4096 ? page_size : 0;
}

static u64 physical(const struct nvidia_p2p_page_table *table, u32 i)
{
	return page_to_phys(table->pages[i]);
}

static const u8 *uuid_of(const struct nvidia_p2p_page_table *table)
{
	return NULL;
}

int pd_dma_map(struct pci_dev *peer, struct pd_hold *hold, struct pd_dma *dma)
{
	return -EOPNOTSUPP;
}

void pd_dma_unmap(struct pci_dev *peer, struct pd_hold *hold, struct pd_dma *dma)
{
}

#endif

int pd_get_pages(struct pd_region *region)
{
	region->table = NULL;
	return errno_of(get_pages(region));
}

int pd_put_pages(struct pd_region *region, struct nvidia_p2p_page_table *table)
{
	return errno_of(put_pages(region, table));
}

void pd_free_table(struct nvidia_p2p_page_table *table)
{
	driver.free_table(table);
}

/* ---- reading a page table ---- */

static bool begins_run(const struct nvidia_p2p_page_table *table, u32 i, u32 page_size)
{
	return !i || physical(table, i) != physical(table, i - 1) + page_size;
}

int pd_layout_measure(struct pd_layout *layout, const struct nvidia_p2p_page_table *table,
		      u64 length)
{
	u32 i;

	if (!version_is_known(table->version)) {
		pr_err_ratelimited("page table of the driver has version %#x: not understood\n",
				   table->version);
		return -EOPNOTSUPP;
	}
	layout->page_size = bytes_of(table->page_size);
	layout->page_count = table->entries;
	layout->run_count = 0;
	layout->shares_bar = pins_share_bar(table->version);
	if ((u64)layout->page_size * layout->page_count != length) {
		pr_err_ratelimited("page table of the driver has %u pages of %u bytes for %llu\n",
				   layout->page_count, layout->page_size, length);
		return -EOPNOTSUPP;
	}
	for (i = 0; i < layout->page_count; i++) {
		if (!IS_ALIGNED(physical(table, i), PAGE_SIZE))
			return -EOPNOTSUPP;
		layout->run_count += begins_run(table, i, layout->page_size);
	}
	if (uuid_of(table))
		memcpy(layout->gpu_uuid, uuid_of(table), sizeof(layout->gpu_uuid));
	return 0;
}

void pd_layout_read(const struct pd_layout *layout, const struct nvidia_p2p_page_table *table)
{
	struct pd_run *run = layout->runs;
	u32 i;

	for (i = 0; i < layout->page_count; i++) {
		if (!begins_run(table, i, layout->page_size))
			continue;
		run->offset = (u64)i * layout->page_size;
		run->start = physical(table, i);
		run++;
	}
}

/* ---- persistent pins ---- */

static int pin_hold(struct pd_owner *owner, struct pd_hold *hold, u32 flags)
{
	int ret;

	down_read(&owner->puts);
	ret = errno_of(get_persistent(hold, flags));
	up_read(&owner->puts);
	return ret;
}

int pd_probe(struct pd_owner *owner, u64 address)
{
	struct pd_hold page = { .address = address, .length = pd_granularity };
	int ret = pin_hold(owner, &page, 0);

	if (!ret)
		put_persistent(&page);
	return ret;
}

struct pd_hold *pd_hold_new(struct pd_owner *owner, u64 address, u64 length, u32 flags,
			    struct pd_charge *shared)
{
	struct pd_hold *hold;
	struct pd_room room;
	int ret;

	if (!pd_provider_is_persistent())
		return ERR_PTR(-EOPNOTSUPP);
	hold = kzalloc(sizeof(*hold), GFP_KERNEL_ACCOUNT);
	if (!hold)
		return ERR_PTR(-ENOMEM);
	kref_init(&hold->ref);
	hold->address = address;
	hold->length = length;
	ret = pd_room_ask(&room, owner, length, shared);
	if (ret)
		goto err_hold;
	ret = pin_hold(owner, hold, flags);
	if (ret)
		goto err_room;
	hold->charge = pd_room_take(&room);
	return hold;

err_room:
	pd_room_leave(&room);
err_hold:
	kfree(hold);
	return ERR_PTR(ret);
}

void pd_hold_get(struct pd_hold *hold)
{
	kref_get(&hold->ref);
}

static void hold_release(struct kref *ref)
{
	struct pd_hold *hold = container_of(ref, struct pd_hold, ref);
	int ret = errno_of(put_persistent(hold));

	if (ret)
		pr_err_ratelimited("the driver keeps a persistent pin of %llu KiB: error %d\n",
				   hold->length >> 10, ret);
	if (test_bit(0, &hold->kept))
		atomic64_sub(hold->length, &pd_counters[PD_KEPT_BYTES]);
	pd_charge_put(hold->charge);
	kfree(hold);
}

void pd_hold_put(struct pd_hold *hold)
{
	kref_put(&hold->ref, hold_release);
}

void pd_hold_is_kept(struct pd_hold *hold)
{
	if (!test_and_set_bit(0, &hold->kept))
		atomic64_add(hold->length, &pd_counters[PD_KEPT_BYTES]);
}
