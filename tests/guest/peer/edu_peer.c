// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Driver for QEMU's edu device (1234:11e8): a PCI device with a DMA engine, in the role of the
 * network adapter that reaches GPU memory.
 *
 * Locks: a dma-buf's reservation lock is taken before peer.engine.lock.
 */
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/xarray.h>

#include "edu_engine.h"
#include "edu_peer.h"

static struct {
	struct pci_dev *pci;
	struct edu_engine engine;
	void *bounce; /* EDU_PEER_MAX bytes that both the device and the driver can reach */
	dma_addr_t bounce_at;
} peer;

struct import {
	struct dma_buf *buffer;
	struct dma_buf_attachment *attachment;
	struct sg_table *sgt; /* reservation lock (dynamic) and peer.engine.lock; NULL: revoked */
	bool stopped;	      /* same locks: revoked, but not unmapped yet */
	u32 flags;
	u32 moves;
	u64 first;
};

struct client {
	struct mutex lock; /* protects imports; not held while the exporter is called */
	struct xarray imports;
	struct xarray busy; /* unsignalled fences of imports with EDU_BUSY, by the same number */
};

/* ---- transfers; peer.engine.lock is held ---- */

/*
 * The DMA address of a byte of the import, and the number of contiguous bytes there. 0: there is
 * none; or an entry that names no page has another length for the processor than for the device,
 * although importers read either.
 */
static u32 import_address(struct import *import, u64 offset, u64 *address)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_dma_sg(import->sgt, sg, i) {
		if (!sg_page(sg) && sg->length != sg_dma_len(sg))
			return 0;
		if (offset < sg_dma_len(sg)) {
			*address = sg_dma_address(sg) + offset;
			return min_t(u64, sg_dma_len(sg) - offset, U32_MAX);
		}
		offset -= sg_dma_len(sg);
	}
	return 0;
}

static int import_transfer(struct import *import, u64 offset, u32 length, bool write)
{
	u32 done, piece, there;
	u64 address;
	int error = 0;

	for (done = 0; done < length && !error; done += piece) {
		if (!import->sgt || import->stopped)
			return -ESTALE;
		there = import_address(import, offset + done, &address);
		if (!there)
			return -EINVAL;
		piece = min3(length - done, there, EDU_PIECE);
		error = write ? edu_copy(&peer.engine, peer.bounce_at + done, address, piece)
			      : edu_copy(&peer.engine, address, peer.bounce_at + done, piece);
	}
	return error;
}

/* ---- imports ---- */

static struct sg_table *map_static(struct dma_buf_attachment *attachment)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	return dma_buf_map_attachment_unlocked(attachment, DMA_BIDIRECTIONAL);
#else
	return dma_buf_map_attachment(attachment, DMA_BIDIRECTIONAL);
#endif
}

static void unmap_static(struct dma_buf_attachment *attachment, struct sg_table *sgt)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	dma_buf_unmap_attachment_unlocked(attachment, sgt, DMA_BIDIRECTIONAL);
#else
	dma_buf_unmap_attachment(attachment, sgt, DMA_BIDIRECTIONAL);
#endif
}

/*
 * The exporter revokes the memory; its reservation lock is held. No DMA is under way when this
 * returns.
 */
static void import_moves(struct dma_buf_attachment *attachment)
{
	struct import *import = attachment->importer_priv;
	struct sg_table *sgt = NULL;

	mutex_lock(&peer.engine.lock);
	import->moves++;
	import->stopped = true;
	if (!(import->flags & EDU_LAZY)) {
		sgt = import->sgt;
		import->sgt = NULL;
	}
	mutex_unlock(&peer.engine.lock);
	if (sgt)
		dma_buf_unmap_attachment(attachment, sgt, DMA_BIDIRECTIONAL);
}

static const struct dma_buf_attach_ops import_ops = {
	.allow_peer2peer = true,
#ifdef EDU_INVALIDATE_MAPPINGS
	.invalidate_mappings = import_moves,
#else
	.move_notify = import_moves,
#endif
};

/* ---- work that continues after a call ---- */

struct busy {
	struct dma_fence fence; /* first member: freeing it frees this structure */
	spinlock_t lock;
};

static const char *busy_name(struct dma_fence *fence)
{
	return "edu_peer";
}

static const struct dma_fence_ops busy_ops = {
	.get_driver_name = busy_name,
	.get_timeline_name = busy_name,
};

static int busy_add(struct dma_resv *resv, struct dma_fence *fence)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 19, 0)
	int error = dma_resv_reserve_fences(resv, 1);

	if (!error)
		dma_resv_add_fence(resv, fence, DMA_RESV_USAGE_BOOKKEEP);
#else
	int error = dma_resv_reserve_shared(resv, 1);

	if (!error)
		dma_resv_add_shared_fence(resv, fence);
#endif
	return error;
}

static int busy_begin(struct client *client, u32 id, struct dma_resv *resv)
{
	struct busy *busy = kzalloc(sizeof(*busy), GFP_KERNEL);
	int error;

	if (!busy)
		return -ENOMEM;
	spin_lock_init(&busy->lock);
	dma_fence_init(&busy->fence, &busy_ops, &busy->lock, dma_fence_context_alloc(1), 1);
	error = xa_err(xa_store(&client->busy, id, &busy->fence, GFP_KERNEL));
	if (error) {
		dma_fence_put(&busy->fence);
		return error;
	}
	dma_resv_lock(resv, NULL);
	error = busy_add(resv, &busy->fence);
	dma_resv_unlock(resv);
	return error;
}

static int busy_end(struct client *client, u32 id)
{
	struct dma_fence *fence = xa_erase(&client->busy, id);

	if (!fence)
		return -ENOENT;
	dma_fence_signal(fence);
	dma_fence_put(fence);
	return 0;
}

static int import_pin(struct import *import)
{
	int error;

	dma_resv_lock(import->buffer->resv, NULL);
	error = dma_buf_pin(import->attachment);
	dma_resv_unlock(import->buffer->resv);
	return error;
}

static void import_unpin(struct import *import)
{
	dma_resv_lock(import->buffer->resv, NULL);
	dma_buf_unpin(import->attachment);
	dma_resv_unlock(import->buffer->resv);
}

static int import_map(struct import *import)
{
	bool dynamic = import->flags & EDU_DYNAMIC;
	struct sg_table *sgt;
	int error = 0;

	if (dynamic)
		dma_resv_lock(import->buffer->resv, NULL);
	if (!import->sgt) {
		sgt = dynamic ? dma_buf_map_attachment(import->attachment, DMA_BIDIRECTIONAL)
			      : map_static(import->attachment);
		error = PTR_ERR_OR_ZERO(sgt);
		if (!error) {
			mutex_lock(&peer.engine.lock);
			import->sgt = sgt;
			import->stopped = false;
			mutex_unlock(&peer.engine.lock);
		}
	}
	if (dynamic)
		dma_resv_unlock(import->buffer->resv);
	return error;
}

static void import_end(struct import *import)
{
	bool dynamic = import->flags & EDU_DYNAMIC;
	struct sg_table *sgt;

	if (dynamic)
		dma_resv_lock(import->buffer->resv, NULL);
	mutex_lock(&peer.engine.lock);
	sgt = import->sgt;
	import->sgt = NULL;
	mutex_unlock(&peer.engine.lock);
	if (sgt && dynamic)
		dma_buf_unmap_attachment(import->attachment, sgt, DMA_BIDIRECTIONAL);
	if (dynamic)
		dma_resv_unlock(import->buffer->resv);
	if (sgt && !dynamic)
		unmap_static(import->attachment, sgt);
	if (import->flags & EDU_PINNED)
		import_unpin(import);
	dma_buf_detach(import->buffer, import->attachment);
	dma_buf_put(import->buffer);
	kfree(import);
}

static struct import *import_new(const struct edu_import *call)
{
	struct import *import = kzalloc(sizeof(*import), GFP_KERNEL);
	int error;

	if (!import)
		return ERR_PTR(-ENOMEM);
	import->flags = call->flags;
	import->buffer = dma_buf_get(call->fd);
	if (IS_ERR(import->buffer)) {
		error = PTR_ERR(import->buffer);
		goto free;
	}
	if (call->flags & EDU_DYNAMIC)
		import->attachment =
			dma_buf_dynamic_attach(import->buffer, &peer.pci->dev, &import_ops, import);
	else
		import->attachment = dma_buf_attach(import->buffer, &peer.pci->dev);
	if (IS_ERR(import->attachment)) {
		error = PTR_ERR(import->attachment);
		goto put;
	}
	error = import->flags & EDU_PINNED ? import_pin(import) : 0;
	if (error)
		goto detach;
	error = import_map(import);
	if (error)
		goto unpin;
	return import;

unpin:
	if (import->flags & EDU_PINNED)
		import_unpin(import);
detach:
	dma_buf_detach(import->buffer, import->attachment);
put:
	dma_buf_put(import->buffer);
free:
	kfree(import);
	return ERR_PTR(error);
}

/* ---- calls; client->lock is held, so that an import stays ---- */

static int call_import(struct client *client, struct edu_import *call)
{
	struct import *import;
	int error;

	if (call->flags & ~(EDU_DYNAMIC | EDU_LAZY | EDU_PINNED | EDU_BUSY) ||
	    (call->flags && !(call->flags & EDU_DYNAMIC)))
		return -EINVAL;
	import = import_new(call);
	if (IS_ERR(import))
		return PTR_ERR(import);
	error = xa_alloc(&client->imports, &call->id, import, xa_limit_31b, GFP_KERNEL);
	if (error) {
		import_end(import);
		return error;
	}
	error = call->flags & EDU_BUSY ? busy_begin(client, call->id, import->buffer->resv) : 0;
	if (error) {
		busy_end(client, call->id);
		xa_erase(&client->imports, call->id);
		import_end(import);
		return error;
	}
	mutex_lock(&peer.engine.lock);
	call->size = import->buffer->size;
	if (import->sgt) { /* not revoked meanwhile */
		call->segments = import->sgt->nents;
		import_address(import, 0, &import->first);
	}
	mutex_unlock(&peer.engine.lock);
	return 0;
}

static int call_transfer(struct client *client, const struct edu_transfer *call, bool write)
{
	struct import *import = xa_load(&client->imports, call->id);
	void __user *data = u64_to_user_ptr(call->data);
	void *copy;
	int error = 0;

	if (!import)
		return -ENOENT;
	if (!call->length || call->length > EDU_PEER_MAX || call->offset > import->buffer->size ||
	    call->length > import->buffer->size - call->offset)
		return -EINVAL;
	copy = write ? memdup_user(data, call->length) : kzalloc(call->length, GFP_KERNEL);
	if (IS_ERR_OR_NULL(copy))
		return copy ? PTR_ERR(copy) : -ENOMEM;
	mutex_lock(&peer.engine.lock);
	if (write)
		memcpy(peer.bounce, copy, call->length);
	error = import_transfer(import, call->offset, call->length, write);
	if (!write)
		memcpy(copy, peer.bounce, call->length);
	mutex_unlock(&peer.engine.lock);
	if (!error && !write && copy_to_user(data, copy, call->length))
		error = -EFAULT;
	kfree(copy);
	return error;
}

static int call_state(struct client *client, struct edu_state *call)
{
	struct import *import = xa_load(&client->imports, call->id);

	if (!import)
		return -ENOENT;
	mutex_lock(&peer.engine.lock);
	call->moves = import->moves;
	call->address = import->first;
	call->mapped = import->sgt && !import->stopped;
	mutex_unlock(&peer.engine.lock);
	return 0;
}

static int call_raw(const struct edu_raw *call)
{
	void __user *data = u64_to_user_ptr(call->data);
	void *copy;
	int error;

	if (!call->length || call->length > EDU_PIECE || call->write > 1)
		return -EINVAL;
	copy = memdup_user(data, call->length);
	if (IS_ERR(copy))
		return PTR_ERR(copy);
	mutex_lock(&peer.engine.lock);
	memcpy(peer.bounce, copy, call->length);
	error = call->write ? edu_copy(&peer.engine, peer.bounce_at, call->address, call->length)
			    : edu_copy(&peer.engine, call->address, peer.bounce_at, call->length);
	memcpy(copy, peer.bounce, call->length);
	mutex_unlock(&peer.engine.lock);
	if (!error && !call->write && copy_to_user(data, copy, call->length))
		error = -EFAULT;
	kfree(copy);
	return error;
}

static int call_release(struct client *client, u32 id)
{
	struct import *import = xa_erase(&client->imports, id);

	if (!import)
		return -ENOENT;
	import_end(import);
	return 0;
}

static int call_remap(struct client *client, u32 id)
{
	struct import *import = xa_load(&client->imports, id);

	return import ? import_map(import) : -ENOENT;
}

union call {
	struct edu_import import;
	__u32 id;
	struct edu_transfer transfer;
	struct edu_state state;
	struct edu_raw raw;
};

static int call_one(struct client *client, unsigned int number, union call *call)
{
	switch (number) {
	case EDU_IMPORT:
		return call_import(client, &call->import);
	case EDU_RELEASE:
		return call_release(client, call->id);
	case EDU_READ:
	case EDU_WRITE:
		return call_transfer(client, &call->transfer, number == EDU_WRITE);
	case EDU_STATE:
		return call_state(client, &call->state);
	case EDU_RAW:
		return call_raw(&call->raw);
	case EDU_REMAP:
		return call_remap(client, call->id);
	case EDU_SIGNAL:
		return busy_end(client, call->id);
	}
	return -ENOTTY;
}

static long peer_ioctl(struct file *file, unsigned int number, unsigned long argument)
{
	struct client *client = file->private_data;
	void __user *from = (void __user *)argument;
	union call call = {};
	int error;

	if (_IOC_SIZE(number) > sizeof(call))
		return -ENOTTY;
	if (copy_from_user(&call, from, _IOC_SIZE(number)))
		return -EFAULT;
	mutex_lock(&client->lock);
	error = call_one(client, number, &call);
	if (!error && _IOC_DIR(number) & _IOC_READ &&
	    copy_to_user(from, &call, _IOC_SIZE(number))) {
		error = -EFAULT;
		/* Its number is not published. */
		if (number == EDU_IMPORT)
			call_release(client, call.import.id);
	}
	mutex_unlock(&client->lock);
	return error;
}

static int peer_open(struct inode *inode, struct file *file)
{
	struct client *client = kzalloc(sizeof(*client), GFP_KERNEL);

	if (!client)
		return -ENOMEM;
	mutex_init(&client->lock);
	xa_init_flags(&client->imports, XA_FLAGS_ALLOC1);
	xa_init(&client->busy);
	file->private_data = client;
	return 0;
}

static int peer_release(struct inode *inode, struct file *file)
{
	struct client *client = file->private_data;
	struct dma_fence *fence;
	struct import *import;
	unsigned long id;

	xa_for_each(&client->imports, id, import)
		import_end(import);
	xa_for_each(&client->busy, id, fence)
		busy_end(client, id);
	xa_destroy(&client->busy);
	xa_destroy(&client->imports);
	kfree(client);
	return 0;
}

static const struct file_operations peer_fops = {
	.owner = THIS_MODULE,
	.open = peer_open,
	.release = peer_release,
	.unlocked_ioctl = peer_ioctl,
};

static struct miscdevice peer_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "edu_peer",
	.fops = &peer_fops,
	.mode = 0666,
};

static int peer_probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	int error;

	if (peer.pci)
		return -EBUSY;
	error = edu_start(&peer.engine, pci, "edu_peer");
	if (error)
		return error;
	peer.bounce = dmam_alloc_coherent(&pci->dev, EDU_PEER_MAX, &peer.bounce_at, GFP_KERNEL);
	if (!peer.bounce)
		return -ENOMEM;
	peer.pci = pci;
	error = misc_register(&peer_device);
	if (error)
		peer.pci = NULL;
	return error;
}

static void peer_remove(struct pci_dev *pci)
{
	misc_deregister(&peer_device);
	peer.pci = NULL;
}

static const struct pci_device_id peer_ids[] = {{PCI_DEVICE(EDU_VENDOR, EDU_DEVICE)}, {}};

static struct pci_driver peer_driver = {
	.name = "edu_peer",
	.id_table = peer_ids,
	.probe = peer_probe,
	.remove = peer_remove,
	.driver.suppress_bind_attrs = true,
};

static int __init peer_init(void)
{
	return pci_register_driver(&peer_driver);
}

static void __exit peer_exit(void)
{
	pci_unregister_driver(&peer_driver);
}

module_init(peer_init);
module_exit(peer_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("dma-buf importer on QEMU's edu device, for pindown's test guest");
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif
