// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * mr.c - memory regions: the memory that a key gives the device access to.
 *
 * A region has the device's address of each of its pages. For a dma-buf the addresses end when the
 * exporter revokes them (move_notify): from then on the key is refused for ever, since freed memory
 * does not come back. With the module parameter "pinned" dma-bufs are pinned instead, as by devices
 * that can't be notified.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "hca.h"

static bool pinned;
module_param(pinned, bool, 0644);
MODULE_PARM_DESC(pinned, "pin dma-bufs: their exporter can't take them back");

#define HCA_ACCESS                                                                      \
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |       \
	 IB_ACCESS_REMOTE_ATOMIC | IB_ZERO_BASED | IB_ACCESS_RELAXED_ORDERING)

struct hca_mr {
	struct ib_mr ib;
	struct ib_pd *pd;
	struct ib_umem *umem;
	u64 iova, length;
	int access;
	bool valid; /* protected by engine.lock */
	u64 first;  /* offset of the first byte in its page */
	u64 pages[];
};

bool hca_translate(struct hca *hca, const struct ib_pd *pd, u32 key, u64 at, u64 length, int access,
		   u64 *address, u32 *run)
{
	struct hca_mr *mr = xa_load(&hca->mrs, key >> 8);
	u64 where;

	lockdep_assert_held(&hca->engine.lock);
	if (!mr || mr->ib.lkey != key || mr->pd != pd || !mr->valid)
		return false;
	if ((mr->access & access) != access)
		return false;
	if (at < mr->iova || length > mr->length || at - mr->iova > mr->length - length)
		return false;
	where = mr->first + (at - mr->iova);
	*address = mr->pages[where >> PAGE_SHIFT] + offset_in_page(where);
	*run = PAGE_SIZE - offset_in_page(where);
	return true;
}

static struct hca_mr *mr_new(struct ib_pd *pd, struct ib_umem *umem, u64 iova, int access)
{
	struct hca_mr *mr;

	mr = kvzalloc(struct_size(mr, pages, ib_umem_num_dma_blocks(umem, PAGE_SIZE)), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->pd = pd;
	mr->umem = umem;
	mr->iova = iova;
	mr->length = umem->length;
	mr->access = access;
	mr->first = ib_umem_offset(umem);
	return mr;
}

/* Maps the pages for the device. */
static void mr_becomes_valid(struct hca *hca, struct hca_mr *mr)
{
	struct ib_block_iter block;
	size_t i = 0;

	rdma_umem_for_each_dma_block(mr->umem, &block, PAGE_SIZE)
		mr->pages[i++] = rdma_block_iter_dma_address(&block);
	mutex_lock(&hca->engine.lock);
	mr->valid = true;
	mutex_unlock(&hca->engine.lock);
}

/*
 * Allocates the key. Numbers are used in turn, so that an old key does not soon belong to another
 * region, and never begin with 0.
 */
static int mr_publish(struct hca *hca, struct hca_mr *mr, enum hca_counter counter)
{
	u32 number;
	int error;

	mutex_lock(&hca->engine.lock);
	error = xa_alloc_cyclic(&hca->mrs, &number, mr, XA_LIMIT(1, (1 << 24) - 1), &hca->last_mr,
				GFP_KERNEL);
	if (error >= 0) {
		mr->ib.lkey = number << 8 | 0x5e;
		mr->ib.rkey = mr->ib.lkey;
	}
	mutex_unlock(&hca->engine.lock);
	if (error < 0)
		return error;
	atomic_inc(&hca->counters[counter]);
	atomic_inc(&hca->counters[HCA_LIVE_MRS]);
	return 0;
}

static struct ib_mr *mr_of_host(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access)
{
	struct hca *hca = to_hca(pd->device);
	struct ib_umem *umem;
	struct hca_mr *mr;
	int error;

	if (access & ~HCA_ACCESS)
		return ERR_PTR(-EOPNOTSUPP);
	umem = ib_umem_get_va(&hca->ib, start, length, access);
	if (IS_ERR(umem))
		return ERR_CAST(umem);
	mr = mr_new(pd, umem, iova, access);
	error = PTR_ERR_OR_ZERO(mr);
	if (error)
		goto release;
	mr_becomes_valid(hca, mr);
	error = mr_publish(hca, mr, HCA_HOST_MRS);
	if (error)
		goto free;
	return &mr->ib;

free:
	kvfree(mr);
release:
	ib_umem_release(umem);
	return ERR_PTR(error);
}

struct ib_mr *hca_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access,
			      HCA_REG_REST)
{
	return mr_of_host(pd, start, length, iova, access);
}

/*
 * The exporter revokes the memory; its reservation lock is held. No DMA is under way when this
 * returns.
 */
static void mr_moves(struct dma_buf_attachment *attachment)
{
	struct ib_umem_dmabuf *umem = attachment->importer_priv;
	struct hca_mr *mr = umem->private;
	struct hca *hca = to_hca(umem->umem.ibdev);

	if (!mr) /* not mapped yet, and never will be */
		return;
	mutex_lock(&hca->engine.lock);
	mr->valid = false;
	mutex_unlock(&hca->engine.lock);
	atomic_inc(&hca->counters[HCA_REVOKED]);
	ib_umem_dmabuf_unmap_pages(umem);
}

static const struct dma_buf_attach_ops mr_attach_ops = {
	.allow_peer2peer = true,
	.HCA_MOVE_NOTIFY = mr_moves,
};

static int mr_map_dmabuf(struct hca *hca, struct hca_mr *mr, struct ib_umem_dmabuf *umem)
{
	int error;

	dma_resv_lock(umem->attach->dmabuf->resv, NULL);
	error = pinned ? 0 : ib_umem_dmabuf_map_pages(umem);
	if (!error) {
		if (!pinned)
			umem->private = mr;
		mr_becomes_valid(hca, mr);
	}
	dma_resv_unlock(umem->attach->dmabuf->resv);
	return error;
}

struct ib_mr *hca_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd,
				     int access, HCA_REG_DMABUF_REST)
{
	struct hca *hca = to_hca(pd->device);
	struct ib_umem_dmabuf *umem;
	struct hca_mr *mr;
	int error;

	if (access & ~HCA_ACCESS)
		return ERR_PTR(-EOPNOTSUPP);
	if (pinned)
		umem = ib_umem_dmabuf_get_pinned(&hca->ib, offset, length, fd, access);
	else
		umem = ib_umem_dmabuf_get(&hca->ib, offset, length, fd, access, &mr_attach_ops);
	if (IS_ERR(umem))
		return ERR_CAST(umem);
	mr = mr_new(pd, &umem->umem, iova, access);
	error = PTR_ERR_OR_ZERO(mr);
	if (error)
		goto release;
	error = mr_map_dmabuf(hca, mr, umem);
	if (error)
		goto free;
	error = mr_publish(hca, mr, HCA_DMABUF_MRS);
	if (error)
		goto free;
	return &mr->ib;

free:
	/* No callback comes after the release. */
	ib_umem_release(&umem->umem);
	kvfree(mr);
	return ERR_PTR(error);
release:
	ib_umem_release(&umem->umem);
	return ERR_PTR(error);
}

/*
 * A new address makes another region: ib_core replaces the old one by it. Rights and domain are
 * changed in place, and the key stays.
 */
struct ib_mr *hca_rereg_user_mr(struct ib_mr *ib, int flags, u64 start, u64 length, u64 iova,
				int access, struct ib_pd *pd, struct ib_udata *udata)
{
	struct hca_mr *mr = container_of(ib, struct hca_mr, ib);
	struct hca *hca = to_hca(ib->device);

	if (!(flags & IB_MR_REREG_PD))
		pd = mr->pd;
	if (!(flags & IB_MR_REREG_ACCESS))
		access = mr->access;
	if (mr->umem->is_dmabuf || access & ~HCA_ACCESS)
		return ERR_PTR(-EOPNOTSUPP);
	if (flags & IB_MR_REREG_TRANS)
		return mr_of_host(pd, start, length, iova, access);
	if (ib_access_writable(access) && !mr->umem->writable)
		return ERR_PTR(-EOPNOTSUPP);
	mutex_lock(&hca->engine.lock);
	mr->pd = pd;
	mr->access = access;
	mutex_unlock(&hca->engine.lock);
	return NULL;
}

int hca_dereg_mr(struct ib_mr *ib, struct ib_udata *udata)
{
	struct hca_mr *mr = container_of(ib, struct hca_mr, ib);
	struct hca *hca = to_hca(ib->device);

	mutex_lock(&hca->engine.lock);
	xa_erase(&hca->mrs, ib->lkey >> 8);
	mutex_unlock(&hca->engine.lock);
	atomic_dec(&hca->counters[HCA_LIVE_MRS]);
	ib_umem_release(mr->umem);
	kvfree(mr);
	return 0;
}
