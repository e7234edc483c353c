/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * An RDMA device made of QEMU's edu device: a host channel adapter (HCA) as ib_core and rdma-core
 * see one, small enough to read. It has protection domains, memory regions from host memory and
 * from dma-bufs, completion queues, and reliable connections between queue pairs of this one
 * device, which carry RDMA writes, reads and atomic operations. Edu's DMA engine moves the bytes,
 * by the addresses of the kernel's DMA API: through the IOMMU, if there is one, and straight into a
 * GPU's BAR. The driver computes the result of an atomic operation, in a word that the engine
 * copies from and to memory. These are atomic with respect to this device only.
 *
 * Work requests and completions go through the kernel (no queue is shared with the process), and a
 * transfer takes a tenth of a second for 2 KiB. It is for tests.
 *
 * Locks, outermost first: a dma-buf's reservation lock; engine.lock; a queue's own spinlock.
 */
#ifndef HCA_H
#define HCA_H

#include <linux/debugfs.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>

#include "compat.h"
#include "edu_engine.h"

#define HCA_MAX_SGE   4
#define HCA_MAX_WORK  4096
#define HCA_MAX_BYTES (1ull << 40)

/* Counters, in debugfs: edu_hca/NAME. */
enum hca_counter {
	HCA_HOST_MRS,	/* regions of host memory registered so far */
	HCA_DMABUF_MRS, /* of dma-bufs */
	HCA_LIVE_MRS,	/* now */
	HCA_REVOKED,	/* revoked by an exporter */
	HCA_BYTES,	/* moved */
	HCA_COUNTERS
};

struct hca {
	struct ib_device ib;
	struct pci_dev *pci;
	struct edu_engine engine; /* its lock also protects the members of mrs and qps, and word */
	u64 *word;		  /* operand and result of an atomic operation */
	dma_addr_t word_address;
	struct workqueue_struct *work;
	struct xarray mrs; /* by key >> 8 */
	struct xarray qps; /* by number */
	u32 last_mr, last_qp;
	atomic_t counters[HCA_COUNTERS];
	struct dentry *debugfs;
};

static inline struct hca *to_hca(struct ib_device *ib)
{
	return container_of(ib, struct hca, ib);
}

struct hca_pd {
	struct ib_pd ib;
};

struct hca_context {
	struct ib_ucontext ib;
};

/* ---- memory regions: mr.c ---- */

struct ib_mr *hca_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access,
			      HCA_REG_REST);
struct ib_mr *hca_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd,
				     int access, HCA_REG_DMABUF_REST);
struct ib_mr *hca_rereg_user_mr(struct ib_mr *mr, int flags, u64 start, u64 length, u64 iova,
				int access, struct ib_pd *pd, struct ib_udata *udata);
int hca_dereg_mr(struct ib_mr *mr, struct ib_udata *udata);

/*
 * Checks an access against the memory region's rights, and finds the device's address of its first
 * byte and the number of contiguous bytes there. Needs engine.lock; the answer is valid while it is
 * held.
 */
bool hca_translate(struct hca *hca, const struct ib_pd *pd, u32 key, u64 at, u64 length, int access,
		   u64 *address, u32 *run);

/* ---- completion queues: cq.c ---- */

struct hca_cq {
	struct ib_cq ib;
	spinlock_t lock; /* protects the members below */
	struct ib_wc *ring;
	u32 first, count;
	bool armed;
};

int hca_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr, HCA_CREATE_CQ_REST);
int hca_destroy_cq(struct ib_cq *cq, struct ib_udata *udata);
int hca_poll_cq(struct ib_cq *cq, int max, struct ib_wc *wc);
int hca_req_notify_cq(struct ib_cq *cq, enum ib_cq_notify_flags flags);
void hca_complete(struct ib_cq *cq, const struct ib_wc *wc);

/* ---- queue pairs: qp.c ---- */

struct hca_qp {
	struct ib_qp ib;
	struct work_struct work;
	/* engine.lock: */
	enum ib_qp_state state;
	struct ib_qp_attr attr; /* as modified so far */
	struct ib_qp_init_attr init;

	spinlock_t lock; /* sends, waiting */
	struct list_head sends;
	u32 waiting;
};

int hca_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
int hca_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
int hca_query_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask, struct ib_qp_init_attr *init);
int hca_destroy_qp(struct ib_qp *qp, struct ib_udata *udata);
int hca_post_send(struct ib_qp *qp, const struct ib_send_wr *wr, const struct ib_send_wr **bad);

#endif
