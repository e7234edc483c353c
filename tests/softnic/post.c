/* SPDX-License-Identifier: MIT */
/* What programs post to a queue pair. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "softnic.h"

static bool is_atomic(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool is_datagram(const struct ibv_send_wr *wr, uint64_t length)
{
	return (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM) && wr->wr.ud.ah &&
	       length <= MAX_DATAGRAM;
}

static int check(const struct queue_pair *qp, const struct ibv_send_wr *wr, uint64_t length)
{
	bool inlined = wr->send_flags & IBV_SEND_INLINE;

	if (qp->attr.qp_state != IBV_QPS_RTS && qp->attr.qp_state != IBV_QPS_ERR)
		return EINVAL;
	if (sends_datagrams(qp) && !is_datagram(wr, length))
		return EINVAL;
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		if (inlined && length > qp->init.cap.max_inline_data)
			return EINVAL;
		break;
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		if (inlined || (is_atomic(wr) && length != sizeof(uint64_t)))
			return EINVAL;
		break;
	default:
		return EOPNOTSUPP;
	}
	return length > 1u << 30 ? EINVAL : 0;
}

/* The bytes are the program's again when the post returns. */
static int copy_inline(struct send *send)
{
	uint8_t *to = send->inlined = malloc(send->length ? send->length : 1);

	if (!to)
		return ENOMEM;
	for (int i = 0; i < send->count; i++) {
		memcpy(to, (void *)send->sge[i].addr, send->sge[i].length);
		to += send->sge[i].length;
	}
	return 0;
}

static void flush(struct queue_pair *qp, const struct ibv_send_wr *wr)
{
	struct ibv_wc wc = {
		.wr_id = wr->wr_id, .status = IBV_WC_WR_FLUSH_ERR, .qp_num = qp->ex.qp_base.qp_num};

	completion_add(qp->init.send_cq, &wc, false);
}

/* Needs the lock. */
static int add_send(struct queue_pair *qp, const struct ibv_send_wr *wr)
{
	struct send *send = &qp->sends[(qp->first + qp->count) % qp->capacity];
	uint64_t length;
	int error;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->init.cap.max_send_sge)
		return EINVAL;
	length = pieces_length(wr->sg_list, wr->num_sge);
	error = check(qp, wr, length);
	if (error)
		return error;
	if (qp->attr.qp_state == IBV_QPS_ERR) {
		flush(qp, wr);
		return 0;
	}
	if (qp->count == qp->capacity)
		return ENOMEM;
	send->wr = *wr;
	send->count = wr->num_sge;
	send->length = length;
	/* The program may end the address handle before this is sent. */
	if (sends_datagrams(qp))
		send->lid = datagram_lid(wr->wr.ud.ah);
	if (wr->num_sge)
		memcpy(send->sge, wr->sg_list, wr->num_sge * sizeof(*wr->sg_list));
	error = wr->send_flags & IBV_SEND_INLINE ? copy_inline(send) : 0;
	if (!error)
		qp->count++;
	return error;
}

int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int error = 0;

	lock();
	for (; wr; wr = wr->next) {
		error = add_send((struct queue_pair *)ibv, wr);
		if (error)
			break;
	}
	unlock();
	transport_wake();
	if (error)
		*bad = wr;
	return error;
}

/* Needs the lock. */
static int add_receive(struct queue_pair *qp, const struct ibv_recv_wr *wr)
{
	struct ibv_wc wc = {.wr_id = wr->wr_id,
			    .status = IBV_WC_WR_FLUSH_ERR,
			    .opcode = IBV_WC_RECV,
			    .qp_num = qp->ex.qp_base.qp_num};

	if (qp->init.srq || qp->attr.qp_state == IBV_QPS_RESET)
		return EINVAL;
	if (qp->attr.qp_state != IBV_QPS_ERR)
		return receive_add(&qp->receives, wr);
	completion_add(qp->init.recv_cq, &wc, false);
	return 0;
}

int post_receive(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int error = 0;

	lock();
	for (; wr; wr = wr->next) {
		error = add_receive((struct queue_pair *)ibv, wr);
		if (error)
			break;
	}
	unlock();
	if (error)
		*bad = wr;
	return error;
}
