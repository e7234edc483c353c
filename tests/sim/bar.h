/* SPDX-License-Identifier: MIT */
/*
 * Device memory that belongs to a PCI device: in the test guest, /dev/sim_gpu
 * (tests/sim/nvidia_p2p) has the memory and knows the addresses, so that the kernel can pin it and
 * devices can reach it. Without that device, as everywhere else, these functions do nothing.
 *
 * All simulated devices share its memory. Exports are the kernel's own dma-bufs. Memory that
 * another process reaches through the memfd of the store (handles between processes) is not
 * supported: such calls return CUDA_ERROR_NOT_SUPPORTED, as drivers without this feature do.
 *
 * All functions need the API lock.
 */
#ifndef SIM_BAR_H
#define SIM_BAR_H

#include <stdbool.h>
#include <stdint.h>

struct sim_extent;
struct sim_block;

/* Opens it, if it exists; once, from cuInit. Its size limits sim_options.memory. */
void sim_bar_start(void);
bool sim_bar_is_there(void);

/* Puts memory for an extent into its place of the store's view; false: not enough memory. */
bool sim_bar_take(struct sim_extent *extent);
/* Frees it, and restores the store's own memory in its place. */
void sim_bar_give(struct sim_extent *extent);

/* Maps the block in the kernel's address space of this process, and unmaps it. */
bool sim_bar_map(const struct sim_block *block);
void sim_bar_unmap(const struct sim_block *block);

/*
 * A dma-buf of consecutive extents, from this offset in the first one on; -1 with errno on failure.
 */
int sim_bar_export(struct sim_extent *const *extents, unsigned count, uint64_t offset,
		   uint64_t size);

/* Bytes that no process has allocated and no pin keeps. */
uint64_t sim_bar_free_bytes(void);

#endif
