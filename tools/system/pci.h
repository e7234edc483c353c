/* SPDX-License-Identifier: MIT */
/* The PCI devices that take part in GPUDirect RDMA, and the paths between them. */
#ifndef PCI_H
#define PCI_H

#include "tools/system/tree.h"

enum pci_kind { PCI_GPU, PCI_NIC, PCI_NVME, PCI_OTHER };

struct pci_device {
	char *address; /* 0000:07:00.0 */
	char *name;    /* GPU 0, mlx5_0, eth0, nvme0 */
	enum pci_kind kind;
	char *driver;	/* NULL: Linux says none */
	bool is_rdma;	/* a NIC with an RDMA device */
	bool is_active; /* ... and a port of it is active, as far as Linux says */
	uint16_t vendor, device;
	int64_t node;	   /* NUMA node, or -1 */
	struct texts path; /* from the host bridge (pci0000:00) down to the device itself */
	char *iommu;	   /* its IOMMU group's type: identity, DMA, DMA-FQ; NULL: none */
	uint64_t bar1;	   /* bytes of the window to a GPU's memory; 0: it has no addresses */
};

struct pci {
	struct pci_device **list;
	unsigned count, capacity;
	bool seen;	    /* the machine shows PCI devices */
	struct texts taken; /* GPUs of other drivers: "0000:07:00.0 (vfio-pci)" */
};

/*
 * GPUs of NVIDIA's driver or of none, and network and NVMe controllers but those of virtual
 * machines, in the order of their addresses.
 */
struct pci pci_scan(void);
void pci_free(struct pci *pci);
unsigned pci_count(const struct pci *pci, enum pci_kind kind);

/* Soft-RoCE and Soft-iWARP, as far as the name shows: older kernels show them as part of a NIC. */
bool pci_is_software(const char *rdma_device);
/* Whether no port of an RDMA device is active, by its folder; false if it shows no ports. */
bool pci_is_down(const char *rdma_device);

/* The three classes of the GPUDirect RDMA guide (§2.4), best first. */
enum pci_class { PCI_SWITCHES, PCI_BRIDGE, PCI_SOCKETS, PCI_UNKNOWN };
enum pci_class pci_class_between(const struct pci_device *a, const struct pci_device *b);

/*
 * Adds the addresses of the ports on a path through switches: those between each device and the
 * last bridge that the two have in common.
 */
void pci_ports_between(const struct pci_device *a, const struct pci_device *b, struct texts *ports);

/* Access control (ACS) of a port: whether it redirects requests between devices to the root. */
enum pci_acs { ACS_NONE, ACS_OFF, ACS_REDIRECTS, ACS_HIDDEN /* reading it needs more rights */ };
enum pci_acs pci_acs_at(const char *address);

#endif
