/* SPDX-License-Identifier: MIT */
/*
 * Two queue pairs of the guest's RDMA device that are connected with each other, and RDMA over
 * them, by ordinary verbs calls.
 */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <infiniband/verbs.h>
#include <stdint.h>

#define ALL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct connection {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp[2]; /* requests go from the first to the second */
};

/* The RDMA device of that name ("edu0"); fails the test if there is none. */
struct ibv_context *open_device(const char *name);
struct connection connect_pair(void);
void disconnect(struct connection *connection);
/* Resets a connection that an error has ended. */
void reconnect(struct connection *connection);

struct place {
	uint64_t address;
	uint32_t key;
};

/* One RDMA request, from post to completion. */
enum ibv_wc_status rdma(struct connection *connection, enum ibv_wr_opcode opcode,
			struct place local, struct place remote, uint32_t length);
enum ibv_wc_status rdma_atomic(struct connection *connection, enum ibv_wr_opcode opcode,
			       struct place local, struct place remote, uint64_t compare_add,
			       uint64_t swap);

/* A counter of the device's driver, in debugfs. */
unsigned long hca_count(const char *name);

#endif
