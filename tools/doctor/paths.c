// SPDX-License-Identifier: MIT
/* pindown doctor: prints the matrix of paths, a column for each GPU and a row for each device. */
#include "tools/doctor/doctor.h"
#include "tools/ui/json.h"
#include "tools/base/out.h"

static const char *class_name(enum pci_class class)
{
	static const char *const names[] = {"switch", "bridge", "socket", "?"};

	return names[class];
}

static const char *colour_of(enum pci_class class)
{
	return class == PCI_SWITCHES  ? out_green()
	       : class == PCI_SOCKETS ? out_red()
	       : class == PCI_BRIDGE  ? out_yellow()
				      : out_plain();
}

static unsigned name_width(const struct pci *pci)
{
	unsigned width = 6;

	for (unsigned i = 0; i < pci->count; i++)
		if (pci->list[i]->kind != PCI_GPU && strlen(pci->list[i]->name) > width)
			width = (unsigned)strlen(pci->list[i]->name);
	return width;
}

static void print_row(const struct pci *pci, const struct pci_device *device, int width)
{
	out_print("  %-*s  %-12s", width, device->name, device->address);
	for (unsigned i = 0; i < pci->count; i++) {
		enum pci_class class;

		if (pci->list[i]->kind != PCI_GPU)
			continue;
		class = pci_class_between(pci->list[i], device);
		out_print("  %s%-6s%s", colour_of(class), class_name(class), out_plain());
	}
	out_print("\n");
}

void print_paths(const struct doctor *doctor)
{
	const struct pci *pci = &doctor->pci;
	unsigned gpus = pci_count(pci, PCI_GPU);
	int width = (int)name_width(pci);

	if (!gpus || gpus == pci->count)
		return;
	out_print("\n%spaths%s%*s", out_bold(), out_plain(), width + 11, "");
	for (unsigned i = 0; i < gpus; i++)
		out_print(i + 1 < gpus ? "  GPU %-2u" : "  GPU %u", i);
	out_print("\n");
	for (unsigned i = 0; i < pci->count; i++)
		if (pci->list[i]->kind != PCI_GPU)
			print_row(pci, pci->list[i], width);
	out_print("  %sswitch: PCIe switches only, best; bridge: through a host bridge; socket: "
		  "across\n  sockets%s\n",
		  out_dim(), out_plain());
}

static void print_json_path(const struct pci_device *gpu, const struct pci_device *device)
{
	struct texts ports = {0};

	json_begin_object(NULL);
	json_text("gpu", gpu->address);
	json_text("device", device->address);
	json_text("path", class_name(pci_class_between(gpu, device)));
	pci_ports_between(gpu, device, &ports);
	json_begin_list("ports");
	for (unsigned i = 0; i < ports.count; i++)
		json_text(NULL, ports.list[i]);
	json_end_list();
	json_end_object();
	texts_free(&ports);
}

void print_paths_json(const struct doctor *doctor)
{
	static const char *const kinds[] = {"gpu", "network", "nvme"};
	const struct pci *pci = &doctor->pci;

	json_begin_list("devices");
	for (unsigned i = 0; i < pci->count; i++) {
		json_begin_object(NULL);
		json_text("address", pci->list[i]->address);
		json_text("name", pci->list[i]->name);
		json_text("kind", kinds[pci->list[i]->kind]);
		json_bool("rdma", pci->list[i]->is_rdma);
		json_text("iommu", pci->list[i]->iommu);
		if (pci->list[i]->kind == PCI_GPU)
			json_number("bar1_bytes", bar1_size(doctor, pci->list[i]));
		json_end_object();
	}
	json_end_list();
	json_begin_list("paths");
	for (unsigned i = 0; i < pci->count; i++)
		for (unsigned j = 0; j < pci->count; j++)
			if (pci->list[i]->kind == PCI_GPU && pci->list[j]->kind != PCI_GPU)
				print_json_path(pci->list[i], pci->list[j]);
	json_end_list();
}
