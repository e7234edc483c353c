// SPDX-License-Identifier: MIT
/* Finds PCI devices, and the path between two of them, in /sys. */
#define _GNU_SOURCE
#include "tools/system/pci.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/base/memory.h"

#define DEVICES "sys/bus/pci/devices"
enum { NVIDIA = 0x10de, DISPLAY = 0x03, NETWORK = 0x02, NVME = 0x0108 };

/* ---- the devices -------------------------------------------------------------------------- */

static enum pci_kind kind_of(int64_t vendor, int64_t class)
{
	if (vendor == NVIDIA && class >> 16 == DISPLAY)
		return PCI_GPU;
	if (class >> 16 == NETWORK)
		return PCI_NIC;
	return class >> 8 == NVME ? PCI_NVME : PCI_OTHER;
}

bool pci_is_software(const char *rdma_device)
{
	return strncmp(rdma_device, "rxe", 3) == 0 || strncmp(rdma_device, "siw", 3) == 0;
}

bool pci_is_down(const char *rdma_device)
{
	struct texts ports = tree_list("%s/ports", rdma_device);
	unsigned down = 0, active = 0;

	for (unsigned i = 0; i < ports.count; i++) {
		char *state = tree_read("%s/ports/%s/state", rdma_device, ports.list[i]);

		/* "1: DOWN", "2: INIT", "3: ARMED", "4: ACTIVE", "5: ACTIVE_DEFER" */
		if (state && *state >= '4')
			active++;
		else if (state)
			down++;
		release(state);
	}
	texts_free(&ports);
	return down && !active;
}

/* The first name in a folder of the device, such as net/eth0. */
static char *name_in(const char *address, const char *folder)
{
	struct texts names = tree_list(DEVICES "/%s/%s", address, folder);
	char *name = NULL;

	for (unsigned i = 0; i < names.count && !name; i++)
		if (!pci_is_software(names.list[i]))
			name = text_of("%s", names.list[i]);
	texts_free(&names);
	return name;
}

/* A virtual machine has it: a virtual function, or one whose driver makes no device here. */
static bool is_elsewhere(const struct pci_device *device)
{
	return device->driver || tree_has(DEVICES "/%s/physfn", device->address);
}

/* A card or a disk that gets no name is not for this system. */
static void name_device(struct pci_device *device, unsigned gpus)
{
	if (device->kind == PCI_GPU) {
		device->name = text_of("GPU %u", gpus);
	} else if (device->kind == PCI_NVME) {
		device->name = name_in(device->address, "nvme");
	} else {
		device->name = name_in(device->address, "infiniband");
		device->is_rdma = device->name != NULL;
		if (device->name) {
			char *folder =
				text_of(DEVICES "/%s/infiniband/%s", device->address, device->name);

			device->is_active = !pci_is_down(folder);
			release(folder);
		} else {
			device->name = name_in(device->address, "net");
		}
	}
	if (!device->name && !is_elsewhere(device))
		device->name = text_of("%s", device->kind == PCI_NVME ? "nvme" : "network");
}

static void find_path(struct pci_device *device)
{
	char *real = tree_resolve(DEVICES "/%s", device->address), *part, *rest = real;

	while (rest && (part = strsep(&rest, "/")))
		if (strncmp(part, "pci", 3) == 0 || device->path.count)
			texts_add(&device->path, part, strlen(part));
	release(real);
}

/*
 * NVIDIA counts memory regions, not PCI's numbers: BAR1 is region 1 behind registers of 32 bits, as
 * in A100, and region 2 behind those of 64 bits, as in H100. Where the firmware had no space for
 * it, the small region that should be the third is the second.
 *
 * Linux has one line for each region: first and last address, flags.
 */
static void read_bar1(struct pci_device *device)
{
	enum { REGIONS = 6, MEMORY = 0x200, UNSET = 0x20000000, THIRD = 32 << 20 };
	char *text = tree_read(DEVICES "/%s/resource", device->address), *line, *rest = text;
	unsigned long long first, last, flags;
	unsigned number = 0;

	for (unsigned i = 0; i < REGIONS && rest && (line = strsep(&rest, "\n")); i++) {
		if (sscanf(line, "%llx %llx %llx", &first, &last, &flags) != 3 ||
		    !(flags & MEMORY) || last <= first || number++ != 1)
			continue;
		if (first && !(flags & UNSET) && last - first >= THIRD)
			device->bar1 = last - first + 1;
	}
	release(text);
}

/* A GPU's virtual function is for a virtual machine, where it looks like any other GPU. */
static struct pci_device *look_at(const char *address)
{
	int64_t vendor, class, device_number = 0;
	struct pci_device *device;

	if (!tree_number(&vendor, DEVICES "/%s/vendor", address) ||
	    !tree_number(&class, DEVICES "/%s/class", address) ||
	    kind_of(vendor, class) == PCI_OTHER ||
	    (kind_of(vendor, class) == PCI_GPU && tree_has(DEVICES "/%s/physfn", address)))
		return NULL;
	tree_number(&device_number, DEVICES "/%s/device", address);
	device = allocate(sizeof(*device));
	device->address = text_of("%s", address);
	device->kind = kind_of(vendor, class);
	device->vendor = (uint16_t)vendor;
	device->device = (uint16_t)device_number;
	if (!tree_number(&device->node, DEVICES "/%s/numa_node", address))
		device->node = -1;
	device->iommu = tree_read(DEVICES "/%s/iommu_group/type", address);
	if (!device->iommu && tree_has(DEVICES "/%s/iommu_group", address))
		device->iommu = text_of("unknown");
	device->driver = tree_link(DEVICES "/%s/driver", address);
	find_path(device);
	read_bar1(device);
	return device;
}

static void forget(struct pci_device *device)
{
	texts_free(&device->path);
	release(device->address);
	release(device->name);
	release(device->driver);
	release(device->iommu);
	release(device);
}

/* Such as a GPU that a virtual machine has, through vfio-pci. */
static bool is_taken(struct pci *pci, const struct pci_device *device)
{
	char *text;

	if (device->kind != PCI_GPU || !device->driver || strcmp(device->driver, "nvidia") == 0)
		return false;
	text = text_of("%s (%s)", device->address, device->driver);
	texts_add_once(&pci->taken, text);
	release(text);
	return true;
}

struct pci pci_scan(void)
{
	struct texts names = tree_list(DEVICES);
	struct pci pci = {.seen = names.count != 0};

	for (unsigned i = 0; i < names.count; i++) {
		struct pci_device *device = look_at(names.list[i]);

		if (!device)
			continue;
		if (!is_taken(&pci, device))
			name_device(device, pci_count(&pci, PCI_GPU));
		if (!device->name) {
			forget(device);
			continue;
		}
		pci.list = grow(pci.list, &pci.capacity, pci.count, sizeof(*pci.list));
		pci.list[pci.count++] = device;
	}
	texts_free(&names);
	return pci;
}

void pci_free(struct pci *pci)
{
	for (unsigned i = 0; i < pci->count; i++)
		forget(pci->list[i]);
	texts_free(&pci->taken);
	release(pci->list);
}

unsigned pci_count(const struct pci *pci, enum pci_kind kind)
{
	unsigned count = 0;

	for (unsigned i = 0; i < pci->count; i++)
		count += pci->list[i]->kind == kind;
	return count;
}

/* ---- paths -------------------------------------------------------------------------------- */

static unsigned common_parts(const struct pci_device *a, const struct pci_device *b)
{
	unsigned i = 0;

	while (i < a->path.count && i < b->path.count &&
	       strcmp(a->path.list[i], b->path.list[i]) == 0)
		i++;
	return i;
}

/* The socket of a NUMA node: a socket can have several nodes. */
static bool socket_of(int64_t node, int64_t *socket)
{
	char *cpus = tree_read("sys/devices/system/node/node%d/cpulist", (int)node);
	bool found =
		node >= 0 && cpus && *cpus >= '0' && *cpus <= '9' &&
		tree_number(socket, "sys/devices/system/cpu/cpu%d/topology/physical_package_id",
			    atoi(cpus));

	release(cpus);
	return found;
}

static unsigned count_sockets(void)
{
	struct texts cpus = tree_list("sys/devices/system/cpu"), sockets = {0};
	unsigned count;

	for (unsigned i = 0; i < cpus.count; i++) {
		char *socket = tree_read("sys/devices/system/cpu/%s/topology/physical_package_id",
					 cpus.list[i]);

		if (socket)
			texts_add_once(&sockets, socket);
		release(socket);
	}
	count = sockets.count;
	texts_free(&cpus);
	texts_free(&sockets);
	return count;
}

/* For devices below different host bridges. */
static enum pci_class class_by_socket(const struct pci_device *a, const struct pci_device *b)
{
	int64_t of_a, of_b;

	if (a->node >= 0 && a->node == b->node)
		return PCI_BRIDGE;
	if (a->node >= 0 && b->node >= 0) {
		if (socket_of(a->node, &of_a) && socket_of(b->node, &of_b))
			return of_a == of_b ? PCI_BRIDGE : PCI_SOCKETS;
		return PCI_SOCKETS;
	}
	return count_sockets() == 1 ? PCI_BRIDGE : PCI_UNKNOWN;
}

enum pci_class pci_class_between(const struct pci_device *a, const struct pci_device *b)
{
	unsigned common = common_parts(a, b);

	if (!a->path.count || !b->path.count)
		return PCI_UNKNOWN;
	if (!common)
		return class_by_socket(a, b);
	/* A host bridge below another device (VMD) has a root complex of its own. */
	return strncmp(a->path.list[common - 1], "pci", 3) == 0 ? PCI_BRIDGE : PCI_SWITCHES;
}

void pci_ports_between(const struct pci_device *a, const struct pci_device *b, struct texts *ports)
{
	unsigned common = common_parts(a, b);

	for (unsigned i = common; i + 1 < a->path.count; i++)
		texts_add_once(ports, a->path.list[i]);
	for (unsigned i = common; i + 1 < b->path.count; i++)
		texts_add_once(ports, b->path.list[i]);
}

/* ---- access control services -------------------------------------------------------------- */

enum {
	CONFIG = 4096,
	PLAIN = 256, /* bytes before the extended capabilities */
	HEADER = 64, /* bytes that every user may read */
	CAPABILITY_ACS = 0x0d,
	REQUEST_REDIRECT = 1 << 2,
	COMPLETION_REDIRECT = 1 << 3,
};

static uint32_t word(const unsigned char *at)
{
	return at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;
}

enum pci_acs pci_acs_at(const char *address)
{
	unsigned char config[CONFIG];
	size_t length = tree_bytes(config, sizeof(config), DEVICES "/%s/config", address);
	unsigned at = PLAIN;

	if (length <= HEADER)
		return ACS_HIDDEN;
	for (unsigned left = CONFIG / 8; left && at >= PLAIN && at + 8 <= length; left--) {
		uint32_t header = word(config + at);

		if ((header & 0xffff) == CAPABILITY_ACS)
			return word(config + at + 4) >> 16 &
					       (REQUEST_REDIRECT | COMPLETION_REDIRECT)
				       ? ACS_REDIRECTS
				       : ACS_OFF;
		at = header >> 20;
	}
	return ACS_NONE;
}
