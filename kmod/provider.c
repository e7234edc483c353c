// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * provider.c - the calls of the NVIDIA driver.
 *
 * The calls are looked up by name when a process opens the device, and released when nothing is
 * left that could call the driver. Only in between the driver can't be unloaded. So one build works
 * with drivers that have the persistent calls and with those that don't, needs no Module.symvers of
 * the driver, and is not tied to the checksums of one release; the versions of the driver's
 * structures are checked at run time. A look-up finds only symbols with EXPORT_SYMBOL_GPL. The open
 * kernel modules use that from 535.146.02 and 550.40.07 on; older ones use EXPORT_SYMBOL, as the
 * proprietary ones do to this day.
 *
 * A look-up finds any module that exports the name. Dummies and simulations of the driver have been
 * left behind on real machines, so the module that exports the name must be the driver itself.
 */
#include <linux/errno.h>
#include <linux/iommu.h>
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

/* Older headers lack these declarations, but the driver at run time may have the functions. */
#ifndef NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API
int nvidia_p2p_get_pages_persistent(uint64_t virtual_address, uint64_t length,
				    struct nvidia_p2p_page_table **page_table, uint32_t flags);
int nvidia_p2p_put_pages_persistent(uint64_t virtual_address,
				    struct nvidia_p2p_page_table *page_table, uint32_t flags);
#endif

/*
 * Valid and constant from pdn_provider_take() to pdn_provider_give_back(). Every call of the driver
 * is made in between, so no lock is needed to read it.
 */
static struct {
	typeof(nvidia_p2p_get_pages) *get;
	typeof(nvidia_p2p_put_pages) *put;
	typeof(nvidia_p2p_free_page_table) *free_table;
	typeof(nvidia_p2p_get_pages_persistent) *get_persistent;
	typeof(nvidia_p2p_put_pages_persistent) *put_persistent;
	typeof(nvidia_p2p_dma_map_pages) *dma_map;
	typeof(nvidia_p2p_dma_unmap_pages) *dma_unmap;
} driver;

static DEFINE_MUTEX(driver_lock); /* protects driver_users, and filling in `driver` */
static unsigned int driver_users;

#define DRIVER_MODULE "nvidia"

/* Stores the name of the module that contains a function; "" if none does. */
static void name_module_of(const void *function, char name[MODULE_NAME_LEN])
{
	char symbol[KSYM_SYMBOL_LEN], *module;

	/* "function [module]" */
	sprint_symbol_no_offset(symbol, (unsigned long)function);
	module = strstr(symbol, " [");
	strscpy(name, module ? module + 2 : "", MODULE_NAME_LEN);
	name[strcspn(name, "]")] = 0;
}

/* Refuses dummies and simulations of the driver, unless this module is built for tests. */
static int check_module(const char *name)
{
	if (!strcmp(name, DRIVER_MODULE))
		return 0;
#ifdef PDN_SIMULATED
	pr_warn_once("takes the module %s for the driver: for tests only\n", name);
	return 0;
#else
	pr_err_ratelimited("the module '%s' is not the NVIDIA driver: unload it, load "
			   DRIVER_MODULE ".ko\n", name);
	return -ENODEV;
#endif
}

#define PUT(call, name)                                                                            \
	do {                                                                                       \
		if (driver.call)                                                                   \
			symbol_put(name);                                                          \
		driver.call = NULL;                                                                \
	} while (0)

static void symbols_put(void)
{
	PUT(get, nvidia_p2p_get_pages);
	PUT(put, nvidia_p2p_put_pages);
	PUT(free_table, nvidia_p2p_free_page_table);
	PUT(get_persistent, nvidia_p2p_get_pages_persistent);
	PUT(put_persistent, nvidia_p2p_put_pages_persistent);
	PUT(dma_map, nvidia_p2p_dma_map_pages);
	PUT(dma_unmap, nvidia_p2p_dma_unmap_pages);
}

static int symbols_get(void)
{
	char name[MODULE_NAME_LEN];
	int ret;

	driver.get = symbol_get(nvidia_p2p_get_pages);
	driver.put = symbol_get(nvidia_p2p_put_pages);
	driver.free_table = symbol_get(nvidia_p2p_free_page_table);
	driver.get_persistent = symbol_get(nvidia_p2p_get_pages_persistent);
	driver.put_persistent = symbol_get(nvidia_p2p_put_pages_persistent);
	driver.dma_map = symbol_get(nvidia_p2p_dma_map_pages);
	driver.dma_unmap = symbol_get(nvidia_p2p_dma_unmap_pages);
	if (!driver.get || !driver.put || !driver.free_table) {
		pdn_driver_module_complain(DRIVER_MODULE);
		ret = -ENODEV;
		goto err;
	}
	name_module_of(driver.get, name);
	ret = check_module(name);
	if (ret)
		goto err;
	return 0;

err:
	symbols_put();
	return ret;
}

int pdn_provider_take(void)
{
	int ret = 0;

	mutex_lock(&driver_lock);
	if (!driver_users)
		ret = symbols_get();
	if (!ret)
		driver_users++;
	mutex_unlock(&driver_lock);
	return ret;
}

void pdn_provider_give_back(void)
{
	mutex_lock(&driver_lock);
	if (!--driver_users)
		symbols_put();
	mutex_unlock(&driver_lock);
}

/*
 * Translates the driver's errors: some are unknown to user space (524, ENOTSUPP), and the driver
 * reports ENOMEM for missing BAR space as well as for missing host memory.
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

bool pdn_provider_is_persistent(void)
{
	return driver.get_persistent && driver.put_persistent;
}

bool pdn_provider_maps_dma(void)
{
	return driver.dma_map && driver.dma_unmap;
}

static int get_pages(struct pdn_region *region)
{
	return driver.get(0, 0, region->address, region->length, &region->table,
			  pdn_region_callback, (void *)region->ticket);
}

static int put_pages(struct pdn_region *region, struct nvidia_p2p_page_table *table)
{
	return driver.put(0, 0, region->address, table);
}

static int get_persistent(struct pdn_hold *hold)
{
	return driver.get_persistent(hold->address, hold->length, &hold->table, 0);
}

static int put_persistent(struct pdn_hold *hold)
{
	return driver.put_persistent(hold->address, hold->table, 0);
}

/* The members that are used are the same since 1.2; 2.0 added `flags` at the end. */
static bool version_is_known(u32 version)
{
	return version >> 16 == 2 || (version >> 16 == 1 && (version & 0xffff) >= 2);
}

/* Up to 575, a page that is pinned both with and without callback is in the BAR twice. */
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

/*
 * On Linux 6.11 and later some releases of nvidia.ko (550) take a device behind an IOMMU for one
 * without, and return the BAR's own addresses. These work where a PCIe switch delivers them before
 * they reach the IOMMU, and nowhere else; so they are not refused.
 */
static void warn_of_unmapped(struct pci_dev *peer, const struct pdn_hold *hold, u64 address)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&peer->dev);

	if (domain && iommu_iova_to_phys(domain, address) != physical(hold->table, 0) &&
	    address == physical(hold->table, 0))
		pr_warn_ratelimited("the driver has not mapped GPU memory for %s, which is behind "
				    "an IOMMU: boot with iommu=pt, or use a newer driver\n",
				    pci_name(peer));
}

int pdn_dma_map(struct pci_dev *peer, struct pdn_hold *hold, struct pdn_dma *dma)
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
		if (dma->page_size && (u64)dma->page_size * dma->count == hold->length) {
			warn_of_unmapped(peer, hold, dma->addresses[0]);
			return 0;
		}
	}
	pr_err_ratelimited("DMA mapping of the driver, version %#x, %u pages: not understood\n",
			   mapping->version, mapping->entries);
	pdn_dma_unmap(peer, hold, dma);
	return -EOPNOTSUPP;
}

void pdn_dma_unmap(struct pci_dev *peer, struct pdn_hold *hold, struct pdn_dma *dma)
{
	int ret = driver.dma_unmap(peer, hold->table, dma->mapping);

	if (ret)
		pr_err_ratelimited("the driver can't unmap from %s: error %d\n", pci_name(peer),
				   ret);
	dma->mapping = NULL;
}

int pdn_get_pages(struct pdn_region *region)
{
	region->table = NULL;
	return errno_of(get_pages(region));
}

int pdn_put_pages(struct pdn_region *region, struct nvidia_p2p_page_table *table)
{
	return errno_of(put_pages(region, table));
}

void pdn_free_table(struct nvidia_p2p_page_table *table)
{
	driver.free_table(table);
}

/* ---- reading a page table ---- */

int pdn_table_read(struct pdn_region *region, const struct nvidia_p2p_page_table *table)
{
	if (!version_is_known(table->version)) {
		pr_err_ratelimited("page table of the driver has version %#x: not understood\n",
				   table->version);
		return -EOPNOTSUPP;
	}
	region->page_size = bytes_of(table->page_size);
	region->page_count = table->entries;
	if ((u64)region->page_size * region->page_count != region->length) {
		pr_err_ratelimited("page table of the driver has %u pages of %u bytes for %llu\n",
				   region->page_count, region->page_size, region->length);
		return -EOPNOTSUPP;
	}
	region->shares_bar = pins_share_bar(table->version);
	if (uuid_of(table))
		memcpy(region->gpu_uuid, uuid_of(table), sizeof(region->gpu_uuid));
	return 0;
}

/* ---- persistent pins ---- */

static int pin_hold(struct pdn_owner *owner, struct pdn_hold *hold)
{
	int ret;

	down_read(&owner->puts);
	ret = errno_of(get_persistent(hold));
	up_read(&owner->puts);
	return ret;
}

int pdn_probe(struct pdn_owner *owner, u64 address, u8 gpu_uuid[16])
{
	struct pdn_hold page = { .address = address, .length = PDN_GRANULARITY };
	int ret = pin_hold(owner, &page);

	if (ret)
		return ret;
	if (uuid_of(page.table))
		memcpy(gpu_uuid, uuid_of(page.table), 16);
	put_persistent(&page);
	return 0;
}

struct pdn_hold *pdn_hold_new(struct pdn_owner *owner, u64 address, u64 length,
			      struct pdn_charge *shared)
{
	struct pdn_hold *hold;
	struct pdn_budget_request request;
	int ret;

	if (!pdn_provider_is_persistent())
		return ERR_PTR(-EOPNOTSUPP);
	hold = kzalloc(sizeof(*hold), GFP_KERNEL_ACCOUNT);
	if (!hold)
		return ERR_PTR(-ENOMEM);
	kref_init(&hold->ref);
	hold->address = address;
	hold->length = length;
	ret = pdn_budget_ask(&request, owner, length, shared);
	if (ret)
		goto err_hold;
	ret = pin_hold(owner, hold);
	if (ret)
		goto err_request;
	hold->charge = pdn_budget_take(&request);
	return hold;

err_request:
	pdn_budget_leave(&request);
err_hold:
	kfree(hold);
	return ERR_PTR(ret);
}

void pdn_hold_get(struct pdn_hold *hold)
{
	kref_get(&hold->ref);
}

static void hold_release(struct kref *ref)
{
	struct pdn_hold *hold = container_of(ref, struct pdn_hold, ref);
	int ret = errno_of(put_persistent(hold));

	if (ret)
		pr_err_ratelimited("the driver keeps a persistent pin of %llu KiB: error %d\n",
				   hold->length >> 10, ret);
	if (test_bit(0, &hold->kept))
		atomic64_sub(hold->length, &pdn_counters[PDN_KEPT_BYTES]);
	pdn_charge_put(hold->charge);
	kfree(hold);
}

void pdn_hold_put(struct pdn_hold *hold)
{
	kref_put(&hold->ref, hold_release);
}

void pdn_hold_keep(struct pdn_hold *hold)
{
	if (!test_and_set_bit(0, &hold->kept))
		atomic64_add(hold->length, &pdn_counters[PDN_KEPT_BYTES]);
}
