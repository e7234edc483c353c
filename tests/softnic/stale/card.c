/* SPDX-License-Identifier: MIT */
/* Two connected queue pairs of one device, which move bytes of GPU memory to host memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stale.h"

#define PATIENCE 60 /* seconds */

struct card {
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *pairs[2];
	struct ibv_mr *host;
	uint8_t *bytes;
	uint16_t lid;
};

static void must(bool good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void connect_pair(struct card *card, struct ibv_qp *pair, uint32_t to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = STALE_ACCESS,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = to,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.dlid = card->lid, .port_num = 1},
		.timeout = 14,
		.retry_cnt = 3,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};

	must(ibv_modify_qp(pair, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
		     0,
	     "ibv_modify_qp to INIT");
	attr.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(pair, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				   IBV_QP_MIN_RNR_TIMER) == 0,
	     "ibv_modify_qp to RTR");
	attr.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(pair, &attr,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
	     "ibv_modify_qp to RTS");
}

static void connect_both(struct card *card)
{
	struct ibv_qp_init_attr init = {.send_cq = card->cq,
					.recv_cq = card->cq,
					.cap = {16, 16, 1, 1, 0},
					.qp_type = IBV_QPT_RC};

	for (int i = 0; i < 2; i++) {
		card->pairs[i] = ibv_create_qp(card->pd, &init);
		must(card->pairs[i], "ibv_create_qp");
	}
	connect_pair(card, card->pairs[0], card->pairs[1]->qp_num);
	connect_pair(card, card->pairs[1], card->pairs[0]->qp_num);
}

static void disconnect(struct card *card)
{
	for (int i = 0; i < 2; i++)
		must(ibv_destroy_qp(card->pairs[i]) == 0, "ibv_destroy_qp");
}

struct card *card_open(size_t length)
{
	struct card *card = calloc(1, sizeof(*card));
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;

	must(card && list && list[0], "ibv_get_device_list");
	card->device = ibv_open_device(list[0]);
	must(card->device && ibv_query_port(card->device, 1, &port) == 0, "ibv_open_device");
	ibv_free_device_list(list);
	card->lid = port.lid;
	card->pd = ibv_alloc_pd(card->device);
	card->cq = ibv_create_cq(card->device, 64, NULL, NULL, 0);
	card->bytes = aligned_alloc(4096, length);
	must(card->pd && card->cq && card->bytes, "ibv_create_cq");
	card->host = ibv_reg_mr(card->pd, card->bytes, length, STALE_ACCESS);
	must(card->host, "ibv_reg_mr of host memory");
	connect_both(card);
	return card;
}

struct ibv_pd *card_pd(struct card *card)
{
	return card->pd;
}

const uint8_t *card_bytes(const struct card *card)
{
	return card->bytes;
}

static enum ibv_wc_status wait_for(struct card *card)
{
	time_t limit = time(NULL) + PATIENCE;
	struct ibv_wc wc;
	int got;

	while ((got = ibv_poll_cq(card->cq, 1, &wc)) == 0)
		must(time(NULL) < limit, "no completion");
	must(got == 1, "ibv_poll_cq");
	return wc.status;
}

/* An error ends the connection; the next operation gets a new one. */
enum ibv_wc_status card_move(struct card *card, const struct keys *keys, CUdeviceptr addr,
			     size_t length, bool remote)
{
	uint64_t bytes = (uintptr_t)card->bytes;
	struct ibv_sge sge = {remote ? bytes : addr, (uint32_t)length,
			      remote ? card->host->lkey : keys->lkey};
	struct ibv_send_wr *bad,
		wr = {
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = remote ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {remote ? addr : bytes, remote ? keys->rkey : card->host->rkey},
		};
	enum ibv_wc_status status;

	memset(card->bytes, 0, length);
	must(ibv_post_send(card->pairs[0], &wr, &bad) == 0, "ibv_post_send");
	status = wait_for(card);
	if (status != IBV_WC_SUCCESS) {
		disconnect(card);
		connect_both(card);
	}
	return status;
}

void card_close(struct card *card)
{
	disconnect(card);
	must(ibv_dereg_mr(card->host) == 0, "ibv_dereg_mr of host memory");
	must(ibv_destroy_cq(card->cq) == 0, "ibv_destroy_cq");
	must(ibv_dealloc_pd(card->pd) == 0, "ibv_dealloc_pd");
	must(ibv_close_device(card->device) == 0, "ibv_close_device");
	free(card->bytes);
	free(card);
}
