/* SPDX-License-Identifier: MIT */
/*
 * Which way a dma-buf of device memory leads to it. Where the processor reaches the memory
 * coherently (Grace, over NVLink-C2C), the driver has two: the default mapping leads through the
 * processor, and CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE through the GPU's own BAR1. A card
 * below the same PCIe bridge as the GPU needs the second, and any other card the first. A
 * registration with the wrong one may succeed all the same, and fail when data moves: so the
 * topology decides. Elsewhere there is only the default mapping, and drivers refuse the flag.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "cache/backend/backend.h"
#include "cache/backend/near.h"
#include "cache/base/environment/config.h"
#include "cache/base/process/descriptor.h"
#include "cache/base/environment/log.h"
#include "cache/base/process/system.h"
#include "cache/driver/cuda_abi.h"
#include "cache/driver/driver.h"

/*
 * What is known of a device. Relaxed: each member is one answer that never changes back, except
 * `wants_pcie`, of which the latest counts; a thread that sees none finds out itself.
 */
static struct {
	uint8_t coherent;	     /* 0: not asked yet; 1: no; 2: yes */
	bool exports[2], refuses[2]; /* without and with the flag */
	bool wants_pcie;
} devices[PDN_MAX_DEVICES + 1];

static unsigned place_of(int device)
{
	return device >= 0 && device < PDN_MAX_DEVICES ? (unsigned)device : PDN_MAX_DEVICES;
}

#define KNOWN(device, member) __atomic_load_n(&devices[place_of(device)].member, __ATOMIC_RELAXED)
#define LEARN(device, member, what) \
	__atomic_store_n(&devices[place_of(device)].member, what, __ATOMIC_RELAXED)

static int attribute(int which, int device)
{
	return pdn_driver_device_attribute(which, device);
}

bool pdn_mapping_is_chosen(int device)
{
	const int which = CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES;
	uint8_t coherent = KNOWN(device, coherent);

	if (!coherent) {
		coherent = attribute(which, device) == 1 ? 2 : 1;
		LEARN(device, coherent, coherent);
	}
	return coherent == 2;
}

/* ---- the topology ---------------------------------------------------------------------------- */

/* Where a link in sysfs leads, from "devices/" on. */
static bool place_in_sysfs(const char *link, char *text, size_t size)
{
	long length = pdn_sys_readlink(link, text, size - 1);
	char *devices_at;

	if (length <= 0)
		return false;
	text[length] = '\0';
	devices_at = strstr(text, "/devices/");
	if (!devices_at)
		return false;
	memmove(text, devices_at, strlen(devices_at) + 1);
	return true;
}

/* The card's path has sysfs' own place, up to "/class/". */
bool pdn_mapping_is_near(int device, const char *card)
{
	const char *class = strstr(card, "/class/");
	char link[128], of_card[512], of_gpu[512];

	if (!class || class - card > 64)
		return false;
	snprintf(link, sizeof(link), "%.*s/bus/pci/devices/%04x:%02x:%02x.0", (int)(class - card),
		 card, (unsigned)attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, device),
		 (unsigned)attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device),
		 (unsigned)attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device));
	return place_in_sysfs(card, of_card, sizeof(of_card)) &&
	       place_in_sysfs(link, of_gpu, sizeof(of_gpu)) && pdn_share_a_bridge(of_card, of_gpu);
}

/* ---- the choice ------------------------------------------------------------------------------ */

bool pdn_mapping_is_possible(int device, bool pcie)
{
	return !KNOWN(device, refuses[pcie]);
}

bool pdn_mapping_first(int device)
{
	enum pdn_mapping setting = pdn_config()->dmabuf_mapping;
	bool pcie = pdn_mapping_is_pcie(setting, KNOWN(device, wants_pcie));

	return pdn_mapping_is_possible(device, pcie) ? pcie : !pcie;
}

bool pdn_mapping_for(int device, const char *card)
{
	if (pdn_config()->dmabuf_mapping == PDN_MAPPING_AUTO && card &&
	    pdn_mapping_is_chosen(device))
		LEARN(device, wants_pcie, pdn_mapping_is_near(device, card));
	return pdn_mapping_first(device);
}

/* ---- exporting ------------------------------------------------------------------------------- */

static int export_as(const struct pdn_pin *pin, bool pcie, void *context, int *fd)
{
	int result = pdn_driver_export(pin->base, pin->length, context, pin->device, pcie, fd);

	if (result == CUDA_SUCCESS)
		LEARN(pin->device, exports[pcie], true);
	return result;
}

static bool is_refusal(int result)
{
	return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED;
}

static void note_refusal(int device, bool pcie)
{
	static bool told;

	LEARN(device, refuses[pcie], true);
	pdn_log_once(
		&told, PDN_LOG_WARN,
		"the driver exports no dma-buf of device %d with the %s mapping: the %s one is "
		"used",
		device, pcie ? "PCIe" : "default", pcie ? "default" : "PCIe");
}

/*
 * The driver refuses freed memory, too, and other memory may be there at the second attempt. So the
 * refusal is of the mapping, and remembered, only if a third attempt fails like the first one; and
 * not if the device has exported other memory so.
 */
int pdn_mapping_export(struct pdn_pin *pin, void *context, int *fd)
{
	int result = export_as(pin, pin->pcie, context, fd), result_again, other, again;

	if (!is_refusal(result) || !(pin->pcie || pdn_mapping_is_chosen(pin->device)))
		return result;
	if (export_as(pin, !pin->pcie, context, &other) != CUDA_SUCCESS)
		return result;
	result_again = export_as(pin, pin->pcie, context, &again);
	if (result_again == CUDA_SUCCESS) {
		pdn_descriptor_close(other);
		*fd = again;
		return CUDA_SUCCESS;
	}
	if (result_again == result && !KNOWN(pin->device, exports[pin->pcie]))
		note_refusal(pin->device, pin->pcie);
	pin->pcie = !pin->pcie;
	*fd = other;
	return CUDA_SUCCESS;
}
