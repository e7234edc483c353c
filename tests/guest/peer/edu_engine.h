/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The DMA engine of QEMU's edu device (1234:11e8), for the drivers that use it: it moves bytes
 * between a buffer of its own and any place that a PCI device can reach.
 */
#ifndef EDU_ENGINE_H
#define EDU_ENGINE_H

#include <linux/iopoll.h>
#include <linux/mutex.h>
#include <linux/pci.h>

#define EDU_VENDOR 0x1234
#define EDU_DEVICE 0x11e8

#define EDU_DMA_FROM	0x80
#define EDU_DMA_TO	0x88
#define EDU_DMA_COUNT	0x90
#define EDU_DMA_COMMAND 0x98
#define EDU_RUN		1u
#define EDU_TO_HOST	2u
/* The address of the engine's own buffer, for its side of a transfer. */
#define EDU_BUFFER 0x40000
/* QEMU ends on transfers that reach the end of the buffer. */
#define EDU_PIECE 2048u

struct edu_engine {
	void __iomem *registers;
	/* Held while it moves data, so that a revocation waits for transfers under way. */
	struct mutex lock;
};

/* Needs engine->lock. */
static inline int edu_move(struct edu_engine *engine, u64 from, u64 to, u32 length, u32 direction)
{
	u64 command;

	writeq(from, engine->registers + EDU_DMA_FROM);
	writeq(to, engine->registers + EDU_DMA_TO);
	writeq(length, engine->registers + EDU_DMA_COUNT);
	writeq(EDU_RUN | direction, engine->registers + EDU_DMA_COMMAND);
	if (readq_poll_timeout(engine->registers + EDU_DMA_COMMAND, command, !(command & EDU_RUN),
			       2000, 10 * USEC_PER_SEC))
		return -EIO;
	return 0;
}

/*
 * Moves at most EDU_PIECE bytes between two places in the device's view of memory. Needs
 * engine->lock.
 */
static inline int edu_copy(struct edu_engine *engine, u64 from, u64 to, u32 length)
{
	int error = edu_move(engine, from, EDU_BUFFER, length, 0);

	return error ?: edu_move(engine, EDU_BUFFER, to, length, EDU_TO_HOST);
}

/* Prepares the device for transfers. This is undone when the device's driver is unbound. */
static inline int edu_start(struct edu_engine *engine, struct pci_dev *pci, const char *name)
{
	int error = pcim_enable_device(pci);

	if (error)
		return error;
	error = dma_set_mask_and_coherent(&pci->dev, DMA_BIT_MASK(64));
	if (error)
		return error;
	/* One segment for each contiguous range of any size. */
	dma_set_max_seg_size(&pci->dev, UINT_MAX);
	error = pcim_iomap_regions(pci, BIT(0), name);
	if (error)
		return error;
	pci_set_master(pci);
	engine->registers = pcim_iomap_table(pci)[0];
	mutex_init(&engine->lock);
	return 0;
}

#endif
