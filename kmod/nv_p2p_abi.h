/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * nv_p2p_abi.h - pindown's own declarations of the NVIDIA driver's kernel interface for third-party
 * devices.
 *
 * They are used where the driver's own nv-p2p.h is not found (see Kbuild), and by the simulated
 * provider of tests. Names and layouts are the driver's; only the parts that pindown uses are here.
 *
 *   PINDOWN_P2P_MAJOR=1	page table as up to driver 575 (version 0x00010002)
 *   PINDOWN_P2P_MAJOR=2	as from 580.65 on (0x00020000), with `flags` at the end. The default
 *
 * pindown reads members past gpu_uuid only if `version` says that they exist. So it works with
 * drivers of both majors, whichever it was built for.
 *
 * pindown.ko looks these symbols up by name, and accepts them only from the driver's own module,
 * unless it is built with PINDOWN_SIM=1. A provider for tests exports them with EXPORT_SYMBOL_GPL,
 * as the driver does, since kernels look up no others.
 */
#ifndef NV_P2P_ABI_H
#define NV_P2P_ABI_H

#include <linux/types.h>

#ifndef PINDOWN_P2P_MAJOR
#define PINDOWN_P2P_MAJOR 2
#endif

/* The pages of a page table have one of these sizes. */
enum nvidia_p2p_page_size_type {
	NVIDIA_P2P_PAGE_SIZE_4KB = 0,
	NVIDIA_P2P_PAGE_SIZE_64KB,
	NVIDIA_P2P_PAGE_SIZE_128KB,
	NVIDIA_P2P_PAGE_SIZE_COUNT
};

#define NVIDIA_P2P_GPU_UUID_LEN 16

#if PINDOWN_P2P_MAJOR == 1
#define NVIDIA_P2P_PAGE_TABLE_VERSION 0x00010002
#else
#define NVIDIA_P2P_PAGE_TABLE_VERSION 0x00020000
#endif
#define NVIDIA_P2P_DMA_MAPPING_VERSION 0x00020003

struct nvidia_p2p_page {
	uint64_t physical_address;
	union nvidia_p2p_request_registers {
		struct {
			uint32_t wreqmb_h;
			uint32_t rreqmb_h;
			uint32_t rreqmb_0;
			uint32_t reserved[3];
		} fermi;
	} registers;
};

typedef struct nvidia_p2p_page_table {
	uint32_t version;
	uint32_t page_size; /* enum nvidia_p2p_page_size_type */
	struct nvidia_p2p_page **pages;
	uint32_t entries;
	uint8_t *gpu_uuid; /* from minor version 2 of major 1 */
#if PINDOWN_P2P_MAJOR >= 2
	uint32_t flags; /* NVIDIA_P2P_PAGE_TABLE_FLAGS_* */
#endif
} nvidia_p2p_page_table_t;

#define NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE 0x1

struct pci_dev;

typedef struct nvidia_p2p_dma_mapping {
	uint32_t version;
	enum nvidia_p2p_page_size_type page_size_type;
	uint32_t entries;
	uint64_t *dma_addresses; /* one for each page */
	void *private;
	struct pci_dev *pci_dev;
} nvidia_p2p_dma_mapping_t;

/* Pins with callback. Only the process that made such a pin can put it. */
int nvidia_p2p_get_pages(uint64_t p2p_token, uint32_t va_space, uint64_t virtual_address,
			 uint64_t length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data);
int nvidia_p2p_put_pages(uint64_t p2p_token, uint32_t va_space, uint64_t virtual_address,
			 struct nvidia_p2p_page_table *page_table);

/* Pins without callback: 525.105.17, 535.14 and later. Any process can put them. */
#define NVIDIA_P2P_CAP_GET_PAGES_PERSISTENT_API
#define NVIDIA_P2P_FLAGS_DEFAULT 0
int nvidia_p2p_get_pages_persistent(uint64_t virtual_address, uint64_t length,
				    struct nvidia_p2p_page_table **page_table, uint32_t flags);
int nvidia_p2p_put_pages_persistent(uint64_t virtual_address,
				    struct nvidia_p2p_page_table *page_table, uint32_t flags);

/* Must not be called in a callback: both may take the driver's lock. */
int nvidia_p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping);
int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			       struct nvidia_p2p_dma_mapping *dma_mapping);

/* For callbacks. In today's desktop drivers both do nothing, since these clean up themselves. */
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);
int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping);

/* The part of `version` that changes with a layout that is not compatible. */
#define NVIDIA_P2P_MAJOR_VERSION(v) ((v) >> 16)
#define NVIDIA_P2P_MINOR_VERSION(v) ((v) & 0xffff)

#endif
