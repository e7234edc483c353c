// SPDX-License-Identifier: MIT
/* Connects two queue pairs of one device with each other. */
#include <fcntl.h>

#include "connection.h"
#include "tests/guest/guest.h"

struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	check(list);
	for (struct ibv_device **device = list; *device; device++) {
		if (!strcmp(ibv_get_device_name(*device), name))
			context = ibv_open_device(*device);
	}
	ibv_free_device_list(list);
	if (!context)
		fail("no RDMA device %s: %s", name, strerror(errno));
	return context;
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	check_equal(ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE), 0);
}

static void make_ready(struct ibv_qp *qp, const struct ibv_qp *other)
{
	modify(qp, (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET}, 0);
	modify(qp,
	       (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = ALL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC},
	       IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	modify(qp,
	       (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_4096,
				    .dest_qp_num = other->qp_num,
				    .max_dest_rd_atomic = 1,
				    .min_rnr_timer = 12,
				    .ah_attr = {.dlid = 1, .port_num = 1}},
	       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	modify(qp,
	       (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1},
	       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		       IBV_QP_MAX_QP_RD_ATOMIC);
}

void reconnect(struct connection *connection)
{
	make_ready(connection->qp[0], connection->qp[1]);
	make_ready(connection->qp[1], connection->qp[0]);
}

struct connection connect_pair(void)
{
	struct connection connection = {.context = open_device("edu0")};
	struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 16, .max_send_sge = 4},
					.qp_type = IBV_QPT_RC};

	connection.pd = ibv_alloc_pd(connection.context);
	check(connection.pd);
	connection.channel = ibv_create_comp_channel(connection.context);
	check(connection.channel);
	connection.cq = ibv_create_cq(connection.context, 16, NULL, connection.channel, 0);
	check(connection.cq);
	attr.send_cq = connection.cq;
	attr.recv_cq = connection.cq;
	for (int i = 0; i < 2; i++) {
		connection.qp[i] = ibv_create_qp(connection.pd, &attr);
		check(connection.qp[i]);
	}
	reconnect(&connection);
	return connection;
}

void disconnect(struct connection *connection)
{
	check_equal(ibv_destroy_qp(connection->qp[0]), 0);
	check_equal(ibv_destroy_qp(connection->qp[1]), 0);
	check_equal(ibv_destroy_cq(connection->cq), 0);
	check_equal(ibv_destroy_comp_channel(connection->channel), 0);
	check_equal(ibv_dealloc_pd(connection->pd), 0);
	check_equal(ibv_close_device(connection->context), 0);
}

/* From post to completion. */
static enum ibv_wc_status complete(struct connection *connection, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	wr->wr_id = 17;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	check_equal(ibv_req_notify_cq(connection->cq, 0), 0);
	check_equal(ibv_post_send(connection->qp[0], wr, &bad), 0);
	check_equal(ibv_get_cq_event(connection->channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	check_equal(ibv_poll_cq(connection->cq, 1, &wc), 1);
	check_equal(wc.wr_id, 17);
	check_equal(wc.qp_num, connection->qp[0]->qp_num);
	return wc.status;
}

enum ibv_wc_status rdma(struct connection *connection, enum ibv_wr_opcode opcode,
			struct place local, struct place remote, uint32_t length)
{
	struct ibv_sge sge = {local.address, length, local.key};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.opcode = opcode,
		.wr.rdma = {remote.address, remote.key},
	};

	return complete(connection, &wr);
}

enum ibv_wc_status rdma_atomic(struct connection *connection, enum ibv_wr_opcode opcode,
			       struct place local, struct place remote, uint64_t compare_add,
			       uint64_t swap)
{
	struct ibv_sge sge = {local.address, sizeof(uint64_t), local.key};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.opcode = opcode,
		.wr.atomic = {remote.address, compare_add, swap, remote.key},
	};

	return complete(connection, &wr);
}

unsigned long hca_count(const char *name)
{
	char path[100], text[32] = "";
	int fd;

	snprintf(path, sizeof(path), "/sys/kernel/debug/edu_hca/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 1)
		fail("%s: %s", path, strerror(errno));
	close(fd);
	return strtoul(text, NULL, 10);
}
