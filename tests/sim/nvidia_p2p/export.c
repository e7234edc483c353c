// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The driver's own dma-bufs, as cuMemGetHandleForAddressRange returns them: one keeps its memory,
 * whatever happens to the address, until the last descriptor and the last device are gone. It never
 * moves and is never revoked. BAR space is used while a device is attached.
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
	u32 pages; /* of 64 KiB, of which the first and the last of a piece may be parts only */
	u32 count;
	u64 size;
	struct piece {
		struct sim_memory *memory;
		u64 offset, length;
	} piece[SIM_GPU_PIECES];
};

static void unmap_pages(struct device *peer, const u64 *addresses, u32 count)
{
	while (count--)
		dma_unmap_resource(peer, addresses[count], SIM_GPU_PAGE, DMA_BIDIRECTIONAL, 0);
}

/* Appends the piece's addresses to the *count that exist. */
static int map_piece(struct device *peer, const struct piece *piece, u64 *addresses, u32 *count)
{
	u64 at;

	at = round_down(piece->offset, SIM_GPU_PAGE);
	for (; at < piece->offset + piece->length; at += SIM_GPU_PAGE) {
		addresses[*count] = dma_map_resource(peer, sim_memory_page(piece->memory, at),
						     SIM_GPU_PAGE, DMA_BIDIRECTIONAL, 0);
		if (dma_mapping_error(peer, addresses[*count]))
			return -EIO;
		++*count;
	}
	return 0;
}

static int map_pages(struct device *peer, const struct sim_export *export, u64 *addresses)
{
	u32 i, count = 0;
	int error = 0;

	for (i = 0; i < export->count && !error; i++)
		error = map_piece(peer, &export->piece[i], addresses, &count);
	if (error)
		unmap_pages(peer, addresses, count);
	return error;
}

static void bar_give(const struct sim_export *export, u32 count)
{
	while (count--)
		sim_bar_give(export->piece[count].memory, export->piece[count].offset,
			     export->piece[count].length, false);
}

static int bar_reserve(const struct sim_export *export)
{
	const struct piece *piece = export->piece;
	u32 i;
	int error;

	for (i = 0; i < export->count; i++) {
		error = sim_bar_take(piece[i].memory, piece[i].offset, piece[i].length, false);
		if (error) {
			bar_give(export, i);
			return error;
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
	addresses = kvcalloc(export->pages, sizeof(*addresses), GFP_KERNEL);
	if (!addresses)
		return -ENOMEM;
	error = bar_reserve(export);
	if (error)
		goto free;
	error = map_pages(attach->dev, export, addresses);
	if (error)
		goto give;
	attach->priv = addresses;
	sim_count(SIM_GPU_DMA_MAPPINGS, 1);
	return 0;

give:
	bar_give(export, export->count);
free:
	kvfree(addresses);
	return error;
}

static void export_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct sim_export *export = dmabuf->priv;

	unmap_pages(attach->dev, attach->priv, export->pages);
	bar_give(export, export->count);
	kvfree(attach->priv);
	sim_count(SIM_GPU_DMA_MAPPINGS, -1);
}

/* Fills in the entries of a piece. Only DMA addresses: there is no struct page. */
static void show_piece(const struct piece *piece, const u64 **page, struct scatterlist **sg)
{
	u64 at, next, end = piece->offset + piece->length;

	for (at = piece->offset; at < end; at = next) {
		next = min(end, round_down(at, SIM_GPU_PAGE) + SIM_GPU_PAGE);
		sg_set_page(*sg, NULL, next - at, 0);
		sg_dma_address(*sg) = *(*page)++ + at % SIM_GPU_PAGE;
		sg_dma_len(*sg) = next - at;
		*sg = sg_next(*sg);
	}
}

static struct sg_table *export_map(struct dma_buf_attachment *attach,
				   enum dma_data_direction direction)
{
	const struct sim_export *export = attach->dmabuf->priv;
	const u64 *page = attach->priv;
	struct sg_table *table = kzalloc(sizeof(*table), GFP_KERNEL);
	struct scatterlist *sg;
	u32 i;

	if (!table)
		return ERR_PTR(-ENOMEM);
	if (sg_alloc_table(table, export->pages, GFP_KERNEL)) {
		kfree(table);
		return ERR_PTR(-ENOMEM);
	}
	sg = table->sgl;
	for (i = 0; i < export->count; i++)
		show_piece(&export->piece[i], &page, &sg);
	return table;
}

static void export_unmap(struct dma_buf_attachment *attach, struct sg_table *table,
			 enum dma_data_direction direction)
{
	sg_free_table(table);
	kfree(table);
}

/* Frees the export with everything that it holds. */
static void export_free(struct sim_export *export)
{
	u32 i;

	for (i = 0; i < export->count; i++)
		sim_memory_drop(export->piece[i].memory);
	kfree(export);
}

static void export_release(struct dma_buf *dmabuf)
{
	export_free(dmabuf->priv);
	sim_count(SIM_GPU_EXPORTS, -1);
}

static const struct dma_buf_ops export_ops = {
	.attach = export_attach,
	.detach = export_detach,
	.map_dma_buf = export_map,
	.unmap_dma_buf = export_unmap,
	.release = export_release,
};

/* Takes a reference to the memory. */
static int add_piece(struct sim_export *export, const struct sim_gpu_piece *piece)
{
	struct sim_memory *memory = sim_memory_find(piece->handle);

	if (!memory)
		return -ENOENT;
	export->piece[export->count++] = (struct piece){memory, piece->offset, piece->size};
	if (memory->ram)
		return -EOPNOTSUPP;
	if (!piece->size || !PAGE_ALIGNED(piece->offset | piece->size) ||
	    piece->offset > memory->size || piece->size > memory->size - piece->offset)
		return -EINVAL;
	export->pages += ((piece->offset + piece->size - 1) >> SIM_PAGE_SHIFT) -
			 (piece->offset >> SIM_PAGE_SHIFT) + 1;
	export->size += piece->size;
	return 0;
}

static struct sim_export *export_new(const struct sim_gpu_export *call)
{
	struct sim_export *export = kzalloc(sizeof(*export), GFP_KERNEL);
	int error = 0;
	u32 i;

	if (!export)
		return ERR_PTR(-ENOMEM);
	for (i = 0; i < call->count && !error; i++)
		error = add_piece(export, &call->piece[i]);
	if (!error)
		return export;
	export_free(export);
	return ERR_PTR(error);
}

/* Takes over the reference. */
static struct dma_buf *dmabuf_of(struct sim_export *export)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;

	info.ops = &export_ops;
	info.size = export->size;
	info.flags = O_RDWR;
	info.priv = export;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf))
		export_free(export);
	else
		sim_count(SIM_GPU_EXPORTS, 1);
	return dmabuf;
}

int sim_export(struct sim_gpu_export *call)
{
	struct sim_export *export;
	struct dma_buf *dmabuf;

	if (call->flags & ~SIM_GPU_CLOEXEC || call->reserved || !call->count ||
	    call->count > SIM_GPU_PIECES)
		return -EINVAL;
	export = export_new(call);
	if (IS_ERR(export))
		return PTR_ERR(export);
	dmabuf = dmabuf_of(export);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
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
