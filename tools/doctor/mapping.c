// SPDX-License-Identifier: MIT
/*
 * pindown doctor: which mapping pindown takes for a dma-buf of each GPU, for each card. The rule is
 * the library's own, cache/backend/near.h.
 */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "cache/backend/near.h"
#include "tools/base/memory.h"
#include "tools/doctor/doctor.h"

static enum pdn_mapping setting(void)
{
	static struct pdn_config config;
	static struct pdn_problems problems;

	pdn_config_parse(&config, &problems, environ);
	return config.dmabuf_mapping;
}

/* The device's place in sysfs, for release(). */
static char *place_of(const struct pci_device *device)
{
	char *place = text_of("/devices");

	for (unsigned i = 0; i < device->path.count; i++) {
		char *longer = text_of("%s/%s", place, device->path.list[i]);

		release(place);
		place = longer;
	}
	return place;
}

const char *mapping_for(const struct doctor *doctor, const struct pci_device *gpu,
			const struct pci_device *card)
{
	char *of_gpu = place_of(gpu), *of_card = place_of(card);
	bool near = texts_have(&doctor->cuda.coherent, gpu->address) &&
		    pdn_share_a_bridge(of_gpu, of_card);

	release(of_gpu);
	release(of_card);
	return pdn_mapping_is_pcie(setting(), near) ? "pcie" : "default";
}

bool mapping_is_known(const struct doctor *doctor)
{
	return doctor->cuda.state == CUDA_THERE;
}

void examine_mapping(struct doctor *doctor)
{
	if (!mapping_is_known(doctor) || !doctor->exports_dmabuf)
		return;
	if (setting() != PDN_MAPPING_AUTO)
		found(doctor, GOOD, "mapping", NULL, "%s for every card, by PINDOWN_DMABUF_MAPPING",
		      setting() == PDN_MAPPING_PCIE ? "pcie" : "default");
	else if (!doctor->cuda.coherent.count)
		found(doctor, GOOD, "mapping", NULL, "default for every card: no GPU has another");
	else
		found(doctor, GOOD, "mapping", NULL,
		      "pcie for cards below the GPU's PCIe bridge, default for others%s",
		      pci_count(&doctor->pci, PCI_NIC) ? "; see below" : "");
}
