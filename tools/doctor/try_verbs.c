// SPDX-License-Identifier: MIT
/*
 * pindown doctor --try: one attempt to register GPU memory with a card and to move bytes in it,
 * over two queue pairs of the card that are connected to each other. libibverbs is opened at run
 * time. Where rdma-core's header was not there to build with, try_unbuilt.c replaces this file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/doctor/try.h"

/* verbs.h replaces these by inline functions and macros. */
#undef ibv_query_port
#undef ibv_reg_mr

#define FUNCTIONS(X)           \
	X(ibv_get_device_list) \
	X(ibv_get_device_name) \
	X(ibv_open_device)     \
	X(ibv_query_device)    \
	X(ibv_query_port)      \
	X(ibv_query_gid)       \
	X(ibv_alloc_pd)        \
	X(ibv_reg_mr)          \
	X(ibv_dereg_mr)        \
	X(ibv_destroy_cq)      \
	X(ibv_destroy_qp)      \
	X(ibv_dealloc_pd)      \
	X(ibv_close_device)    \
	X(ibv_create_cq)       \
	X(ibv_create_qp)       \
	X(ibv_modify_qp)

static struct {
#define X(name) __typeof__(&name) name;
	FUNCTIONS(X)
#undef X
	__typeof__(&ibv_reg_dmabuf_mr) ibv_reg_dmabuf_mr; /* NULL before rdma-core 34 */
} verbs;

bool try_verbs_begin(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);

	if (!library)
		return false;
#define X(name)                                        \
	*(void **)&verbs.name = dlsym(library, #name); \
	if (!verbs.name)                               \
		return false;
	FUNCTIONS(X)
#undef X
	*(void **)&verbs.ibv_reg_dmabuf_mr = dlsym(library, "ibv_reg_dmabuf_mr");
	return true;
}

int try_verbs_list(char (*names)[64], int capacity)
{
	struct ibv_device **list = verbs.ibv_get_device_list(NULL);
	int count = 0;

	for (; list && list[count] && count < capacity; count++)
		strncpy(names[count], verbs.ibv_get_device_name(list[count]), 63);
	return count;
}

/* ---- one attempt ---------------------------------------------------------------------------- */

struct card {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qps[2];
	struct ibv_mr *mr;
	int fd; /* the dma-buf, or -1 */
	struct ibv_port_attr port;
	uint8_t port_number;
	int gid_index; /* -1: addresses without a GID */
	union ibv_gid gid;
};

static bool open_card(struct card *card, const char *name, struct attempt *attempt)
{
	struct ibv_device **list = verbs.ibv_get_device_list(NULL);
	struct ibv_device *device = NULL;

	attempt->stage = STAGE_OPEN;
	for (int i = 0; list && list[i]; i++)
		if (strcmp(verbs.ibv_get_device_name(list[i]), name) == 0)
			device = list[i];
	errno = ENODEV;
	if (!device || !(card->context = verbs.ibv_open_device(device)))
		return attempt_failed(attempt, FROM_SYSTEM, errno);
	card->pd = verbs.ibv_alloc_pd(card->context);
	return card->pd || attempt_failed(attempt, FROM_SYSTEM, errno);
}

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static const int everything =
	IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

static bool register_memory(struct card *card, uint64_t addr, enum road road,
			    struct attempt *attempt)
{
	uint64_t begin;
	int result;

	if (road != ROAD_ADDRESS) {
		attempt->stage = STAGE_EXPORT;
		result = try_cuda_export(addr, TRY_BYTES, road == ROAD_DMABUF_PCIE, &card->fd);
		if (result)
			return attempt_failed(attempt, FROM_CUDA, result);
	}
	attempt->stage = STAGE_REGISTER;
	errno = EOPNOTSUPP;
	begin = now_ns();
	if (road == ROAD_ADDRESS)
		card->mr =
			verbs.ibv_reg_mr(card->pd, (void *)(uintptr_t)addr, TRY_BYTES, everything);
	else if (verbs.ibv_reg_dmabuf_mr)
		card->mr =
			verbs.ibv_reg_dmabuf_mr(card->pd, 0, TRY_BYTES, addr, card->fd, everything);
	if (!card->mr)
		return attempt_failed(attempt, FROM_SYSTEM, errno);
	attempt->pin_ns = now_ns() - begin;
	return true;
}

/* ---- the connection ------------------------------------------------------------------------- */

static bool find_port(struct card *card, struct attempt *attempt)
{
	struct ibv_device_attr device;

	if (verbs.ibv_query_device(card->context, &device) != 0)
		return attempt_failed(attempt, FROM_SYSTEM, errno);
	for (uint8_t port = 1; port <= device.phys_port_cnt; port++) {
		memset(&card->port, 0, sizeof(card->port));
		if (verbs.ibv_query_port(card->context, port, (void *)&card->port) != 0)
			return attempt_failed(attempt, FROM_SYSTEM, errno);
		card->port_number = port;
		if (card->port.state == IBV_PORT_ACTIVE)
			return true;
	}
	return attempt_failed(attempt, FROM_SYSTEM, ENETDOWN);
}

/* RoCE has no LIDs: the first GID in use leads back to the card, too. */
static bool find_gid(struct card *card, struct attempt *attempt)
{
	static const union ibv_gid none;

	card->gid_index = -1;
	if (card->port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return true;
	for (int i = 0; i < card->port.gid_tbl_len; i++) {
		if (verbs.ibv_query_gid(card->context, card->port_number, i, &card->gid) != 0 ||
		    memcmp(&card->gid, &none, sizeof(none)) == 0)
			continue;
		card->gid_index = i;
		return true;
	}
	return attempt_failed(attempt, FROM_SYSTEM, EADDRNOTAVAIL);
}

static bool make_ready(struct card *card, struct ibv_qp *qp, const struct ibv_qp *other,
		       struct attempt *attempt)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = card->port_number,
		.qp_access_flags = (unsigned)everything,
	};
	int error;

	error = verbs.ibv_modify_qp(
		qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (error)
		return attempt_failed(attempt, FROM_SYSTEM, error);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = card->port.active_mtu,
		.dest_qp_num = other->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.dlid = card->port.lid, .port_num = card->port_number},
	};
	if (card->gid_index >= 0) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.dgid = card->gid;
		attr.ah_attr.grh.sgid_index = (uint8_t)card->gid_index;
		attr.ah_attr.grh.hop_limit = 64;
	}
	error = verbs.ibv_modify_qp(qp, &attr,
				    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					    IBV_QP_MIN_RNR_TIMER);
	if (error)
		return attempt_failed(attempt, FROM_SYSTEM, error);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	error = verbs.ibv_modify_qp(qp, &attr,
				    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					    IBV_QP_MAX_QP_RD_ATOMIC);
	return !error || attempt_failed(attempt, FROM_SYSTEM, error);
}

static bool connect_card(struct card *card, struct attempt *attempt)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	attempt->stage = STAGE_CONNECT;
	if (!find_port(card, attempt) || !find_gid(card, attempt))
		return false;
	card->cq = verbs.ibv_create_cq(card->context, 16, NULL, NULL, 0);
	if (!card->cq)
		return attempt_failed(attempt, FROM_SYSTEM, errno);
	init.send_cq = init.recv_cq = card->cq;
	for (unsigned i = 0; i < 2; i++) {
		card->qps[i] = verbs.ibv_create_qp(card->pd, &init);
		if (!card->qps[i])
			return attempt_failed(attempt, FROM_SYSTEM, errno);
	}
	return make_ready(card, card->qps[0], card->qps[1], attempt) &&
	       make_ready(card, card->qps[1], card->qps[0], attempt);
}

/* ---- the transfer --------------------------------------------------------------------------- */

/* Waits without limit: the process that started this one has patience, and then ends it. */
static bool transfer(struct card *card, uint64_t from, uint64_t to, enum ibv_wr_opcode opcode,
		     struct attempt *attempt)
{
	struct ibv_sge sge = {from, MOVED_BYTES, card->mr->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {to, card->mr->rkey},
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int result;

	attempt->stage = STAGE_TRANSFER;
	result = ibv_post_send(card->qps[0], &wr, &bad);
	if (result)
		return attempt_failed(attempt, FROM_SYSTEM, result);
	do
		result = ibv_poll_cq(card->cq, 1, &wc);
	while (!result);
	if (result < 0)
		return attempt_failed(attempt, FROM_SYSTEM, errno);
	return wc.status == IBV_WC_SUCCESS || attempt_failed(attempt, FROM_CARD, (int)wc.status);
}

/*
 * Writes the first part of the memory to the second one, and reads that into the third, which must
 * then have the bytes of the first.
 */
static bool move_bytes(struct card *card, uint64_t addr, struct attempt *attempt)
{
	uint8_t *bytes = allocate(MOVED_BYTES), *found = allocate(MOVED_BYTES);
	const uint64_t second = addr + TRY_BYTES / 2, third = addr + TRY_BYTES - MOVED_BYTES;
	int result;

	attempt->stage = STAGE_COMPARE;
	/* Bytes that depend on their places. */
	for (size_t i = 0; i < MOVED_BYTES; i++)
		bytes[i] = (uint8_t)(17 + i * 7 + (i >> 8) * 3 + (i >> 16));
	result = try_cuda_write(addr, bytes, MOVED_BYTES);
	if (result)
		return attempt_failed(attempt, FROM_CUDA, result);
	if (!transfer(card, addr, second, IBV_WR_RDMA_WRITE, attempt) ||
	    !transfer(card, third, second, IBV_WR_RDMA_READ, attempt))
		return false;
	attempt->stage = STAGE_COMPARE;
	result = try_cuda_read(third, found, MOVED_BYTES);
	if (result)
		return attempt_failed(attempt, FROM_CUDA, result);
	if (memcmp(bytes, found, MOVED_BYTES) != 0)
		return attempt_failed(attempt, FROM_SYSTEM, EBADMSG);
	release(bytes);
	release(found);
	return true;
}

/* So that the next attempt has as much room. */
static void close_card(struct card *card)
{
	for (unsigned i = 0; i < 2; i++)
		if (card->qps[i])
			verbs.ibv_destroy_qp(card->qps[i]);
	if (card->cq)
		verbs.ibv_destroy_cq(card->cq);
	if (card->mr)
		verbs.ibv_dereg_mr(card->mr);
	if (card->fd >= 0)
		close(card->fd);
	if (card->pd)
		verbs.ibv_dealloc_pd(card->pd);
	if (card->context)
		verbs.ibv_close_device(card->context);
}

static bool make_attempt(struct card *card, uint64_t addr, enum road road, struct attempt *attempt)
{
	return register_memory(card, addr, road, attempt) && connect_card(card, attempt) &&
	       move_bytes(card, addr, attempt);
}

void try_road(int gpu, const char *card_name, enum road road, struct attempt *attempt)
{
	struct card card = {.fd = -1};
	uint64_t addr = 0;
	int result;

	if (open_card(&card, card_name, attempt)) {
		attempt->stage = STAGE_ALLOCATE;
		result = try_cuda_allocate(gpu, &addr, TRY_BYTES);
		if (result)
			attempt_failed(attempt, FROM_CUDA, result);
		else if (make_attempt(&card, addr, road, attempt))
			attempt->stage = STAGE_DONE;
	}
	attempt->ended = true;
	close_card(&card);
	if (addr)
		try_cuda_free(addr);
}
