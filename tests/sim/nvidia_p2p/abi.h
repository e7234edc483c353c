/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The structures that the driver hands to whoever pins, as driver 580 lays them out. Up to 575 the
 * page table ended before `flags`, and its major version was 1.
 */
#ifndef SIM_NVIDIA_P2P_ABI_H
#define SIM_NVIDIA_P2P_ABI_H

#include <linux/stddef.h>
#include <linux/types.h>

#define SIM_TABLE_VERSION_1 0x00010002
#define SIM_TABLE_VERSION_2 0x00020000
#define SIM_DMA_VERSION	    0x00020003

enum nvidia_p2p_page_size_type {
	NVIDIA_P2P_PAGE_SIZE_4KB,
	NVIDIA_P2P_PAGE_SIZE_64KB,
	NVIDIA_P2P_PAGE_SIZE_128KB,
};

struct nvidia_p2p_page {
	u64 physical_address;
	u32 registers[6];
};

struct nvidia_p2p_page_table {
	u32 version;
	u32 page_size; /* enum nvidia_p2p_page_size_type */
	struct nvidia_p2p_page **pages;
	u32 entries;
	u8 *gpu_uuid; /* 16 bytes */
	u32 flags;    /* from version 2 on */
};

struct nvidia_p2p_dma_mapping {
	u32 version;
	enum nvidia_p2p_page_size_type page_size_type;
	u32 entries;
	u64 *dma_addresses;
	void *private;
	struct pci_dev *pci_dev;
};

/* Persistent pins that the CPU alone may reach. */
#define SIM_FORCE_BAR1 1u

#endif
