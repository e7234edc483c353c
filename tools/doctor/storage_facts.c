// SPDX-License-Identifier: MIT
/*
 * pindown doctor --storage: what P2P with NVMe needs of the kernel and the GPU's driver, and the
 * folders on NVMe disks. None is a problem, because nothing here is proof: --try is.
 */
#define _GNU_SOURCE
#include <string.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/storage.h"

/* ---- the kernel ----------------------------------------------------------------------------- */

enum answer { NO, YES, UNKNOWN };

static bool any_has_p2pmem(const struct doctor *doctor)
{
	for (unsigned i = 0; i < doctor->pci.count; i++)
		if (tree_has("sys/bus/pci/devices/%s/p2pmem", doctor->pci.list[i]->address))
			return true;
	return false;
}

/* Whether the kernel is built with CONFIG_PCI_P2PDMA: then it has this function. */
static enum answer has_p2pdma(const struct doctor *doctor)
{
	static const char function[] = " pci_p2pdma_add_resource";
	enum { MOST = 32 << 20 };
	char *symbols;
	size_t length;
	bool found;

	if (any_has_p2pmem(doctor))
		return YES;
	symbols = allocate(MOST);
	length = tree_bytes(symbols, MOST, "proc/kallsyms");
	found = memmem(symbols, length, function, strlen(function)) != NULL;
	release(symbols);
	return found ? YES : length ? NO : UNKNOWN;
}

static bool is_before_6_2(const struct version *kernel)
{
	return kernel->part[0] &&
	       (kernel->part[0] < 6 || (kernel->part[0] == 6 && kernel->part[1] < 2));
}

static void about_kernel(struct doctor *doctor)
{
	enum answer has = has_p2pdma(doctor);

	if (has == NO)
		found(doctor, NOTE, "P2PDMA", "use a kernel with CONFIG_PCI_P2PDMA=y, or nvidia-fs",
		      "the kernel is built without CONFIG_PCI_P2PDMA");
	else if (is_before_6_2(&doctor->kernel))
		found(doctor, NOTE, "P2PDMA",
		      "use Linux 6.2 or newer (some distributions have it in older ones), or "
		      "nvidia-fs",
		      "this Linux is older than direct I/O with pages of devices");
	else if (has == UNKNOWN)
		found(doctor, NOTE, "P2PDMA", NULL,
		      "proc/kallsyms does not say whether the kernel has CONFIG_PCI_P2PDMA");
	else
		found(doctor, GOOD, "P2PDMA", NULL, "the kernel has it (CONFIG_PCI_P2PDMA)");
}

/* ---- the GPU's driver ----------------------------------------------------------------------- */

static int64_t p2pmem_of(const struct pci_device *device)
{
	int64_t bytes;

	return tree_number(&bytes, "sys/bus/pci/devices/%s/p2pmem/size", device->address) ? bytes
											  : 0;
}

static bool has_settings(void)
{
	char *text = tree_read("proc/driver/nvidia/params");
	bool has = text && strcasestr(text, "RMForceStaticBar1=1") &&
		   strcasestr(text, "RmForceDisableIomapWC=1");

	release(text);
	return has;
}

enum offer { OFFERS, COHERENT, SET_ONLY, OFFERS_NONE, OFFER_KINDS };

static enum offer offer_of(const struct doctor *doctor, const struct pci_device *gpu)
{
	if (p2pmem_of(gpu) > 0)
		return OFFERS;
	if (texts_have(&doctor->cuda.coherent, gpu->address))
		return COHERENT;
	return has_settings() ? SET_ONLY : OFFERS_NONE;
}

static void about_offer(struct doctor *doctor, enum offer offer, const char *gpus)
{
	switch (offer) {
	case OFFERS:
		found(doctor, GOOD, "P2PDMA", NULL, "the driver offers memory to other devices: %s",
		      gpus);
		break;
	case COHERENT:
		found(doctor, GOOD, "P2PDMA", NULL, "coherent, so that memory has pages: %s", gpus);
		break;
	case SET_ONLY:
		found(doctor, NOTE, "P2PDMA",
		      "this needs Ampere or newer, open modules 565 or newer, BAR1 as large as the "
		      "GPU's memory, and a CUDA program that has run since the driver was loaded",
		      "the driver offers no memory to other devices, though it is set to: %s",
		      gpus);
		break;
	case OFFERS_NONE:
	case OFFER_KINDS:
		found(doctor, NOTE, "P2PDMA",
		      "options nvidia "
		      "NVreg_RegistryDwords=\"RMForceStaticBar1=1;RmForceDisableIomapWC=1;\" in "
		      "/etc/modprobe.d, with open modules 565 or newer; or use nvidia-fs",
		      "the driver offers no memory to other devices: %s", gpus);
		break;
	}
}

static void about_gpus(struct doctor *doctor)
{
	char *gpus[OFFER_KINDS] = {NULL};

	for (unsigned i = 0; i < doctor->pci.count; i++) {
		const struct pci_device *gpu = doctor->pci.list[i];
		char **list = &gpus[offer_of(doctor, gpu)];

		if (gpu->kind == PCI_GPU)
			*list = text_listed(*list, gpu->name);
	}
	for (unsigned offer = 0; offer < OFFER_KINDS; offer++) {
		if (gpus[offer])
			about_offer(doctor, (enum offer)offer, gpus[offer]);
		release(gpus[offer]);
	}
}

static void about_nvidia_fs(struct doctor *doctor)
{
	if (tree_has("proc/driver/nvidia-fs") || tree_has("sys/module/nvidia_fs"))
		found(doctor, GOOD, "nvidia-fs", NULL, "is loaded: another way to P2P");
	else
		found(doctor, GOOD, "nvidia-fs", NULL, "is not loaded; P2PDMA does not need it");
}

/* ---- disks ---------------------------------------------------------------------------------- */

static void about_own_memory(struct doctor *doctor)
{
	for (unsigned i = 0; i < doctor->pci.count; i++) {
		const struct pci_device *device = doctor->pci.list[i];
		int64_t bytes = device->kind == PCI_NVME ? p2pmem_of(device) : 0;

		if (bytes > 0)
			found(doctor, GOOD, "NVMe memory", NULL,
			      "%s has %s of its own (CMB); --try does not use it", device->name,
			      bytes_text((uint64_t)bytes).text);
	}
}

static void about_place(struct doctor *doctor, const struct place *place, bool is_named)
{
	char *text = place_described(place);

	if (place->is_multipath)
		found(doctor, NOTE, "NVMe folder",
		      "options nvme_core multipath=N in /etc/modprobe.d: the kernel's NVMe "
		      "multipathing does no P2P",
		      "%s: %s, through multipathing", place->folder, text);
	else if (place->is_remote)
		found(doctor, NOTE, "NVMe folder", NULL, "%s: %s, not a disk on PCIe",
		      place->folder, text);
	else if (is_named)
		found(doctor, place->controller ? GOOD : NOTE, "NVMe folder", NULL, "%s: %s",
		      place->folder, text);
	else
		found(doctor, GOOD, "NVMe folder", NULL, "%s: %s; can be tried: --storage=%s",
		      place->folder, text, place->folder);
	release(text);
}

static void about_folders(struct doctor *doctor, const struct texts *folders)
{
	struct places places = {0};

	if (!folders->count)
		places = places_mounted();
	for (unsigned i = 0; i < folders->count; i++)
		places_add(&places, place_of_folder(folders->list[i]));
	for (unsigned i = 0; i < places.count; i++)
		about_place(doctor, &places.list[i], folders->count != 0);
	if (!places.count)
		found(doctor, NOTE, "NVMe folder",
		      "mount a file system of an NVMe disk, or name a folder: --storage=FOLDER",
		      "no writable file system is on an NVMe disk");
	places_free(&places);
}

void examine_storage(struct doctor *doctor, const struct texts *folders)
{
	about_kernel(doctor);
	about_gpus(doctor);
	about_nvidia_fs(doctor);
	about_own_memory(doctor);
	about_folders(doctor, folders);
}
