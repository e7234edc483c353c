// SPDX-License-Identifier: MIT
/* pindown doctor: checks BAR1, the IOMMU, access control in switches, and paths to devices. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"

/* ---- BAR1 (§2.5) ---------------------------------------------------------------------------- */

enum { SMALL_BAR = 256 << 20 };

static const struct nvml_gpu *in_nvml(const struct doctor *doctor, const struct pci_device *gpu)
{
	for (unsigned i = 0; i < doctor->nvml.count; i++)
		if (strcmp(doctor->nvml.gpus[i].address, gpu->address) == 0)
			return &doctor->nvml.gpus[i];
	return NULL;
}

uint64_t bar1_size(const struct doctor *doctor, const struct pci_device *gpu)
{
	const struct nvml_gpu *known = in_nvml(doctor, gpu);

	return known && known->has_bar1 ? known->bar1_total : gpu->bar1;
}

static void about_bar(struct doctor *doctor, const struct pci_device *gpu)
{
	const struct nvml_gpu *known = in_nvml(doctor, gpu);
	uint64_t size = bar1_size(doctor, gpu);
	char *used = known && known->has_bar1
			     ? text_of(", %s used", bytes_text(known->bar1_used).text)
			     : text_of("%s", "");

	if (!size)
		found(doctor, PROBLEM, "BAR1",
		      "the firmware gave it no addresses: enable above 4G decoding there",
		      "%s has none", gpu->name);
	else
		found(doctor, size <= SMALL_BAR ? PROBLEM : GOOD, "BAR1",
		      size <= SMALL_BAR
			      ? "this limits the memory pinned at once: enable above 4G decoding "
				"and resizable BARs in the firmware, if the GPU has them"
			      : NULL,
		      "%s (%s): %s%s", gpu->name, gpu->address, bytes_text(size).text, used);
	release(used);
}

/* Adds one line for all GPUs if their BAR1 sizes are equal and large enough. */
static bool about_equal_bars(struct doctor *doctor)
{
	uint64_t size = 0, max = 0;
	unsigned gpus = 0;

	for (unsigned i = 0; i < doctor->pci.count; i++) {
		const struct pci_device *gpu = doctor->pci.list[i];
		const struct nvml_gpu *known = in_nvml(doctor, gpu);

		if (gpu->kind != PCI_GPU)
			continue;
		if (gpus++ && bar1_size(doctor, gpu) != size)
			return false;
		size = bar1_size(doctor, gpu);
		if (known && known->bar1_used > max)
			max = known->bar1_used;
	}
	if (gpus < 2 || size <= SMALL_BAR)
		return false;
	if (doctor->nvml.count)
		found(doctor, GOOD, "BAR1", NULL, "%u GPUs: %s each, up to %s used", gpus,
		      bytes_text(size).text, bytes_text(max).text);
	else
		found(doctor, GOOD, "BAR1", NULL, "%u GPUs: %s each", gpus, bytes_text(size).text);
	return true;
}

static void about_bars(struct doctor *doctor)
{
	if (about_equal_bars(doctor))
		return;
	for (unsigned i = 0; i < doctor->pci.count; i++)
		if (doctor->pci.list[i]->kind == PCI_GPU)
			about_bar(doctor, doctor->pci.list[i]);
}

/* ---- the IOMMU (§2.4) ----------------------------------------------------------------------- */

static bool translates(const char *type)
{
	return strncmp(type, "DMA", 3) == 0;
}

/* Whether Linux was asked to let all devices pass. */
static bool is_told_to_pass(void)
{
	char *cmdline = tree_read("proc/cmdline");
	bool is =
		cmdline && (strstr(cmdline, "iommu=pt") || strstr(cmdline, "iommu.passthrough=1"));

	release(cmdline);
	return is;
}

/* Only GPUs and active RDMA cards are judged: others take no part in GPUDirect RDMA. */
static void about_iommu(struct doctor *doctor)
{
	char *translated = NULL, *unknown = NULL;
	bool told = is_told_to_pass();
	unsigned behind = 0;

	for (unsigned i = 0; i < doctor->pci.count; i++) {
		const struct pci_device *device = doctor->pci.list[i];

		if (!device->iommu || !(device->kind == PCI_GPU || device->is_active))
			continue;
		behind++;
		if (translates(device->iommu))
			translated = text_listed(translated, device->name);
		else if (strcmp(device->iommu, "identity") != 0)
			unknown = text_listed(unknown, device->name);
	}
	if (translated)
		found(doctor, PROBLEM, "IOMMU",
		      told ? "Linux was booted to let devices pass, but another setting translates "
			     "for these: disable the IOMMU in the firmware"
			   : "boot Linux with iommu=pt, or disable it in the firmware: devices "
			     "must see the same physical addresses",
		      "translates addresses of %s", translated);
	else if (unknown && !told)
		found(doctor, NOTE, "IOMMU", "boot Linux with iommu=pt if it translates",
		      "present; unknown whether it translates for %s", unknown);
	else if (behind)
		found(doctor, GOOD, "IOMMU", NULL, "passes addresses through");
	else if (doctor->pci.count)
		found(doctor, GOOD, "IOMMU", NULL, "off");
	release(translated);
	release(unknown);
}

/* ---- access control services ---------------------------------------------------------------- */

static void collect_ports(const struct pci *pci, struct texts *ports)
{
	for (unsigned i = 0; i < pci->count; i++)
		for (unsigned j = 0; j < pci->count; j++)
			if (pci->list[i]->kind == PCI_GPU &&
			    (pci->list[j]->kind == PCI_NVME || pci->list[j]->is_active) &&
			    pci_class_between(pci->list[i], pci->list[j]) == PCI_SWITCHES)
				pci_ports_between(pci->list[i], pci->list[j], ports);
}

/* Has a command to paste for each port that redirects. */
static char *advice_against_acs(const struct texts *ports)
{
	char *advice = text_of("disable it in the firmware, or at each boot; it sends traffic that "
			       "could stay in the switch to the root:");

	for (unsigned i = 0, n = 0; i < ports->count; i++) {
		char *longer;

		if (pci_acs_at(ports->list[i]) != ACS_REDIRECTS)
			continue;
		longer = text_of("%s%s setpci -s %s ECAP_ACS+6.w=0", advice, n++ ? ";" : "",
				 ports->list[i]);
		release(advice);
		advice = longer;
	}
	return advice;
}

/* Only switches matter: traffic through a host bridge passes the root anyway. */
static void about_acs(struct doctor *doctor)
{
	struct texts ports = {0};
	char *redirecting = NULL, *advice;
	unsigned hidden = 0;

	collect_ports(&doctor->pci, &ports);
	for (unsigned i = 0; i < ports.count; i++) {
		enum pci_acs acs = pci_acs_at(ports.list[i]);

		if (acs == ACS_REDIRECTS)
			redirecting = text_listed(redirecting, ports.list[i]);
		hidden += acs == ACS_HIDDEN;
	}
	advice = advice_against_acs(&ports);
	if (redirecting)
		found(doctor, PROBLEM, "ACS", advice, "redirects between devices at %s",
		      redirecting);
	else if (hidden)
		found(doctor, NOTE, "ACS", "run this as root", "can be read by root only");
	else if (ports.count)
		found(doctor, GOOD, "ACS", NULL, "redirects nothing at %u switch port%s",
		      ports.count, ports.count == 1 ? "" : "s");
	release(advice);
	release(redirecting);
	texts_free(&ports);
}

/* ---- paths (§2.4) --------------------------------------------------------------------------- */

static bool any_active(const struct pci *pci)
{
	for (unsigned i = 0; i < pci->count; i++)
		if (pci->list[i]->is_active)
			return true;
	return false;
}

/* The best path from a GPU to a network card; PCI_UNKNOWN when there is none. */
static enum pci_class best_nic(const struct pci *pci, const struct pci_device *gpu)
{
	bool active = any_active(pci);
	enum pci_class best = PCI_UNKNOWN;

	for (unsigned i = 0; i < pci->count; i++) {
		const struct pci_device *nic = pci->list[i];

		if (nic->kind == PCI_NIC && (nic->is_active || !active) &&
		    pci_class_between(gpu, nic) < best)
			best = pci_class_between(gpu, nic);
	}
	return best;
}

static void about_paths(struct doctor *doctor)
{
	char *gpus[PCI_UNKNOWN + 1] = {NULL};

	for (unsigned i = 0; i < doctor->pci.count; i++)
		if (doctor->pci.list[i]->kind == PCI_GPU) {
			enum pci_class best = best_nic(&doctor->pci, doctor->pci.list[i]);

			gpus[best] = text_listed(gpus[best], doctor->pci.list[i]->name);
		}
	if (gpus[PCI_SWITCHES])
		found(doctor, GOOD, "network path", NULL, "through switches only: %s",
		      gpus[PCI_SWITCHES]);
	if (gpus[PCI_BRIDGE])
		found(doctor, NOTE, "network path",
		      "a slot behind the same switch is faster, above all for reads",
		      "through a host bridge: %s", gpus[PCI_BRIDGE]);
	if (gpus[PCI_SOCKETS])
		found(doctor, PROBLEM, "network path",
		      "put a network card into a slot of the GPU's own socket: across sockets it "
		      "may be very slow or not work",
		      "across sockets: %s", gpus[PCI_SOCKETS]);
	for (unsigned i = 0; i <= PCI_UNKNOWN; i++)
		release(gpus[i]);
}

void examine_pci(struct doctor *doctor)
{
	if (!doctor->pci.seen) {
		found(doctor, NOTE, "PCI", NULL, "no device is visible here");
		return;
	}
	about_bars(doctor);
	about_iommu(doctor);
	about_acs(doctor);
	about_paths(doctor);
}
