/* SPDX-License-Identifier: MIT */
/*
 * The side of a queue pair that receives, and that owns the memory of writes, reads and atomic
 * operations. Runs in the service thread, so that atomic operations are atomic to each other.
 */
#include <string.h>

#include "softnic.h"

static uint8_t buffer[CHUNK];

/*
 * The completion of the receive that a packet ends. It is added when the answer was sent: the
 * program may exit as soon as it sees it, and the other side must have its answer then.
 */
static struct {
	bool is_due, solicited;
	struct ibv_wc wc;
} completion;

/* A card drops packets that are for nobody, or not from the other end of the connection. */
static bool is_connected(const struct queue_pair *qp, const struct packet *packet)
{
	enum ibv_qp_state state = qp->attr.qp_state;

	if ((state != IBV_QPS_RTR && state != IBV_QPS_RTS) ||
	    device_of(qp->ex.qp_base.context)->lid != packet->to_lid)
		return false;
	if (sends_datagrams(qp))
		return packet->kind == PACKET_SEND && qp->attr.qkey == packet->qkey;
	return qp->attr.dest_qp_num == packet->from_qp && qp->attr.ah_attr.dlid == packet->from_lid;
}

/* ---- receives ------------------------------------------------------------------------------- */

/* The receive that this message uses; false: none is posted. */
static bool begin_receive(struct queue_pair *qp)
{
	struct receive_queue *queue = &qp->receives;

	if (qp->init.srq)
		queue = &((struct shared_queue *)qp->init.srq)->queue;
	lock();
	if (!qp->receiving && receive_take(queue, &qp->receive)) {
		qp->receiving = true;
		qp->received = 0;
	}
	unlock();
	return qp->receiving;
}

static void end_receive(struct queue_pair *qp, const struct packet *packet,
			enum ibv_wc_status status)
{
	completion.is_due = true;
	completion.solicited = packet->flags & PACKET_SOLICITED;
	completion.wc = (struct ibv_wc){
		.wr_id = qp->receive.wr_id,
		.status = status,
		.opcode = packet->kind == PACKET_SEND ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
		.byte_len = packet->total,
		.qp_num = qp->ex.qp_base.qp_num,
		.src_qp = packet->from_qp,
		.slid = packet->from_lid,
	};

	if (packet->flags & PACKET_IMMEDIATE) {
		completion.wc.imm_data = packet->immediate;
		completion.wc.wc_flags = IBV_WC_WITH_IMM;
	}
}

static enum reply take_send(struct queue_pair *qp, const struct packet *packet,
			    const uint8_t *payload)
{
	struct pieces pieces = {qp->ex.qp_base.pd, qp->receive.sge, 0, qp->ex.qp_base.qp_num};

	if ((packet->flags & PACKET_FIRST) && !begin_receive(qp))
		return REPLY_NOT_READY;
	if (!qp->receiving)
		return REPLY_INVALID;
	pieces.count = qp->receive.count;
	if (packet->total > pieces_length(pieces.sge, pieces.count)) {
		end_receive(qp, packet, IBV_WC_LOC_LEN_ERR);
		return REPLY_INVALID;
	}
	if (pieces_write(&pieces, packet->offset, payload, packet->payload) != ACCESS_OK) {
		end_receive(qp, packet, IBV_WC_LOC_PROT_ERR);
		return REPLY_FAILED;
	}
	if (packet->flags & PACKET_LAST)
		end_receive(qp, packet, IBV_WC_SUCCESS);
	return REPLY_OK;
}

/* One that finds no receive is lost. */
static enum reply take_datagram(struct queue_pair *qp, const struct packet *packet,
				const uint8_t *payload)
{
	if (begin_receive(qp)) {
		end_receive(qp, packet, datagram_deliver(qp, packet, payload));
		completion.wc.byte_len += ROUTE_HEADER;
	}
	return REPLY_OK;
}

/* ---- memory --------------------------------------------------------------------------------- */

static struct memory_use remote_use(const struct queue_pair *qp, const struct packet *packet,
				    int rights, const char *what)
{
	return (struct memory_use){
		.pd = qp->ex.qp_base.pd,
		.key = packet->key,
		.qp_num = qp->ex.qp_base.qp_num,
		.addr = packet->addr,
		.rights = rights,
		.what = what,
	};
}

static enum reply take_write(struct queue_pair *qp, const struct packet *packet,
			     const uint8_t *payload)
{
	struct memory_use use = remote_use(qp, packet, IBV_ACCESS_REMOTE_WRITE, "remote write");
	bool completes = (packet->flags & PACKET_IMMEDIATE) && (packet->flags & PACKET_LAST);

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE))
		return REPLY_INVALID;
	if (completes && !begin_receive(qp))
		return REPLY_NOT_READY;
	/* A key isn't looked at if there are no bytes. */
	if (packet->payload && memory_write(&use, payload, packet->payload) != ACCESS_OK)
		return REPLY_ACCESS;
	if (completes)
		end_receive(qp, packet, IBV_WC_SUCCESS);
	return REPLY_OK;
}

static enum reply take_read(struct queue_pair *qp, const struct packet *packet)
{
	struct memory_use use = remote_use(qp, packet, IBV_ACCESS_REMOTE_READ, "remote read");

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) || packet->length > CHUNK)
		return REPLY_INVALID;
	if (packet->length && memory_read(&use, buffer, packet->length) != ACCESS_OK)
		return REPLY_ACCESS;
	return REPLY_OK;
}

/* buffer gets the old value. */
static enum reply take_atomic(struct queue_pair *qp, const struct packet *packet)
{
	struct memory_use use = remote_use(qp, packet, IBV_ACCESS_REMOTE_ATOMIC, "remote atomic");
	uint64_t old, new;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) || packet->addr % sizeof(old))
		return REPLY_INVALID;
	if (memory_read(&use, &old, sizeof(old)) != ACCESS_OK)
		return REPLY_ACCESS;
	memcpy(buffer, &old, sizeof(old));
	if (packet->kind == PACKET_FETCH_ADD)
		new = old + packet->compare;
	else
		new = old == packet->compare ? packet->operand : old;
	if (new != old && memory_write(&use, &new, sizeof(new)) != ACCESS_OK)
		return REPLY_ACCESS;
	return REPLY_OK;
}

/* ---- requests ------------------------------------------------------------------------------- */

static enum reply perform(struct queue_pair *qp, const struct packet *packet,
			  const uint8_t *payload)
{
	switch (packet->kind) {
	case PACKET_SEND:
		if (sends_datagrams(qp))
			return take_datagram(qp, packet, payload);
		return take_send(qp, packet, payload);
	case PACKET_WRITE:
		return take_write(qp, packet, payload);
	case PACKET_READ:
		return take_read(qp, packet);
	case PACKET_COMPARE_SWAP:
	case PACKET_FETCH_ADD:
		return take_atomic(qp, packet);
	}
	return REPLY_INVALID;
}

static bool returns_data(const struct packet *packet)
{
	return packet->kind != PACKET_SEND && packet->kind != PACKET_WRITE;
}

/* After the answer: the program sees the completion, and a queue pair that failed ends. */
static void finish(struct queue_pair *qp, enum reply reply)
{
	lock();
	if (completion.is_due)
		queue_pair_receive_done(qp, &completion.wc, completion.solicited);
	completion.is_due = false;
	if (reply != REPLY_OK && reply != REPLY_NOT_READY)
		queue_pair_fail(qp);
	queue_pair_let_go();
	unlock();
}

void responder_take(struct connection *connection, const struct packet *packet,
		    const uint8_t *payload)
{
	struct packet answer = {
		.kind = PACKET_REPLY,
		.reply = REPLY_SILENCE,
		.from_lid = packet->to_lid,
		.to_lid = packet->from_lid,
		.from_qp = packet->to_qp,
		.to_qp = packet->from_qp,
		.sequence = packet->sequence,
		.length = packet->length,
	};
	struct queue_pair *qp;

	lock();
	qp = queue_pair_find(packet->to_qp);
	if (qp && !is_connected(qp, packet))
		qp = NULL;
	if (qp)
		queue_pair_take(qp);
	unlock();
	if (qp) {
		answer.reply = perform(qp, packet, payload);
		if (answer.reply == REPLY_NOT_READY)
			answer.length = qp->attr.min_rnr_timer;
		if (answer.reply == REPLY_OK && returns_data(packet))
			answer.payload = packet->length;
	}
	transport_answer(connection, &answer, buffer);
	if (qp)
		finish(qp, answer.reply);
}
