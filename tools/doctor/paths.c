// SPDX-License-Identifier: MIT
/* pindown doctor: prints the matrix of paths, a column for each GPU and a row for each device. */
#include <string.h>

#include "tools/doctor/doctor.h"
#include "tools/base/memory.h"
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

enum { ADDRESS = 14 }; /* columns of a device's address, with the gap before it */

/* A matrix of words with a column for each GPU and a row for each device. */
struct matrix {
	const char *title;
	unsigned cell; /* columns of its widest word */
	bool (*has_row)(const struct pci_device *device);
	const char *(*word)(const struct doctor *doctor, const struct pci_device *gpu,
			    const struct pci_device *device);
	const char *(*colour)(const struct pci_device *gpu, const struct pci_device *device);
};

/* The GPUs that are shown beside each other, and the gap before each. */
struct part {
	unsigned from, to;
	int gap;
};

static void print_row(const struct doctor *doctor, const struct matrix *matrix,
		      const struct pci_device *device, const struct part *part)
{
	const struct pci *pci = &doctor->pci;
	unsigned gpu = 0;

	out_print("  %-*s  %-12s", (int)name_width(pci), device->name, device->address);
	for (unsigned i = 0; i < pci->count; i++) {
		if (pci->list[i]->kind != PCI_GPU)
			continue;
		if (gpu >= part->from && gpu < part->to)
			out_print("%*s%s%-*s%s", part->gap, "",
				  matrix->colour(pci->list[i], device), (int)matrix->cell,
				  matrix->word(doctor, pci->list[i], device), out_plain());
		gpu++;
	}
	out_print("\n");
}

static void print_part(const struct doctor *doctor, const struct matrix *matrix,
		       const struct part *part)
{
	const struct pci *pci = &doctor->pci;
	int margin = 2 + (int)name_width(pci) + ADDRESS;

	out_print("\n%s%s%s%*s", out_bold(), matrix->title, out_plain(),
		  margin - (int)strlen(matrix->title), "");
	for (unsigned gpu = part->from; gpu < part->to; gpu++) {
		char *name = text_of("GPU %u", gpu);

		out_print("%*s%-*s", part->gap, "", gpu + 1 < part->to ? (int)matrix->cell : 0,
			  name);
		release(name);
	}
	out_print("\n");
	for (unsigned i = 0; i < pci->count; i++)
		if (matrix->has_row(pci->list[i]))
			print_row(doctor, matrix, pci->list[i], part);
}

/* Prints it in as many parts as the width of the output asks for. */
static void print_matrix(const struct doctor *doctor, const struct matrix *matrix)
{
	unsigned gpus = pci_count(&doctor->pci, PCI_GPU);
	unsigned margin = 2 + name_width(&doctor->pci) + ADDRESS;
	unsigned room = out.width > margin ? out.width - margin : 0;
	unsigned gap = gpus * (matrix->cell + 2) <= room ? 2 : 1;
	unsigned each = room / (matrix->cell + gap);

	each = each ? each : 1;
	for (unsigned from = 0; from < gpus; from += each) {
		struct part part = {from, from + each < gpus ? from + each : gpus, (int)gap};

		print_part(doctor, matrix, &part);
	}
}

static bool is_no_gpu(const struct pci_device *device)
{
	return device->kind != PCI_GPU;
}

static const char *word_of_path(const struct doctor *doctor, const struct pci_device *gpu,
				const struct pci_device *device)
{
	(void)doctor;
	return class_name(pci_class_between(gpu, device));
}

static const char *colour_of_path(const struct pci_device *gpu, const struct pci_device *device)
{
	return colour_of(pci_class_between(gpu, device));
}

static bool is_card(const struct pci_device *device)
{
	return device->kind == PCI_NIC;
}

static const char *no_colour(const struct pci_device *gpu, const struct pci_device *device)
{
	(void)gpu;
	(void)device;
	return "";
}

static const struct matrix paths = {"paths", 6, is_no_gpu, word_of_path, colour_of_path};
static const struct matrix mappings = {"dma-buf mapping", 7, is_card, mapping_for, no_colour};

void print_paths(const struct doctor *doctor)
{
	const struct pci *pci = &doctor->pci;
	unsigned gpus = pci_count(pci, PCI_GPU);

	if (!gpus || gpus == pci->count)
		return;
	print_matrix(doctor, &paths);
	out_print("  %s", out_dim());
	out_wrapped(2, 2,
		    "switch: PCIe switches only, best; bridge: through a host bridge; "
		    "socket: across sockets");
	out_print("%s", out_plain());
	/* Where no GPU is coherent, one line has said that all mappings are the default one. */
	if (doctor->cuda.coherent.count && pci_count(pci, PCI_NIC))
		print_matrix(doctor, &mappings);
}

static void print_json_path(const struct doctor *doctor, const struct pci_device *gpu,
			    const struct pci_device *device)
{
	struct texts ports = {0};

	json_begin_object(NULL);
	json_text("gpu", gpu->address);
	json_text("device", device->address);
	json_text("path", class_name(pci_class_between(gpu, device)));
	if (device->kind == PCI_NIC && mapping_is_known(doctor))
		json_text("dmabuf_mapping", mapping_for(doctor, gpu, device));
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
				print_json_path(doctor, pci->list[i], pci->list[j]);
	json_end_list();
}
