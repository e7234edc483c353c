/* SPDX-License-Identifier: MIT */
/* One end of a connection, with its memory. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hook/cuda/abi.h"
#include "tests/softnic/ends.h"

#define OK(call) ck_assert_int_eq(call, CUDA_SUCCESS)
#define PATIENCE 60 /* seconds */

/* ---- memory --------------------------------------------------------------------------------- */

static void need_cuda(void)
{
	static CUcontext context;

	if (!context) {
		OK(cuInit(0));
		OK(cuCtxCreate_v2(&context, 0, 0));
	}
	OK(cuCtxSetCurrent(context));
}

static void allocate(struct end *end)
{
	CUdeviceptr p;

	end->fd = -1;
	if (end->memory == HOST) {
		end->buffer = (uintptr_t)aligned_alloc(4096, BUFFER);
		ck_assert(end->buffer);
		return;
	}
	need_cuda();
	OK(cuMemAlloc_v2(&p, BUFFER));
	end->buffer = p;
	if (end->memory == GPU_DMABUF)
		OK(cuMemGetHandleForAddressRange(&end->fd, p, BUFFER,
						 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}

static struct ibv_mr *register_memory(struct end *end, int access)
{
	if (end->memory == GPU_DMABUF)
		return ibv_reg_dmabuf_mr(end->pd, 0, BUFFER, end->buffer, end->fd, access);
	return ibv_reg_mr(end->pd, (void *)end->buffer, BUFFER, access);
}

static void copy_in(struct end *end, uint64_t offset, const void *bytes, uint32_t length)
{
	if (end->memory == HOST) {
		memcpy((void *)(end->buffer + offset), bytes, length);
		return;
	}
	need_cuda();
	OK(cuMemcpyHtoD_v2(end->buffer + offset, bytes, length));
}

static void copy_out(struct end *end, uint64_t offset, void *bytes, uint32_t length)
{
	if (end->memory == HOST) {
		memcpy(bytes, (void *)(end->buffer + offset), length);
		return;
	}
	need_cuda();
	OK(cuMemcpyDtoH_v2(bytes, end->buffer + offset, length));
}

static uint8_t *pattern(uint8_t seed, uint32_t length)
{
	uint8_t *bytes = malloc(length + 1);

	ck_assert_ptr_nonnull(bytes);
	for (uint32_t i = 0; i < length; i++)
		bytes[i] = seed + i * 7 + (i >> 8) * 3 + (i >> 16);
	return bytes;
}

void end_fill(struct end *end, uint8_t seed, uint64_t offset, uint32_t length)
{
	uint8_t *bytes = pattern(seed, length);

	copy_in(end, offset, bytes, length);
	free(bytes);
}

bool end_holds(struct end *end, uint8_t seed, uint64_t offset, uint32_t length)
{
	uint8_t *wanted = pattern(seed, length), *bytes = malloc(length + 1);
	bool same;

	ck_assert_ptr_nonnull(bytes);
	copy_out(end, offset, bytes, length);
	same = memcmp(wanted, bytes, length) == 0;
	free(wanted);
	free(bytes);
	return same;
}

uint64_t end_word(struct end *end, uint64_t offset)
{
	uint64_t word;

	copy_out(end, offset, &word, sizeof(word));
	return word;
}

void end_replace(struct end *end)
{
	CUdeviceptr p;

	need_cuda();
	OK(cuMemFree_v2(end->buffer));
	OK(cuMemAlloc_v2(&p, BUFFER));
	ck_assert_uint_eq(p, end->buffer);
}

/* ---- the connection ------------------------------------------------------------------------- */

static void open_device(struct end *end)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	ck_assert_ptr_nonnull(list);
	ck_assert_ptr_nonnull(list[0]);
	ck_assert_int_eq(strncmp(ibv_get_device_name(list[0]), "softnic_test", 12), 0);
	end->device = ibv_open_device(list[0]);
	ck_assert_ptr_nonnull(end->device);
	ibv_free_device_list(list);
}

static void create_queue_pair(struct end *end, const struct setup *setup)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.srq = end->srq,
		.cap = {32, 32, 4, 4, 256},
		.qp_type = setup->datagrams ? IBV_QPT_UD : IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = end->pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};

	if (!setup->extended)
		init.comp_mask = IBV_QP_INIT_ATTR_PD;
	end->qp = ibv_create_qp_ex(end->device, &init);
	ck_assert_ptr_nonnull(end->qp);
}

struct address end_begin(struct end *end, const struct setup *setup)
{
	const int everything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 32, .max_sge = 4}};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = everything,
		.qkey = QKEY,
	};
	int rights = setup->datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	struct ibv_port_attr port;

	*end = (struct end){.memory = setup->memory};
	open_device(end);
	ck_assert_int_eq(ibv_query_port(end->device, 1, &port), 0);
	end->pd = ibv_alloc_pd(end->device);
	end->channel = ibv_create_comp_channel(end->device);
	ck_assert_ptr_nonnull(end->channel);
	end->cq = ibv_create_cq(end->device, 128, end, end->channel, 0);
	ck_assert_ptr_nonnull(end->cq);
	if (setup->shared)
		end->srq = ibv_create_srq(end->pd, &shared);
	create_queue_pair(end, setup);
	allocate(end);
	end->mr = register_memory(end, setup->access ? setup->access : everything);
	ck_assert_ptr_nonnull(end->mr);
	ck_assert_int_eq(ibv_modify_qp(end->qp, &attr,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | rights),
			 0);
	return (struct address){end->qp->qp_num, end->mr->rkey, port.lid, end->buffer};
}

static void make_ready(struct end *end)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};

	ck_assert_int_eq(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	ck_assert_int_eq(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

void end_connect(struct end *end, const struct setup *setup, const struct address *other)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = other->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.dlid = other->lid, .port_num = 1},
		.timeout = 14,
		.retry_cnt = 3,
		.rnr_retry = setup->rnr_tries ? setup->rnr_tries : 7,
		.max_rd_atomic = 1,
	};

	if (setup->datagrams) {
		make_ready(end);
		return;
	}
	ck_assert_int_eq(ibv_modify_qp(end->qp, &attr,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
	attr.qp_state = IBV_QPS_RTS;
	ck_assert_int_eq(ibv_modify_qp(end->qp, &attr,
				       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					       IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
}

void end_post_receive(struct end *end, uint64_t wr_id, uint64_t offset, uint32_t length)
{
	struct ibv_sge sge = {end->buffer + offset, length, end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	if (end->srq)
		ck_assert_int_eq(ibv_post_srq_recv(end->srq, &wr, &bad), 0);
	else
		ck_assert_int_eq(ibv_post_recv(end->qp, &wr, &bad), 0);
}

struct ibv_wc end_wait(struct end *end)
{
	time_t limit = time(NULL) + PATIENCE;
	struct ibv_wc wc;
	int got;

	while (!(got = ibv_poll_cq(end->cq, 1, &wc)))
		ck_assert_int_lt(time(NULL), limit);
	ck_assert_int_eq(got, 1);
	return wc;
}

void end_finish(struct end *end)
{
	ck_assert_int_eq(ibv_destroy_qp(end->qp), 0);
	ck_assert_int_eq(ibv_dereg_mr(end->mr), 0);
	if (end->srq)
		ck_assert_int_eq(ibv_destroy_srq(end->srq), 0);
	ck_assert_int_eq(ibv_destroy_cq(end->cq), 0);
	ck_assert_int_eq(ibv_destroy_comp_channel(end->channel), 0);
	ck_assert_int_eq(ibv_dealloc_pd(end->pd), 0);
	ck_assert_int_eq(ibv_close_device(end->device), 0);
	if (end->fd >= 0)
		close(end->fd);
	if (end->memory == HOST)
		free((void *)end->buffer);
	else
		OK(cuMemFree_v2(end->buffer));
}
