/* SPDX-License-Identifier: MIT */
/* Queue pairs: their numbers, their states, and the end of their work. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "softnic.h"

/* All protected by the lock. Slot 0 is not used. */
static struct queue_pair *slots[MAX_QPS];
static uint32_t last_slot, slots_used = 1;
static struct queue_pair *taken; /* by the service thread */

/* ---- numbers -------------------------------------------------------------------------------- */

struct queue_pair *queue_pair_at(uint32_t slot)
{
	return slots[slot];
}

uint32_t queue_pair_slots(void)
{
	return slots_used;
}

struct queue_pair *queue_pair_find(uint32_t number)
{
	return number >> PROCESS_SHIFT == transport_process() ? slots[number % MAX_QPS] : NULL;
}

void queue_pair_forget_all(void)
{
	memset(slots, 0, sizeof(slots));
	slots_used = 1;
	taken = NULL;
}

/* A number comes back as late as possible. Needs the lock. */
static bool take_slot(struct queue_pair *qp)
{
	for (int i = 1; i < MAX_QPS; i++) {
		uint32_t slot = 1 + (last_slot + i - 1) % (MAX_QPS - 1);

		if (slots[slot])
			continue;
		last_slot = slot;
		slots[slot] = qp;
		if (slot >= slots_used)
			slots_used = slot + 1;
		qp->ex.qp_base.qp_num = transport_process() << PROCESS_SHIFT | slot;
		qp->ex.qp_base.handle = qp->ex.qp_base.qp_num;
		return true;
	}
	return false;
}

/* ---- the service thread's use --------------------------------------------------------------- */

void queue_pair_take(struct queue_pair *qp)
{
	taken = qp;
}

void queue_pair_let_go(void)
{
	taken = NULL;
	pthread_cond_broadcast(&softnic_idle);
}

/* Needs the lock, which it may give up in between. */
static void wait_until_idle(struct queue_pair *qp)
{
	while (taken == qp)
		pthread_cond_wait(&softnic_idle, &softnic_lock);
}

/* ---- the end of work ------------------------------------------------------------------------ */

static enum ibv_wc_opcode completed_opcode(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	default:
		return IBV_WC_SEND;
	}
}

/* Takes the oldest send off. */
static void complete_send(struct queue_pair *qp, enum ibv_wc_status status)
{
	struct send *send = &qp->sends[qp->first];
	struct ibv_wc wc = {
		.wr_id = send->wr.wr_id,
		.status = status,
		.opcode = completed_opcode(send->wr.opcode),
		.byte_len = send->length,
		.qp_num = qp->ex.qp_base.qp_num,
	};

	if (qp->init.sq_sig_all || (send->wr.send_flags & IBV_SEND_SIGNALED) ||
	    status != IBV_WC_SUCCESS)
		completion_add(qp->init.send_cq, &wc, false);
	free(send->inlined);
	send->inlined = NULL;
	qp->first = (qp->first + 1) % qp->capacity;
	qp->count--;
	qp->offset = 0;
	qp->waiting = false;
	qp->not_ready = qp->silences = 0;
	qp->not_before = 0;
}

void queue_pair_receive_done(struct queue_pair *qp, const struct ibv_wc *wc, bool solicited)
{
	qp->receiving = false;
	completion_add(qp->init.recv_cq, wc, solicited);
}

static void flush_receive(struct queue_pair *qp, uint64_t wr_id)
{
	struct ibv_wc wc = {
		.wr_id = wr_id,
		.status = IBV_WC_WR_FLUSH_ERR,
		.opcode = IBV_WC_RECV,
		.qp_num = qp->ex.qp_base.qp_num,
	};

	queue_pair_receive_done(qp, &wc, false);
}

void queue_pair_fail(struct queue_pair *qp)
{
	struct receive receive;

	qp->ex.qp_base.state = qp->attr.qp_state = IBV_QPS_ERR;
	while (qp->count)
		complete_send(qp, IBV_WC_WR_FLUSH_ERR);
	if (qp->receiving)
		flush_receive(qp, qp->receive.wr_id);
	while (receive_take(&qp->receives, &receive))
		flush_receive(qp, receive.wr_id);
}

void queue_pair_send_done(struct queue_pair *qp, enum ibv_wc_status status)
{
	complete_send(qp, status);
	if (status == IBV_WC_SUCCESS)
		return;
	checks_report("qp 0x%x to qp 0x%x: %s", qp->ex.qp_base.qp_num, qp->attr.dest_qp_num,
		      ibv_wc_status_str(status));
	queue_pair_fail(qp);
}

/* Work ends without completions, and those that are there are forgotten. */
static void drop_work(struct queue_pair *qp)
{
	for (uint32_t i = 0; i < qp->capacity; i++) {
		free(qp->sends[i].inlined);
		qp->sends[i].inlined = NULL;
	}
	qp->first = qp->count = 0;
	qp->receives.first = qp->receives.count = 0;
	qp->offset = qp->not_before = 0;
	qp->waiting = qp->receiving = false;
	qp->not_ready = qp->silences = 0;
	completion_forget(qp->init.send_cq, qp->ex.qp_base.qp_num);
	completion_forget(qp->init.recv_cq, qp->ex.qp_base.qp_num);
}

/* ---- creation ------------------------------------------------------------------------------- */

static int check_init(const struct ibv_qp_init_attr *init)
{
	if (init->qp_type != IBV_QPT_RC && init->qp_type != IBV_QPT_UD)
		return EOPNOTSUPP;
	if (!init->send_cq || !init->recv_cq || init->cap.max_send_wr > MAX_WR ||
	    init->cap.max_send_sge > MAX_SGE || init->cap.max_inline_data > MAX_INLINE)
		return EINVAL;
	return 0;
}

static void use_queues(struct queue_pair *qp, int change)
{
	((struct queue *)qp->init.send_cq)->users += change;
	((struct queue *)qp->init.recv_cq)->users += change;
	if (qp->init.srq)
		((struct shared_queue *)qp->init.srq)->users += change;
}

static void free_queue_pair(struct queue_pair *qp)
{
	receive_queue_end(&qp->receives);
	extended_end(qp);
	free(qp->sends);
	free(qp);
}

static int fill(struct queue_pair *qp, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ibv_qp *ibv = &qp->ex.qp_base;
	uint32_t receives = init->srq ? 0 : init->cap.max_recv_wr;
	int error = receive_queue_begin(&qp->receives, receives, init->cap.max_recv_sge);

	if (error)
		return error;
	qp->capacity = init->cap.max_send_wr ? init->cap.max_send_wr : 1;
	qp->sends = calloc(qp->capacity, sizeof(*qp->sends));
	if (!qp->sends)
		return ENOMEM;
	qp->init = *init;
	qp->attr.cap = init->cap;
	ibv->context = pd->context;
	ibv->qp_context = init->qp_context;
	ibv->pd = pd;
	ibv->send_cq = init->send_cq;
	ibv->recv_cq = init->recv_cq;
	ibv->srq = init->srq;
	ibv->state = IBV_QPS_RESET;
	ibv->qp_type = init->qp_type;
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
	return 0;
}

struct ibv_qp *queue_pair_create(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	int error = check_init(init);
	struct queue_pair *qp = error ? NULL : calloc(1, sizeof(*qp));

	if (!qp) {
		errno = error ? error : ENOMEM;
		return NULL;
	}
	error = fill(qp, pd, init);
	if (!error) {
		lock();
		if (take_slot(qp))
			use_queues(qp, 1);
		else
			error = ENOMEM;
		unlock();
	}
	if (error) {
		free_queue_pair(qp);
		errno = error;
		return NULL;
	}
	domain_use(pd);
	return &qp->ex.qp_base;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	return queue_pair_create(pd, init);
}

EXPORT int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct queue_pair *qp = (struct queue_pair *)ibv;

	lock();
	wait_until_idle(qp);
	drop_work(qp);
	slots[ibv->qp_num % MAX_QPS] = NULL;
	use_queues(qp, -1);
	unlock();
	domain_unuse(ibv->pd);
	free_queue_pair(qp);
	return 0;
}

/* ---- states --------------------------------------------------------------------------------- */

enum {
	NEEDED_INIT = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	NEEDED_RTR = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	NEEDED_RTS = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		     IBV_QP_MAX_QP_RD_ATOMIC,
	DATAGRAM_INIT = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
	DATAGRAM_RTR = 0,
	DATAGRAM_RTS = IBV_QP_SQ_PSN
};

static int check_transition(bool datagrams, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	int needed;

	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return 0;
	if (from == to && (from == IBV_QPS_INIT || from == IBV_QPS_RTS))
		return 0;
	if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
		needed = datagrams ? DATAGRAM_INIT : NEEDED_INIT;
	else if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
		needed = datagrams ? DATAGRAM_RTR : NEEDED_RTR;
	else if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
		needed = datagrams ? DATAGRAM_RTS : NEEDED_RTS;
	else
		return to == IBV_QPS_SQD || to == IBV_QPS_SQE ? EOPNOTSUPP : EINVAL;
	return (mask & needed) == needed ? 0 : EINVAL;
}

/* The connection is known by the queue pair's number and the LID; IB has it in the GID, too. */
uint16_t lid_of(const struct ibv_ah_attr *path)
{
	return !path->dlid && path->is_global ? path->grh.dgid.raw[15] + 1 : path->dlid;
}

static void set_path(struct ibv_qp_attr *to, const struct ibv_ah_attr *from)
{
	to->ah_attr = *from;
	to->ah_attr.dlid = lid_of(from);
}

static void set_attributes(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
#define SET(flag, member)  \
	if (mask & (flag)) \
	to->member = from->member
	SET(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	SET(IBV_QP_PKEY_INDEX, pkey_index);
	SET(IBV_QP_PORT, port_num);
	SET(IBV_QP_QKEY, qkey);
	SET(IBV_QP_PATH_MTU, path_mtu);
	SET(IBV_QP_TIMEOUT, timeout);
	SET(IBV_QP_RETRY_CNT, retry_cnt);
	SET(IBV_QP_RNR_RETRY, rnr_retry);
	SET(IBV_QP_RQ_PSN, rq_psn);
	SET(IBV_QP_SQ_PSN, sq_psn);
	SET(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	SET(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	SET(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	SET(IBV_QP_DEST_QPN, dest_qp_num);
#undef SET
	if (mask & IBV_QP_AV)
		set_path(to, &from->ah_attr);
}

static int modify(struct queue_pair *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from = qp->attr.qp_state;
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
	int error;

	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from)
		return EINVAL;
	error = check_transition(sends_datagrams(qp), from, to, mask);
	if (error)
		return error;
	wait_until_idle(qp);
	if (to == IBV_QPS_ERR) {
		queue_pair_fail(qp);
		return 0;
	}
	if (to == IBV_QPS_RESET)
		drop_work(qp);
	set_attributes(&qp->attr, attr, mask);
	qp->ex.qp_base.state = qp->attr.qp_state = to;
	return 0;
}

EXPORT int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	int error;

	if ((mask & IBV_QP_PORT) && (attr->port_num < 1 || attr->port_num > PORTS))
		return EINVAL;
	if ((mask & IBV_QP_PKEY_INDEX) && attr->pkey_index)
		return EINVAL;
	lock();
	error = modify((struct queue_pair *)ibv, attr, mask);
	unlock();
	transport_wake();
	return error;
}

EXPORT int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init)
{
	struct queue_pair *qp = (struct queue_pair *)ibv;

	(void)mask;
	lock();
	*attr = qp->attr;
	attr->cur_qp_state = attr->qp_state;
	*init = qp->init;
	unlock();
	return 0;
}
