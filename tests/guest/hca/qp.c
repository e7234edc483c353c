// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * qp.c - queue pairs: reliable connections between two queue pairs of this device, and their
 * requests.
 *
 * The device has one engine, so an ordered workqueue does all work, in pieces: keys are checked
 * again for each piece, under the lock that ends them.
 */
#include <linux/slab.h>

#include "hca.h"

struct hca_send {
	struct list_head link;
	struct ib_wc wc; /* its completion */
	bool silent;	 /* no completion on success */
	u64 remote;
	u64 compare_add, swap; /* of an atomic operation */
	u32 rkey;
	u32 length; /* length of all pieces */
	int count;
	struct ib_sge sge[HCA_MAX_SGE];
};

static struct hca_qp *to_hca_qp(struct ib_qp *qp)
{
	return container_of(qp, struct hca_qp, ib);
}

/* ---- what the device does; engine.lock is held ---- */

static void qp_fails(struct hca_qp *qp)
{
	qp->state = IB_QPS_ERR;
}

/* The responder's side of a refused access. */
static enum ib_wc_status refused(struct hca_qp *responder)
{
	struct ib_event event = {.device = responder->ib.device,
				 .event = IB_EVENT_QP_ACCESS_ERR,
				 .element.qp = &responder->ib};

	qp_fails(responder);
	if (responder->ib.event_handler)
		responder->ib.event_handler(&event, responder->ib.qp_context);
	return IB_WC_REM_ACCESS_ERR;
}

/* The other end, if it is connected with this one. */
static struct hca_qp *responder_of(struct hca *hca, const struct hca_qp *qp)
{
	struct hca_qp *other = xa_load(&hca->qps, qp->attr.dest_qp_num);

	if (!other || other->attr.dest_qp_num != qp->ib.qp_num)
		return NULL;
	return other->state == IB_QPS_RTR || other->state == IB_QPS_RTS ? other : NULL;
}

/* The bytes of one scatter/gather element from `done` on, and their place in `remote`. */
struct hca_piece {
	const struct ib_sge *sge;
	u32 done;
	u64 remote;
	u32 left; /* of the whole request */
};

static enum ib_wc_status move_piece(struct hca *hca, struct hca_qp *qp, const struct hca_send *send,
				    const struct hca_piece *at, u32 *moved)
{
	bool read = send->wc.opcode == IB_WC_RDMA_READ;
	int remote_access = read ? IB_ACCESS_REMOTE_READ : IB_ACCESS_REMOTE_WRITE;
	struct hca_qp *responder = responder_of(hca, qp);
	u32 local_left = at->sge->length - at->done, local_run, remote_run;
	u64 local, remote;

	if (qp->state != IB_QPS_RTS)
		return IB_WC_WR_FLUSH_ERR;
	if (!responder)
		return IB_WC_RETRY_EXC_ERR;
	if (!hca_translate(hca, qp->ib.pd, at->sge->lkey, at->sge->addr + at->done, local_left,
			   read ? IB_ACCESS_LOCAL_WRITE : 0, &local, &local_run))
		return IB_WC_LOC_PROT_ERR;
	if (!(responder->attr.qp_access_flags & remote_access) ||
	    !hca_translate(hca, responder->ib.pd, send->rkey, at->remote, at->left, remote_access,
			   &remote, &remote_run))
		return refused(responder);
	*moved = min3(local_left, min(local_run, remote_run), EDU_PIECE);
	if (edu_copy(&hca->engine, read ? remote : local, read ? local : remote, *moved))
		return IB_WC_LOC_QP_OP_ERR;
	atomic_add(*moved, &hca->counters[HCA_BYTES]);
	return IB_WC_SUCCESS;
}

/* ---- atomic operations ---- */

#define ATOMIC_BYTES sizeof(u64)

static bool is_atomic(const struct hca_send *send)
{
	return send->wc.opcode == IB_WC_FETCH_ADD || send->wc.opcode == IB_WC_COMP_SWAP;
}

static u64 result_of(const struct hca_send *send, u64 old)
{
	if (send->wc.opcode == IB_WC_FETCH_ADD)
		return old + send->compare_add;
	return old == send->compare_add ? send->swap : old;
}

/* Brings the word at `remote` to `local`, and puts the result in its place. */
static int exchange(struct hca *hca, const struct hca_send *send, u64 local, u64 remote)
{
	int error = edu_copy(&hca->engine, remote, hca->word_address, ATOMIC_BYTES);
	u64 old = *hca->word;

	if (!error)
		error = edu_copy(&hca->engine, hca->word_address, local, ATOMIC_BYTES);
	if (error)
		return error;
	*hca->word = result_of(send, old);
	return edu_copy(&hca->engine, hca->word_address, remote, ATOMIC_BYTES);
}

static enum ib_wc_status move_atomic(struct hca *hca, struct hca_qp *qp,
				     const struct hca_send *send)
{
	struct hca_qp *responder = responder_of(hca, qp);
	u64 local, remote;
	u32 run;

	if (qp->state != IB_QPS_RTS)
		return IB_WC_WR_FLUSH_ERR;
	if (!responder)
		return IB_WC_RETRY_EXC_ERR;
	if (!IS_ALIGNED(send->sge->addr, ATOMIC_BYTES) ||
	    !hca_translate(hca, qp->ib.pd, send->sge->lkey, send->sge->addr, ATOMIC_BYTES,
			   IB_ACCESS_LOCAL_WRITE, &local, &run))
		return IB_WC_LOC_PROT_ERR;
	if (!(responder->attr.qp_access_flags & IB_ACCESS_REMOTE_ATOMIC) ||
	    !IS_ALIGNED(send->remote, ATOMIC_BYTES) ||
	    !hca_translate(hca, responder->ib.pd, send->rkey, send->remote, ATOMIC_BYTES,
			   IB_ACCESS_REMOTE_ATOMIC, &remote, &run))
		return refused(responder);
	if (!IS_ALIGNED(local | remote, ATOMIC_BYTES) || exchange(hca, send, local, remote))
		return IB_WC_LOC_QP_OP_ERR;
	return IB_WC_SUCCESS;
}

static enum ib_wc_status carry_out_atomic(struct hca *hca, struct hca_qp *qp,
					  const struct hca_send *send)
{
	enum ib_wc_status status;

	mutex_lock(&hca->engine.lock);
	status = move_atomic(hca, qp, send);
	if (status)
		qp_fails(qp);
	mutex_unlock(&hca->engine.lock);
	return status;
}

/* ---- the queue ---- */

static enum ib_wc_status carry_out(struct hca *hca, struct hca_qp *qp, const struct hca_send *send)
{
	struct hca_piece at = {.remote = send->remote, .left = send->length};
	enum ib_wc_status status = IB_WC_SUCCESS;
	u32 moved = 0;
	int i;

	for (i = 0; i < send->count && !status; i++) {
		at.sge = &send->sge[i];
		for (at.done = 0; at.done < at.sge->length && !status; at.done += moved) {
			mutex_lock(&hca->engine.lock);
			status = move_piece(hca, qp, send, &at, &moved);
			if (status)
				qp_fails(qp);
			mutex_unlock(&hca->engine.lock);
			at.remote += moved;
			at.left -= moved;
		}
	}
	return status;
}

static struct hca_send *next_send(struct hca_qp *qp)
{
	struct hca_send *send;

	spin_lock(&qp->lock);
	send = list_first_entry_or_null(&qp->sends, struct hca_send, link);
	if (send) {
		list_del(&send->link);
		qp->waiting--;
	}
	spin_unlock(&qp->lock);
	return send;
}

static void qp_works(struct work_struct *work)
{
	struct hca_qp *qp = container_of(work, struct hca_qp, work);
	struct hca *hca = to_hca(qp->ib.device);
	struct hca_send *send;

	while ((send = next_send(qp))) {
		send->wc.status = is_atomic(send) ? carry_out_atomic(hca, qp, send) :
						    carry_out(hca, qp, send);
		if (send->wc.status || !send->silent)
			hca_complete(qp->ib.send_cq, &send->wc);
		kfree(send);
	}
}

static bool opcode_of(const struct ib_send_wr *wr, enum ib_wc_opcode *opcode)
{
	switch (wr->opcode) {
	case IB_WR_RDMA_WRITE:
		*opcode = IB_WC_RDMA_WRITE;
		return true;
	case IB_WR_RDMA_READ:
		*opcode = IB_WC_RDMA_READ;
		return true;
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		*opcode = IB_WC_FETCH_ADD;
		return true;
	case IB_WR_ATOMIC_CMP_AND_SWP:
		*opcode = IB_WC_COMP_SWAP;
		return true;
	default:
		return false;
	}
}

static void take_remote(struct hca_send *send, const struct ib_send_wr *wr)
{
	if (is_atomic(send)) {
		send->remote = atomic_wr(wr)->remote_addr;
		send->rkey = atomic_wr(wr)->rkey;
		send->compare_add = atomic_wr(wr)->compare_add;
		send->swap = atomic_wr(wr)->swap;
	} else {
		send->remote = rdma_wr(wr)->remote_addr;
		send->rkey = rdma_wr(wr)->rkey;
	}
}

static struct hca_send *send_new(struct hca_qp *qp, const struct ib_send_wr *wr)
{
	enum ib_wc_opcode opcode;
	struct hca_send *send;
	u64 length = 0;
	int i;

	if (!opcode_of(wr, &opcode))
		return ERR_PTR(-EOPNOTSUPP);
	if (wr->num_sge > (int)qp->init.cap.max_send_sge || wr->send_flags & IB_SEND_INLINE)
		return ERR_PTR(-EINVAL);
	for (i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	if (length > 1u << 31)
		return ERR_PTR(-EINVAL);
	send = kzalloc(sizeof(*send), GFP_KERNEL);
	if (!send)
		return ERR_PTR(-ENOMEM);
	send->wc.wr_id = wr->wr_id;
	send->wc.qp = &qp->ib;
	send->wc.opcode = opcode;
	send->wc.byte_len = length;
	send->silent = qp->init.sq_sig_type == IB_SIGNAL_REQ_WR &&
		       !(wr->send_flags & IB_SEND_SIGNALED);
	take_remote(send, wr);
	send->length = length;
	send->count = wr->num_sge;
	memcpy(send->sge, wr->sg_list, wr->num_sge * sizeof(*wr->sg_list));
	if (is_atomic(send) && (send->count != 1 || length != ATOMIC_BYTES)) {
		kfree(send);
		return ERR_PTR(-EINVAL);
	}
	return send;
}

static int post_one(struct hca_qp *qp, const struct ib_send_wr *wr)
{
	struct hca_send *send;
	bool has_space;

	if (READ_ONCE(qp->state) != IB_QPS_RTS && READ_ONCE(qp->state) != IB_QPS_ERR)
		return -EINVAL;
	send = send_new(qp, wr);
	if (IS_ERR(send))
		return PTR_ERR(send);
	spin_lock(&qp->lock);
	has_space = qp->waiting < qp->init.cap.max_send_wr;
	if (has_space) {
		list_add_tail(&send->link, &qp->sends);
		qp->waiting++;
	}
	spin_unlock(&qp->lock);
	if (!has_space)
		kfree(send);
	return has_space ? 0 : -ENOMEM;
}

int hca_post_send(struct ib_qp *ib, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	struct hca_qp *qp = to_hca_qp(ib);
	int error = 0;

	for (; wr && !error; wr = wr->next) {
		error = post_one(qp, wr);
		if (error)
			*bad = wr;
	}
	queue_work(to_hca(ib->device)->work, &qp->work);
	return error;
}

/* ---- its life ---- */

int hca_create_qp(struct ib_qp *ib, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	struct hca *hca = to_hca(ib->device);
	struct hca_qp *qp = to_hca_qp(ib);
	int error;

	if (attr->qp_type != IB_QPT_RC || attr->srq || attr->create_flags)
		return -EOPNOTSUPP;
	if (attr->cap.max_send_wr > HCA_MAX_WORK || attr->cap.max_send_sge > HCA_MAX_SGE ||
	    attr->cap.max_inline_data)
		return -EINVAL;
	spin_lock_init(&qp->lock);
	INIT_LIST_HEAD(&qp->sends);
	INIT_WORK(&qp->work, qp_works);
	qp->init = *attr;
	qp->state = IB_QPS_RESET;
	mutex_lock(&hca->engine.lock);
	error = xa_alloc_cyclic(&hca->qps, &ib->qp_num, qp, XA_LIMIT(2, (1 << 24) - 1),
				&hca->last_qp, GFP_KERNEL);
	mutex_unlock(&hca->engine.lock);
	return error < 0 ? error : 0;
}

int hca_modify_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	struct hca *hca = to_hca(ib->device);
	struct hca_qp *qp = to_hca_qp(ib);
	enum ib_qp_state from, to;
	int error = 0;

	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	mutex_lock(&hca->engine.lock);
	from = mask & IB_QP_CUR_STATE ? attr->cur_qp_state : qp->state;
	to = mask & IB_QP_STATE ? attr->qp_state : from;
	if (!ib_modify_qp_is_ok(from, to, ib->qp_type, mask)) {
		error = -EINVAL;
	} else {
		if (mask & IB_QP_DEST_QPN)
			qp->attr.dest_qp_num = attr->dest_qp_num;
		if (mask & IB_QP_ACCESS_FLAGS)
			qp->attr.qp_access_flags = attr->qp_access_flags;
		if (mask & IB_QP_PATH_MTU)
			qp->attr.path_mtu = attr->path_mtu;
		WRITE_ONCE(qp->state, to);
	}
	mutex_unlock(&hca->engine.lock);
	return error;
}

int hca_query_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask, struct ib_qp_init_attr *init)
{
	struct hca *hca = to_hca(ib->device);
	struct hca_qp *qp = to_hca_qp(ib);

	mutex_lock(&hca->engine.lock);
	*attr = qp->attr;
	attr->qp_state = qp->state;
	attr->cur_qp_state = qp->state;
	attr->port_num = 1;
	attr->cap = qp->init.cap;
	*init = qp->init;
	mutex_unlock(&hca->engine.lock);
	return 0;
}

int hca_destroy_qp(struct ib_qp *ib, struct ib_udata *udata)
{
	struct hca *hca = to_hca(ib->device);
	struct hca_qp *qp = to_hca_qp(ib);
	struct hca_send *send;

	mutex_lock(&hca->engine.lock);
	xa_erase(&hca->qps, ib->qp_num);
	qp_fails(qp);
	mutex_unlock(&hca->engine.lock);
	cancel_work_sync(&qp->work);
	while ((send = next_send(qp)))
		kfree(send);
	return 0;
}
