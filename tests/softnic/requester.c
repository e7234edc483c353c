/* SPDX-License-Identifier: MIT */
/*
 * The side of a queue pair that sends. A message goes in packets of at most CHUNK bytes. Each
 * packet is answered before the next one of its queue pair is sent, which makes the order of
 * messages, repeated attempts and errors plain. Runs in the service thread.
 */
#include <string.h>

#include "softnic.h"

static uint8_t buffer[CHUNK];

/* ---- what to send --------------------------------------------------------------------------- */

static uint8_t kind_of(const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return PACKET_WRITE;
	case IBV_WR_RDMA_READ:
		return PACKET_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return PACKET_COMPARE_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return PACKET_FETCH_ADD;
	default:
		return PACKET_SEND;
	}
}

static bool carries_data(const struct packet *packet)
{
	return packet->kind == PACKET_SEND || packet->kind == PACKET_WRITE;
}

static bool has_immediate(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* The next packet of the oldest send. */
static struct packet next_packet(struct queue_pair *qp)
{
	const struct send *send = &qp->sends[qp->first];
	uint64_t left = send->length - qp->offset;
	struct packet packet = {
		.kind = kind_of(&send->wr),
		.from_lid = device_of(qp->ex.qp_base.context)->lid,
		.to_lid = qp->attr.ah_attr.dlid,
		.from_qp = qp->ex.qp_base.qp_num,
		.to_qp = qp->attr.dest_qp_num,
		.sequence = ++qp->sequence,
		.offset = qp->offset,
		.total = send->length,
		.length = left < CHUNK ? left : CHUNK,
	};

	if (sends_datagrams(qp)) {
		packet.to_lid = send->lid;
		packet.to_qp = send->wr.wr.ud.remote_qpn;
		packet.qkey = send->wr.wr.ud.remote_qkey;
	}
	if (qp->offset == 0)
		packet.flags |= PACKET_FIRST;
	if (qp->offset + packet.length == send->length)
		packet.flags |= PACKET_LAST;
	if (has_immediate(&send->wr)) {
		packet.flags |= PACKET_IMMEDIATE;
		packet.immediate = send->wr.imm_data;
	}
	if (send->wr.send_flags & IBV_SEND_SOLICITED)
		packet.flags |= PACKET_SOLICITED;
	if (packet.kind == PACKET_COMPARE_SWAP || packet.kind == PACKET_FETCH_ADD) {
		packet.key = send->wr.wr.atomic.rkey;
		packet.addr = send->wr.wr.atomic.remote_addr;
		packet.compare = send->wr.wr.atomic.compare_add;
		packet.operand = send->wr.wr.atomic.swap;
	} else if (packet.kind != PACKET_SEND) {
		packet.key = send->wr.wr.rdma.rkey;
		packet.addr = send->wr.wr.rdma.remote_addr + qp->offset;
	}
	packet.payload = carries_data(&packet) ? packet.length : 0;
	return packet;
}

static struct pieces local_pieces(const struct queue_pair *qp)
{
	const struct send *send = &qp->sends[qp->first];

	return (struct pieces){qp->ex.qp_base.pd, send->sge, send->count, qp->ex.qp_base.qp_num};
}

/* The queue pair is taken: its oldest send stays as it is without the lock. */
static enum access_result gather(const struct queue_pair *qp, const struct packet *packet)
{
	const struct send *send = &qp->sends[qp->first];
	struct pieces pieces = local_pieces(qp);

	if (!packet->payload)
		return ACCESS_OK;
	if (!send->inlined)
		return pieces_read(&pieces, packet->offset, buffer, packet->payload);
	memcpy(buffer, send->inlined + packet->offset, packet->payload);
	return ACCESS_OK;
}

/* ---- attempts ------------------------------------------------------------------------------- */

/* In the card's unit: 4.096 us << timeout, where 0 means for ever. */
static void wait_after_silence(struct queue_pair *qp)
{
	uint64_t wait = qp->attr.timeout ? 4096ull << (qp->attr.timeout & 31) : 10000000;

	qp->waiting = false;
	if (qp->attr.timeout && qp->silences++ >= qp->attr.retry_cnt)
		queue_pair_send_done(qp, IBV_WC_RETRY_EXC_ERR);
	else
		qp->not_before = now_ns() + wait;
}

/* The receiver's code for the time that it asks for, in units of 10 us. */
static const uint16_t rnr_times[32] = {65535, 1,    2,	  3,	 4,	6,     8,     12,
				       16,    24,   32,	  48,	 64,	96,    128,   192,
				       256,   384,  512,  768,	 1024,	1536,  2048,  3072,
				       4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

static void wait_for_receiver(struct queue_pair *qp, uint32_t code)
{
	const unsigned for_ever = 7;

	qp->waiting = false;
	if (qp->attr.rnr_retry != for_ever && qp->not_ready++ >= qp->attr.rnr_retry)
		queue_pair_send_done(qp, IBV_WC_RNR_RETRY_EXC_ERR);
	else
		qp->not_before = now_ns() + rnr_times[code & 31] * 10000ull;
}

/* Needs the lock, and gives it up in between. */
static void send_next(struct queue_pair *qp)
{
	struct packet packet = next_packet(qp);
	enum access_result gathered;
	bool sent;

	qp->waiting = true;
	qp->not_before = 0;
	queue_pair_take(qp);
	unlock();
	gathered = gather(qp, &packet);
	sent = gathered == ACCESS_OK && transport_send(&packet, buffer);
	lock();
	if (gathered != ACCESS_OK)
		queue_pair_send_done(qp, IBV_WC_LOC_PROT_ERR);
	else if (!sent && sends_datagrams(qp))
		queue_pair_send_done(qp, IBV_WC_SUCCESS);
	else if (!sent)
		wait_after_silence(qp);
	queue_pair_let_go();
}

uint64_t requester_progress(uint64_t now)
{
	uint64_t next = UINT64_MAX;

	lock();
	for (uint32_t slot = 1; slot < queue_pair_slots(); slot++) {
		struct queue_pair *qp = queue_pair_at(slot);

		if (!qp || qp->waiting || !qp->count || qp->attr.qp_state != IBV_QPS_RTS)
			continue;
		if (qp->not_before <= now) {
			send_next(qp);
			qp = queue_pair_at(slot);
		}
		/* It may wait for its next attempt now. */
		if (qp && !qp->waiting && qp->count && qp->not_before < next)
			next = qp->not_before;
	}
	unlock();
	return next;
}

/* ---- replies -------------------------------------------------------------------------------- */

/* What a read or an atomic operation returns. The queue pair is taken. */
static enum access_result scatter(const struct queue_pair *qp, const struct packet *packet,
				  const uint8_t *payload)
{
	struct pieces pieces = local_pieces(qp);

	return packet->payload ? pieces_write(&pieces, qp->offset, payload, packet->payload)
			       : ACCESS_OK;
}

/* Needs the lock, and gives it up in between. */
static void take_data(struct queue_pair *qp, const struct packet *packet, const uint8_t *payload)
{
	enum access_result result;

	queue_pair_take(qp);
	unlock();
	result = scatter(qp, packet, payload);
	lock();
	qp->waiting = false;
	qp->not_ready = qp->silences = 0;
	qp->offset += packet->length;
	if (result != ACCESS_OK)
		queue_pair_send_done(qp, IBV_WC_LOC_PROT_ERR);
	else if (qp->offset >= qp->sends[qp->first].length)
		queue_pair_send_done(qp, IBV_WC_SUCCESS);
	queue_pair_let_go();
}

void requester_take_reply(const struct packet *packet, const uint8_t *payload)
{
	struct queue_pair *qp;

	lock();
	qp = queue_pair_find(packet->to_qp);
	/* The queue pair may have been ended meanwhile. */
	if (!qp || !qp->waiting || qp->sequence != packet->sequence) {
		unlock();
		return;
	}
	if (sends_datagrams(qp)) {
		/* Whether it arrived makes no difference. */
		queue_pair_send_done(qp, IBV_WC_SUCCESS);
	} else {
		switch ((enum reply)packet->reply) {
		case REPLY_OK:
			take_data(qp, packet, payload);
			break;
		case REPLY_NOT_READY:
			wait_for_receiver(qp, packet->length);
			break;
		case REPLY_SILENCE:
			wait_after_silence(qp);
			break;
		case REPLY_ACCESS:
			queue_pair_send_done(qp, IBV_WC_REM_ACCESS_ERR);
			break;
		case REPLY_INVALID:
			queue_pair_send_done(qp, IBV_WC_REM_INV_REQ_ERR);
			break;
		case REPLY_FAILED:
			queue_pair_send_done(qp, IBV_WC_REM_OP_ERR);
			break;
		}
	}
	unlock();
}

/* The queue pair that the oldest send is for. */
static uint32_t destination(const struct queue_pair *qp)
{
	return sends_datagrams(qp) ? qp->sends[qp->first].wr.wr.ud.remote_qpn
				   : qp->attr.dest_qp_num;
}

void requester_lost(uint32_t process)
{
	lock();
	for (uint32_t slot = 1; slot < queue_pair_slots(); slot++) {
		struct queue_pair *qp = queue_pair_at(slot);

		if (qp && qp->waiting && destination(qp) >> PROCESS_SHIFT == process)
			queue_pair_send_done(qp, sends_datagrams(qp) ? IBV_WC_SUCCESS
								     : IBV_WC_RETRY_EXC_ERR);
	}
	unlock();
}
