/* SPDX-License-Identifier: MIT */
/*
 * Device memory that is a PCI device's: in the test guest, /dev/sim_gpu (tests/sim/nvidia_p2p) has
 * the memory and knows the addresses, so that the kernel can pin it and devices can reach it. Where
 * that device is not there, which is everywhere else, none of this does anything.
 *
 * All simulated devices share its memory. Exports are the kernel's own dma-bufs. What another
 * process reaches through the memfd of the store (handles between processes) is not there: such
 * calls answer CUDA_ERROR_NOT_SUPPORTED, as a driver does that can't.
 *
 * All functions need the API lock.
 */
#ifndef SIM_BAR_H
#define SIM_BAR_H

#include <stdbool.h>
#include <stdint.h>

struct sim_extent;
struct sim_block;

/* Opens it, if it is there; once, from cuInit. Its size bounds sim_options.memory. */
void sim_bar_start(void);
bool sim_bar_is_there(void);

/* Memory for an extent, in its place of the store's view; false when there is not that much. */
bool sim_bar_take(struct sim_extent *extent);
/* And back, with the store's own memory in its place again. */
void sim_bar_give(struct sim_extent *extent);

/* The block's addresses in the kernel's address space of this process, and out of it again. */
bool sim_bar_map(const struct sim_block *block);
void sim_bar_unmap(const struct sim_block *block);

/*
 * A dma-buf of extents one behind the other, from this offset in the first of them on, or -1 with
 * errno.
 */
int sim_bar_export(struct sim_extent *const *extents, unsigned count, uint64_t offset,
		   uint64_t size);

/* What nobody has, in any process, and nothing that is pinned keeps. */
uint64_t sim_bar_free_bytes(void);

#endif
