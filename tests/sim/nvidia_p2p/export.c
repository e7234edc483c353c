// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The driver's own dma-bufs, as cuMemGetHandleForAddressRange gives them: one keeps the memory it was
 * made of, whatever becomes of its address, until the last descriptor and the last device are gone.
 * It never moves and is never taken back. BAR space is taken when a device attaches.
 */
#include <linux/dma-buf.h>
#include <linux/errno.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "gpu.h"

struct sim_export {
	struct sim_memory *memory;
	u64 offset, length;
};

static u32 pages_of(const struct sim_export *export)
{
	return export->length >> SIM_PAGE_SHIFT;
}

static void unmap_pages(struct device *peer, const u64 *addresses, u32 count)
{
	while (count--)
		dma_unmap_resource(peer, addresses[count], SIM_GPU_PAGE, DMA_BIDIRECTIONAL, 0);
}

static int map_pages(struct device *peer, const struct sim_export *export, u64 *addresses)
{
	u32 i;

	for (i = 0; i < pages_of(export); i++) {
		addresses[i] = dma_map_resource(
			peer,
			sim_memory_page(export->memory, export->offset + ((u64)i << SIM_PAGE_SHIFT)),
			SIM_GPU_PAGE, DMA_BIDIRECTIONAL, 0);
		if (dma_mapping_error(peer, addresses[i])) {
			unmap_pages(peer, addresses, i);
			return -EIO;
		}
	}
	return 0;
}

static int export_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct sim_export *export = dmabuf->priv;
	u64 *addresses;
	int error;

	if (attach->importer_ops && !attach->peer2peer)
		return -EOPNOTSUPP;
	addresses = kvcalloc(pages_of(export), sizeof(*addresses), GFP_KERNEL);
	if (!addresses)
		return -ENOMEM;
	error = sim_bar_take(export->memory, export->offset, export->length, false);
	if (error)
		goto free;
	error = map_pages(attach->dev, export, addresses);
	if (error)
		goto give;
	attach->priv = addresses;
	sim_count(SIM_GPU_DMA_MAPPINGS, 1);
	return 0;

give:
	sim_bar_give(export->memory, export->offset, export->length, false);
free:
	kvfree(addresses);
	return error;
}

static void export_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct sim_export *export = dmabuf->priv;

	unmap_pages(attach->dev, attach->priv, pages_of(export));
	sim_bar_give(export->memory, export->offset, export->length, false);
	kvfree(attach->priv);
	sim_count(SIM_GPU_DMA_MAPPINGS, -1);
}

static struct sg_table *export_map(struct dma_buf_attachment *attach, enum dma_data_direction direction)
{
	const u64 *address = attach->priv;
	struct sg_table *table = kzalloc(sizeof(*table), GFP_KERNEL);
	struct scatterlist *sg;
	int i;

	if (!table)
		return ERR_PTR(-ENOMEM);
	if (sg_alloc_table(table, pages_of(attach->dmabuf->priv), GFP_KERNEL)) {
		kfree(table);
		return ERR_PTR(-ENOMEM);
	}
	/* Addresses for the device only: there is no struct page. */
	for_each_sgtable_dma_sg(table, sg, i) {
		sg_set_page(sg, NULL, SIM_GPU_PAGE, 0);
		sg_dma_address(sg) = address[i];
		sg_dma_len(sg) = SIM_GPU_PAGE;
	}
	return table;
}

static void export_unmap(struct dma_buf_attachment *attach, struct sg_table *table,
			 enum dma_data_direction direction)
{
	sg_free_table(table);
	kfree(table);
}

static void export_release(struct dma_buf *dmabuf)
{
	struct sim_export *export = dmabuf->priv;

	sim_memory_drop(export->memory);
	kfree(export);
	sim_count(SIM_GPU_EXPORTS, -1);
}

static const struct dma_buf_ops export_ops = {
	.attach = export_attach,
	.detach = export_detach,
	.map_dma_buf = export_map,
	.unmap_dma_buf = export_unmap,
	.release = export_release,
};

static struct dma_buf *export_new(struct sim_memory *memory, const struct sim_gpu_export *call)
{
	struct sim_export *export = kzalloc(sizeof(*export), GFP_KERNEL);
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;

	if (!export)
		return ERR_PTR(-ENOMEM);
	*export = (struct sim_export){memory, call->offset, call->size};
	info.ops = &export_ops;
	info.size = call->size;
	info.flags = O_RDWR;
	info.priv = export;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf))
		kfree(export);
	else
		sim_count(SIM_GPU_EXPORTS, 1);
	return dmabuf;
}

int sim_export(struct sim_gpu_export *call)
{
	struct sim_memory *memory = sim_memory_find(call->handle);
	struct dma_buf *dmabuf;

	if (!memory)
		return -ENOENT;
	if (memory->ram) {
		sim_memory_drop(memory);
		return -EOPNOTSUPP;
	}
	if (call->flags & ~SIM_GPU_CLOEXEC || !call->size ||
	    !IS_ALIGNED(call->offset | call->size, SIM_GPU_PAGE) || call->offset > memory->size ||
	    call->size > memory->size - call->offset) {
		sim_memory_drop(memory);
		return -EINVAL;
	}
	/* Takes over the reference. */
	dmabuf = export_new(memory, call);
	if (IS_ERR(dmabuf)) {
		sim_memory_drop(memory);
		return PTR_ERR(dmabuf);
	}
	call->fd = dma_buf_fd(dmabuf, call->flags & SIM_GPU_CLOEXEC ? O_CLOEXEC : 0);
	if (call->fd < 0)
		dma_buf_put(dmabuf);
	return call->fd < 0 ? call->fd : 0;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif
