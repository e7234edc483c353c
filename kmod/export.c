// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * export.c - regions as dma-bufs, for any device.
 *
 * Memory that a device can reach must not pass to another owner. A callback comes too late for
 * that: an importer may be unable to stop at once, or at all, and the driver's dma_map_pages may be
 * reading a page table that a callback is about to free. So every dma-buf stands on a persistent
 * pin (a hold): the region's own, or an additional one if the region has a callback.
 * When the region ends:
 *
 *   - Importers with move_notify are notified, unmap, and cannot map again (ENODEV).
 *   - Importers that have pinned the dma-buf must not be notified, and others can't be: they keep
 *     this memory, and only this memory, until they detach.
 *   - reap() unmaps an attachment without mappings from its device, once all fences in the
 *     reservation object are signalled: the device may still be at work after the importer's unmap.
 *     No thread waits for them. A work item looks again, at the latest after a second.
 *   - The hold ends with the last device.
 *
 * A device's addresses are requested when it attaches: the driver is called there without the
 * dma-buf's reservation lock, which callbacks take to notify importers.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "compat.h"
#include "internal.h"
#include "trace.h"

PDN_IMPORT_NS(DMA_BUF);

struct pdn_dmabuf {
	struct kref ref; /* one for the dma-buf, and one while reap() is queued */
	struct pdn_region *region;
	struct dma_buf *dmabuf;	  /* valid while it is in region->exports */
	struct dma_resv resv;	  /* the dma-buf's; it lives here so that reap() can use it later */
	struct list_head link;	  /* region->exports, under region->exports_lock */
	bool unreaped;		  /* region ended, reap() still due; under region->exports_lock */
	struct delayed_work reap;
	unsigned long reap_delay; /* of the work item, for its next look at the fences */
	struct mutex reaping; /* held while the driver unmaps from a device */

	struct mutex lock; /* protects all members below */
	struct list_head attachments;
	struct pdn_hold *hold; /* NULL once ended and released */
	bool ended;
};

struct pdn_attachment {
	struct list_head link;
	struct pci_dev *peer;
	struct pdn_hold *hold; /* the dma-buf's. NULL once the driver has unmapped it */
	struct pdn_dma dma;
	u32 maps; /* sg tables handed out; written under the reservation lock and export->lock */
	u32 pins; /* under the reservation lock */
};

static void export_release(struct kref *ref)
{
	struct pdn_dmabuf *export = container_of(ref, struct pdn_dmabuf, ref);

	dma_resv_fini(&export->resv);
	pdn_region_put(export->region);
	kfree(export);
}

static void export_put(struct pdn_dmabuf *export)
{
	kref_put(&export->ref, export_release);
}

/* Calls the driver, so needs export->reaping, against a second unmap, and no inner lock. */
static void attachment_unmap(struct pdn_dmabuf *export, struct pdn_attachment *attachment)
{
	if (!attachment->hold)
		return;
	pdn_dma_unmap(attachment->peer, attachment->hold, &attachment->dma);
	mutex_lock(&export->lock);
	attachment->hold = NULL;
	mutex_unlock(&export->lock);
}

/* An attachment without mappings that still has its addresses. */
static struct pdn_attachment *idle_attachment(struct pdn_dmabuf *export)
{
	struct pdn_attachment *attachment, *idle = NULL;

	mutex_lock(&export->lock);
	list_for_each_entry(attachment, &export->attachments, link) {
		if (attachment->hold && !attachment->maps) {
			idle = attachment;
			break;
		}
	}
	mutex_unlock(&export->lock);
	return idle;
}

static bool has_addresses(const struct pdn_dmabuf *export)
{
	const struct pdn_attachment *attachment;

	list_for_each_entry(attachment, &export->attachments, link)
		if (attachment->hold)
			return true;
	return false;
}

/* Detaches the hold if the dma-buf has ended and no device reaches it. The caller puts it. */
static struct pdn_hold *detach_unused_hold(struct pdn_dmabuf *export)
{
	struct pdn_hold *hold = NULL;

	mutex_lock(&export->lock);
	if (export->ended && !has_addresses(export))
		swap(hold, export->hold);
	mutex_unlock(&export->lock);
	return hold;
}

/*
 * Releases what an ended dma-buf no longer needs. No attachment can go meanwhile (detach waits for
 * export->reaping) or be mapped again (the dma-buf has ended). Returns false if a fence is not
 * signalled yet; the caller then tries again later.
 *
 * The fences are tested after the attachment was found without mappings: an importer adds the fence
 * of its device's work before it unmaps.
 */
static bool reap(struct pdn_dmabuf *export)
{
	struct pdn_attachment *attachment;
	struct pdn_hold *hold = NULL;
	bool done = true;

	mutex_lock(&export->reaping);
	while (done && (attachment = idle_attachment(export))) {
		done = dma_resv_test_signaled(&export->resv, PDN_ALL_FENCES);
		if (done)
			attachment_unmap(export, attachment);
	}
	/* There may also be fences of importers that have detached already. */
	if (done)
		done = dma_resv_test_signaled(&export->resv, PDN_ALL_FENCES);
	if (done)
		hold = detach_unused_hold(export);
	/* Under export->reaping: a caller that finds nothing left to do may rely on that. */
	if (hold)
		pdn_hold_put(hold);
	mutex_unlock(&export->reaping);
	return done;
}

/* The work item holds the dma-buf and the module, whether it is queued or running. */
static void reap_put(struct pdn_dmabuf *export)
{
	export_put(export);
	module_put(THIS_MODULE);
}

/*
 * Fences may take as long as they like, and anybody who has the descriptor may add some
 * (DMA_BUF_IOCTL_IMPORT_SYNC_FILE). A thread of the workqueue that waited for them would be missing
 * for other dma-bufs. So this looks now and then, first after a tick, later each second.
 */
static void reap_work(struct work_struct *work)
{
	struct pdn_dmabuf *export = container_of(to_delayed_work(work), struct pdn_dmabuf, reap);

	if (!reap(export)) {
		export->reap_delay = clamp(2 * export->reap_delay, 1ul, (unsigned long)HZ);
		if (queue_delayed_work(pdn_work, &export->reap, export->reap_delay))
			return;
		/* It was queued meanwhile, with references of its own. */
	}
	/* Unloading waits for the workqueue, and so for the end of this function. */
	reap_put(export);
}

/* The caller's dma-buf or descriptor still holds the module. */
static void reap_later(struct pdn_dmabuf *export)
{
	kref_get(&export->ref);
	__module_get(THIS_MODULE);
	/* Brings the next look forward. True: it is queued already, with both references. */
	if (mod_delayed_work(pdn_work, &export->reap, 0))
		reap_put(export);
}

/* Does not wait for fences. */
static void reap_now(struct pdn_dmabuf *export)
{
	if (!reap(export))
		reap_later(export);
}

/* ---- operations for importers ---- */

/* Dynamic importers declare whether they accept addresses without a struct page. */
static bool reaches_peers(const struct dma_buf_attachment *attach)
{
	return !attach->importer_ops || attach->peer2peer;
}

/* Adds the attachment, for reap() to unmap. Unmaps it at once if the dma-buf has already ended. */
static int attachment_join(struct pdn_dmabuf *export, struct pdn_attachment *attachment,
			    struct pdn_hold *hold)
{
	bool ended;

	mutex_lock(&export->lock);
	ended = export->ended;
	if (!ended) {
		attachment->hold = hold;
		list_add_tail(&attachment->link, &export->attachments);
	}
	mutex_unlock(&export->lock);
	if (!ended)
		return 0;
	pdn_dma_unmap(attachment->peer, hold, &attachment->dma);
	return -ENODEV;
}

static int attach_device(struct pdn_dmabuf *export, struct dma_buf_attachment *attach)
{
	struct pdn_attachment *attachment;
	struct pdn_hold *hold;
	int ret;

	if (!dev_is_pci(attach->dev) || !reaches_peers(attach))
		return -EOPNOTSUPP;
	attachment = kzalloc(sizeof(*attachment), GFP_KERNEL);
	if (!attachment)
		return -ENOMEM;
	attachment->peer = to_pci_dev(attach->dev);

	mutex_lock(&export->lock);
	hold = export->ended ? NULL : export->hold;
	if (hold)
		pdn_hold_get(hold);
	mutex_unlock(&export->lock);
	if (!hold) {
		kfree(attachment);
		return -ENODEV;
	}
	ret = pdn_dma_map(attachment->peer, hold, &attachment->dma);
	if (!ret)
		ret = attachment_join(export, attachment, hold);
	pdn_hold_put(hold);
	if (ret) {
		kfree(attachment);
		return ret;
	}
	attach->priv = attachment;
	return 0;
}

static int export_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct pdn_dmabuf *export = dmabuf->priv;
	int ret = attach_device(export, attach);

	pdn_count(ret ? PDN_ATTACH_FAILURES : PDN_ATTACHES);
	trace_pindown_attach(export->region, attach->dev, ret);
	return ret;
}

static void export_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	struct pdn_dmabuf *export = dmabuf->priv;
	struct pdn_attachment *attachment = attach->priv;

	mutex_lock(&export->reaping);
	attachment_unmap(export, attachment);
	mutex_lock(&export->lock);
	list_del(&attachment->link);
	mutex_unlock(&export->lock);
	mutex_unlock(&export->reaping);
	kfree(attachment);
}

/*
 * GPU memory never moves, so a pin only needs to be counted. When the memory ends, an importer that
 * has pinned it keeps it, like one without move_notify: it must not be notified. Both functions are
 * called with the reservation lock held.
 */
static int export_pin(struct dma_buf_attachment *attach)
{
	struct pdn_dmabuf *export = attach->dmabuf->priv;
	struct pdn_attachment *attachment = attach->priv;

	if (READ_ONCE(export->ended))
		return -ENODEV;
	attachment->pins++;
	return 0;
}

static void export_unpin(struct dma_buf_attachment *attach)
{
	struct pdn_attachment *attachment = attach->priv;

	attachment->pins--;
}

/* The number of contiguous pages from `first` on, up to the device's limit for one segment. */
static u32 run_at(const struct pdn_dma *dma, u32 first, u32 max_pages)
{
	u32 count = 1;

	while (count < max_pages && first + count < dma->count &&
	       dma->addresses[first + count] == dma->addresses[first + count - 1] + dma->page_size)
		count++;
	return count;
}

static struct sg_table *sg_table_of(const struct pdn_dma *dma, struct device *dev)
{
	u32 max_pages = max_t(u32, dma_get_max_seg_size(dev) / dma->page_size, 1);
	u32 i, runs = 0;
	struct scatterlist *sg;
	struct sg_table *table;
	int ret;

	for (i = 0; i < dma->count; i += run_at(dma, i, max_pages))
		runs++;
	table = kzalloc(sizeof(*table), GFP_KERNEL);
	if (!table)
		return ERR_PTR(-ENOMEM);
	ret = sg_alloc_table(table, runs, GFP_KERNEL);
	if (ret) {
		kfree(table);
		return ERR_PTR(ret);
	}
	/* Only DMA addresses: there is no struct page. */
	i = 0;
	for_each_sgtable_dma_sg(table, sg, runs) {
		u32 count = run_at(dma, i, max_pages);

		sg_set_page(sg, NULL, count * dma->page_size, 0);
		sg_dma_address(sg) = dma->addresses[i];
		sg_dma_len(sg) = count * dma->page_size;
		i += count;
	}
	return table;
}

/* One sg table less. Once the dma-buf has ended, the last one lets reap() unmap the device. */
static void attachment_unmapped(struct pdn_dmabuf *export, struct pdn_attachment *attachment)
{
	mutex_lock(&export->lock);
	if (!--attachment->maps && export->ended)
		reap_later(export);
	mutex_unlock(&export->lock);
}

/*
 * Called with the reservation lock held, so it must not call the driver. A mapping that is counted
 * keeps the addresses, so the table is made without export->lock.
 */
static struct sg_table *export_map(struct dma_buf_attachment *attach,
				   enum dma_data_direction direction)
{
	struct pdn_dmabuf *export = attach->dmabuf->priv;
	struct pdn_attachment *attachment = attach->priv;
	struct sg_table *table;
	bool ended;

	mutex_lock(&export->lock);
	ended = export->ended;
	if (!ended)
		attachment->maps++;
	mutex_unlock(&export->lock);
	if (ended)
		return ERR_PTR(-ENODEV);
	table = sg_table_of(&attachment->dma, attach->dev);
	if (IS_ERR(table))
		attachment_unmapped(export, attachment);
	return table;
}

static void export_unmap(struct dma_buf_attachment *attach, struct sg_table *table,
			 enum dma_data_direction direction)
{
	sg_free_table(table);
	kfree(table);
	attachment_unmapped(attach->dmabuf->priv, attach->priv);
}

/* Nothing is attached any more. */
static void export_dmabuf_release(struct dma_buf *dmabuf)
{
	struct pdn_dmabuf *export = dmabuf->priv;
	struct pdn_region *region = export->region;

	/* Waits for a callback that is notifying importers. */
	mutex_lock(&region->exports_lock);
	list_del_init(&export->link);
	mutex_unlock(&region->exports_lock);
	mutex_lock(&export->lock);
	export->ended = true;
	mutex_unlock(&export->lock);
	reap_now(export);
	export_put(export);
}

static const struct dma_buf_ops export_ops = {
	.attach = export_attach,
	.detach = export_detach,
	.pin = export_pin,
	.unpin = export_unpin,
	.map_dma_buf = export_map,
	.unmap_dma_buf = export_unmap,
	.release = export_dmabuf_release,
};

/* ---- functions for the rest of the module ---- */

static struct pdn_charge *charge_of(struct pdn_region *region)
{
	struct pdn_charge *charge = NULL;

	/* A live region keeps its charge. */
	down_read(&region->lock);
	if (region->state == PDN_LIVE)
		charge = pdn_charge_get(region->charge);
	up_read(&region->lock);
	return charge;
}

/*
 * A persistent pin beside that of a region with callback. Where both share BAR space, they share
 * a charge.
 */
static struct pdn_hold *hold_beside(struct pdn_region *region)
{
	struct pdn_charge *shared = NULL;
	struct pdn_hold *hold;

	if (region->shares_bar) {
		shared = charge_of(region);
		if (!shared)
			return ERR_PTR(-ESTALE);
	}
	hold = pdn_hold_new(region->owner, region->address, region->length, shared);
	pdn_charge_put(shared);
	return hold;
}

/* Returns a reference to the hold for a dma-buf. */
static struct pdn_hold *hold_for(struct pdn_region *region)
{
	struct pdn_hold *hold = NULL;

	if (!(region->flags & PINDOWN_PIN_PERSISTENT))
		return hold_beside(region);
	down_read(&region->lock);
	if (region->state == PDN_LIVE) {
		hold = region->hold;
		pdn_hold_get(hold);
	}
	up_read(&region->lock);
	return hold ?: ERR_PTR(-ESTALE);
}

static struct pdn_dmabuf *export_new(struct pdn_region *region)
{
	struct pdn_dmabuf *export = kzalloc(sizeof(*export), GFP_KERNEL_ACCOUNT);
	struct pdn_hold *hold;

	if (!export)
		return ERR_PTR(-ENOMEM);
	hold = hold_for(region);
	if (IS_ERR(hold)) {
		kfree(export);
		return ERR_CAST(hold);
	}
	kref_init(&export->ref);
	mutex_init(&export->lock);
	mutex_init(&export->reaping);
	INIT_LIST_HEAD(&export->attachments);
	INIT_LIST_HEAD(&export->link);
	INIT_DELAYED_WORK(&export->reap, reap_work);
	dma_resv_init(&export->resv);
	export->hold = hold;
	export->region = region;
	kref_get(&region->ref);
	return export;
}

/*
 * Before the persistent pin was made, the memory may have been freed and its address allocated
 * again. The callback has run then, and the region is no longer live. So the state is checked last,
 * under exports_lock: if the region ends later, pdn_exports_end() finds the dma-buf in the list.
 */
static bool export_join(struct pdn_dmabuf *export, struct pdn_region *region)
{
	bool live;

	mutex_lock(&region->exports_lock);
	live = pdn_region_is(region, PDN_LIVE);
	if (live)
		list_add_tail(&export->link, &region->exports);
	mutex_unlock(&region->exports_lock);
	return live;
}

int pdn_export(struct pdn_region *region, struct file **file)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct pdn_dmabuf *export;
	struct dma_buf *dmabuf;
	int ret;

	if (!pdn_provider_maps_dma())
		return -EOPNOTSUPP;
	export = export_new(region);
	if (IS_ERR(export)) {
		if (!pdn_region_is(region, PDN_LIVE))
			return -ESTALE;
		/* The driver reports ENOMEM when BAR space is exhausted. */
		ret = PTR_ERR(export);
		return ret == -ENOMEM ? -ENOSPC : ret;
	}
	info.ops = &export_ops;
	info.size = region->length;
	info.flags = O_RDWR | O_CLOEXEC;
	info.resv = &export->resv;
	info.priv = export;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		pdn_hold_put(export->hold);
		export_put(export);
		return PTR_ERR(dmabuf);
	}
	export->dmabuf = dmabuf;
	if (!export_join(export, region)) {
		/* Its release function frees everything else. */
		dma_buf_put(dmabuf);
		return -ESTALE;
	}
	pdn_count(PDN_EXPORTS);
	*file = dmabuf->file;
	return 0;
}

/*
 * Has the importer itself pinned the attachment? A pin that the core adds for each mapping does not
 * count: such importers are notified. Needs the reservation lock.
 */
static bool is_pinned(const struct pdn_attachment *attachment)
{
	return attachment->pins > (PDN_CORE_PINS ? attachment->maps : 0);
}

/*
 * Does not use the core's function, which notifies all importers: the kernel's RDMA code warns when
 * it is notified about memory that it has pinned.
 */
static void notify_importers(struct pdn_dmabuf *export)
{
	struct dma_buf_attachment *attach;

	dma_resv_lock(&export->resv, NULL);
	list_for_each_entry(attach, &export->dmabuf->attachments, node)
		if (attach->importer_ops && !is_pinned(attach->priv))
			pdn_tell_importer(attach);
	dma_resv_unlock(&export->resv);
}

/* Needs region->exports_lock, which keeps the dma-buf. */
static void export_end(struct pdn_dmabuf *export)
{
	bool attached;

	mutex_lock(&export->lock);
	export->ended = true;
	if (export->hold)
		pdn_hold_keep(export->hold);
	attached = !list_empty(&export->attachments);
	mutex_unlock(&export->lock);
	if (attached)
		notify_importers(export);
}

/* The next dma-buf to be reaped, with a reference. Each one is returned once. */
static struct pdn_dmabuf *next_unreaped(struct pdn_region *region)
{
	struct pdn_dmabuf *export, *found = NULL;

	mutex_lock(&region->exports_lock);
	list_for_each_entry(export, &region->exports, link) {
		if (export->unreaped) {
			export->unreaped = false;
			kref_get(&export->ref);
			found = export;
			break;
		}
	}
	mutex_unlock(&region->exports_lock);
	return found;
}

void pdn_exports_end(struct pdn_region *region, bool in_callback)
{
	struct pdn_dmabuf *export;

	mutex_lock(&region->exports_lock);
	list_for_each_entry(export, &region->exports, link) {
		export_end(export);
		if (in_callback)
			reap_later(export);
		else
			export->unreaped = true;
	}
	mutex_unlock(&region->exports_lock);
	if (in_callback)
		return;
	while ((export = next_unreaped(region))) {
		reap_now(export);
		export_put(export);
	}
}

void pdn_exports_count(struct pdn_region *region, u32 *exports, u32 *importers)
{
	struct pdn_attachment *attachment;
	struct pdn_dmabuf *export;

	*exports = 0;
	*importers = 0;
	mutex_lock(&region->exports_lock);
	list_for_each_entry(export, &region->exports, link) {
		++*exports;
		mutex_lock(&export->lock);
		list_for_each_entry(attachment, &export->attachments, link)
			if (attachment->hold)
				++*importers;
		mutex_unlock(&export->lock);
	}
	mutex_unlock(&region->exports_lock);
}
