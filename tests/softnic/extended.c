/* SPDX-License-Identifier: MIT */
/* Sends as ibv_wr_start() ... ibv_wr_complete() build them: gathered here, then posted at once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "softnic.h"

struct built {
	struct ibv_send_wr wr;
	struct ibv_sge sge[MAX_SGE];
	uint8_t inlined[MAX_INLINE];
};

struct extended {
	struct built *built; /* one for each send that the queue pair may have */
	uint32_t count;
	int error;
	pthread_mutex_t mutex; /* held from start to complete, as rdma-core says */
};

static struct queue_pair *whole(struct ibv_qp_ex *ex)
{
	return (struct queue_pair *)ex;
}

/* The one that is being built. */
static struct built *current(struct ibv_qp_ex *ex)
{
	struct extended *extended = whole(ex)->building;

	return &extended->built[extended->count ? extended->count - 1 : 0];
}

static struct built *add(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct queue_pair *qp = whole(ex);
	struct extended *extended = qp->building;
	struct built *built;

	if (extended->count == qp->capacity)
		extended->error = ENOMEM;
	else
		extended->count++;
	built = current(ex);
	built->wr = (struct ibv_send_wr){
		.wr_id = ex->wr_id,
		.opcode = opcode,
		.send_flags = ex->wr_flags & ~IBV_SEND_INLINE,
	};
	return built;
}

static void add_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t key, uint64_t addr)
{
	struct built *built = add(ex, opcode);

	built->wr.wr.rdma.rkey = key;
	built->wr.wr.rdma.remote_addr = addr;
}

/* ---- operations ----------------------------------------------------------------------------- */

static void send_plain(struct ibv_qp_ex *ex)
{
	add(ex, IBV_WR_SEND);
}

static void send_imm(struct ibv_qp_ex *ex, __be32 immediate)
{
	add(ex, IBV_WR_SEND_WITH_IMM)->wr.imm_data = immediate;
}

static void rdma_write(struct ibv_qp_ex *ex, uint32_t key, uint64_t addr)
{
	add_rdma(ex, IBV_WR_RDMA_WRITE, key, addr);
}

static void rdma_write_imm(struct ibv_qp_ex *ex, uint32_t key, uint64_t addr, __be32 immediate)
{
	add_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, key, addr);
	current(ex)->wr.imm_data = immediate;
}

static void rdma_read(struct ibv_qp_ex *ex, uint32_t key, uint64_t addr)
{
	add_rdma(ex, IBV_WR_RDMA_READ, key, addr);
}

static void add_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t key, uint64_t addr,
		       uint64_t compare_add, uint64_t swap)
{
	struct built *built = add(ex, opcode);

	built->wr.wr.atomic.rkey = key;
	built->wr.wr.atomic.remote_addr = addr;
	built->wr.wr.atomic.compare_add = compare_add;
	built->wr.wr.atomic.swap = swap;
}

static void compare_swap(struct ibv_qp_ex *ex, uint32_t key, uint64_t addr, uint64_t compare,
			 uint64_t swap)
{
	add_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, key, addr, compare, swap);
}

static void fetch_add(struct ibv_qp_ex *ex, uint32_t key, uint64_t addr, uint64_t value)
{
	add_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, key, addr, value, 0);
}

/* ---- their data ----------------------------------------------------------------------------- */

static void set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list)
{
	struct built *built = current(ex);

	if (count > MAX_SGE) {
		whole(ex)->building->error = EINVAL;
		return;
	}
	memcpy(built->sge, list, count * sizeof(*list));
	built->wr.sg_list = built->sge;
	built->wr.num_sge = count;
}

static void set_sge(struct ibv_qp_ex *ex, uint32_t key, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {addr, length, key};

	set_sge_list(ex, 1, &sge);
}

/* Bytes are the program's again at once, so that they are copied here, and again by the post. */
static void set_inline_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_data_buf *list)
{
	struct built *built = current(ex);
	size_t length = 0;

	for (size_t i = 0; i < count; i++) {
		if (list[i].length > MAX_INLINE - length) {
			whole(ex)->building->error = EINVAL;
			return;
		}
		memcpy(built->inlined + length, list[i].addr, list[i].length);
		length += list[i].length;
	}
	set_sge(ex, 0, (uintptr_t)built->inlined, length);
	built->wr.send_flags |= IBV_SEND_INLINE;
}

static void set_inline(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buffer = {addr, length};

	set_inline_list(ex, 1, &buffer);
}

/* ---- begin and end -------------------------------------------------------------------------- */

static void start(struct ibv_qp_ex *ex)
{
	struct extended *extended = whole(ex)->building;

	pthread_mutex_lock(&extended->mutex);
	extended->count = 0;
	extended->error = 0;
}

static void abort_all(struct ibv_qp_ex *ex)
{
	pthread_mutex_unlock(&whole(ex)->building->mutex);
}

/* All are posted, or none. */
static int complete(struct ibv_qp_ex *ex)
{
	struct queue_pair *qp = whole(ex);
	struct extended *extended = qp->building;
	struct ibv_send_wr *bad;
	int error = extended->error;
	uint32_t room;

	lock();
	room = qp->capacity - qp->count;
	unlock();
	if (!error && extended->count > room)
		error = ENOMEM;
	for (uint32_t i = 1; i < extended->count; i++)
		extended->built[i - 1].wr.next = &extended->built[i].wr;
	if (!error && extended->count)
		error = post_send(&ex->qp_base, &extended->built[0].wr, &bad);
	pthread_mutex_unlock(&extended->mutex);
	return error;
}

static void set_operations(struct ibv_qp_ex *ex)
{
	ex->wr_atomic_cmp_swp = compare_swap;
	ex->wr_atomic_fetch_add = fetch_add;
	ex->wr_rdma_read = rdma_read;
	ex->wr_rdma_write = rdma_write;
	ex->wr_rdma_write_imm = rdma_write_imm;
	ex->wr_send = send_plain;
	ex->wr_send_imm = send_imm;
	ex->wr_set_inline_data = set_inline;
	ex->wr_set_inline_data_list = set_inline_list;
	ex->wr_set_sge = set_sge;
	ex->wr_set_sge_list = set_sge_list;
	ex->wr_start = start;
	ex->wr_complete = complete;
	ex->wr_abort = abort_all;
}

struct ibv_qp *extended_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *init)
{
	const uint64_t operations = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				    IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct queue_pair *qp;
	struct ibv_qp *ibv;

	(void)context;
	if (!(init->comp_mask & IBV_QP_INIT_ATTR_PD) || (init->comp_mask & ~known) ||
	    ((init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
	     ((init->send_ops_flags & ~operations) || init->qp_type != IBV_QPT_RC))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	/* It begins with the members of the older structure. */
	ibv = queue_pair_create(init->pd, (struct ibv_qp_init_attr *)init);
	if (!ibv || !(init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		return ibv;
	qp = (struct queue_pair *)ibv;
	qp->building = calloc(1, sizeof(*qp->building));
	if (qp->building)
		qp->building->built = calloc(qp->capacity, sizeof(*qp->building->built));
	if (!qp->building || !qp->building->built) {
		ibv_destroy_qp(ibv);
		errno = ENOMEM;
		return NULL;
	}
	pthread_mutex_init(&qp->building->mutex, NULL);
	set_operations(&qp->ex);
	return ibv;
}

void extended_end(struct queue_pair *qp)
{
	if (qp->building)
		free(qp->building->built);
	free(qp->building);
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibv)
{
	struct queue_pair *qp = (struct queue_pair *)ibv;

	return qp->building ? &qp->ex : NULL;
}
