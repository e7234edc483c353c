// SPDX-License-Identifier: MIT
/*
 * The user-space half of tests/guest/hca: a provider that rdma-core's libibverbs loads for the
 * device. Everything goes through the kernel, so it is small: each operation calls the library's
 * own command of the same name.
 */
#include <errno.h>
#include <stdlib.h>

#include "rdma_core.h"

static struct ibv_pd *edu_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));
	struct ib_uverbs_alloc_pd_resp resp;
	COMMAND(alloc_pd) cmd;

	if (!pd)
		return NULL;
	if (ibv_cmd_alloc_pd(context, pd, &cmd, sizeof(cmd), &resp, sizeof(resp)) == 0)
		return pd;
	free(pd);
	return NULL;
}

static int edu_dealloc_pd(struct ibv_pd *pd)
{
	int error = ibv_cmd_dealloc_pd(pd);

	if (!error)
		free(pd);
	return error;
}

static struct ibv_mr *edu_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				 int access)
{
	struct verbs_mr *mr = calloc(1, sizeof(*mr));
	struct ib_uverbs_reg_mr_resp resp;
	COMMAND(reg_mr) cmd;
	int error;

	if (!mr)
		return NULL;
	error = ibv_cmd_reg_mr(pd, addr, length, iova, access, mr, &cmd, sizeof(cmd), &resp,
			       sizeof(resp));
	if (error == 0)
		return &mr->mr;
	free(mr);
	errno = error;
	return NULL;
}

static struct ibv_mr *edu_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					uint64_t iova, int fd, int access)
{
	struct verbs_mr *mr = calloc(1, sizeof(*mr));
	int error;

	if (!mr)
		return NULL;
	error = ibv_cmd_reg_dmabuf_mr(pd, offset, length, iova, fd, access, mr, NULL);
	if (error == 0)
		return &mr->mr;
	free(mr);
	errno = error;
	return NULL;
}

static int edu_rereg_mr(struct verbs_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			size_t length, int access)
{
	struct ib_uverbs_rereg_mr_resp resp;
	COMMAND(rereg_mr) cmd;

	return ibv_cmd_rereg_mr(mr, (uint32_t)flags, addr, length, (uintptr_t)addr, access, pd,
				&cmd, sizeof(cmd), &resp, sizeof(resp));
}

static int edu_dereg_mr(struct verbs_mr *mr)
{
	int error = ibv_cmd_dereg_mr(mr);

	if (!error)
		free(mr);
	return error;
}

static struct ibv_cq *edu_create_cq(struct ibv_context *context, int cqe,
				    struct ibv_comp_channel *channel, int vector)
{
	struct verbs_cq *cq = calloc(1, sizeof(*cq));
	struct ib_uverbs_create_cq_resp resp;
	COMMAND(create_cq) cmd;

	if (!cq)
		return NULL;
	if (ibv_cmd_create_cq(context, cqe, channel, vector, (struct ibv_cq *)cq, &cmd, sizeof(cmd),
			      &resp, sizeof(resp)) == 0)
		return (struct ibv_cq *)cq;
	free(cq);
	return NULL;
}

static int edu_destroy_cq(struct ibv_cq *cq)
{
	int error = ibv_cmd_destroy_cq(cq);

	if (!error)
		free(cq);
	return error;
}

static struct ibv_qp *edu_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct verbs_qp *qp = calloc(1, sizeof(*qp));
	struct ib_uverbs_create_qp_resp resp;
	COMMAND(create_qp) cmd;

	if (!qp)
		return NULL;
	if (ibv_cmd_create_qp(pd, &qp->qp.qp_base, attr, &cmd, sizeof(cmd), &resp, sizeof(resp)) ==
	    0)
		return &qp->qp.qp_base;
	free(qp);
	return NULL;
}

static int edu_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	COMMAND(modify_qp) cmd = {0};

	return ibv_cmd_modify_qp(qp, attr, mask, &cmd, sizeof(cmd));
}

static int edu_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init)
{
	COMMAND(query_qp) cmd;

	return ibv_cmd_query_qp(qp, attr, mask, init, &cmd, sizeof(cmd));
}

static int edu_destroy_qp(struct ibv_qp *qp)
{
	int error = ibv_cmd_destroy_qp(qp);

	if (!error)
		free(qp);
	return error;
}

static int edu_query_device(struct ibv_context *context,
			    const struct ibv_query_device_ex_input *input,
			    struct ibv_device_attr_ex *attr, size_t size)
{
	return ibv_cmd_query_device_any(context, input, attr, size, NULL, NULL);
}

static int edu_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	COMMAND(query_port) cmd;

	return ibv_cmd_query_port(context, port, attr, &cmd, sizeof(cmd));
}

static void edu_free_context(struct ibv_context *context)
{
	struct verbs_context *verbs =
		(struct verbs_context *)((char *)context - offsetof(struct verbs_context, context));

	verbs_uninit_context(verbs);
	free(verbs);
}

static const struct verbs_context_ops edu_ops = {
	.alloc_pd = edu_alloc_pd,
	.create_cq = edu_create_cq,
	.create_qp = edu_create_qp,
	.dealloc_pd = edu_dealloc_pd,
	.dereg_mr = edu_dereg_mr,
	.destroy_cq = edu_destroy_cq,
	.destroy_qp = edu_destroy_qp,
	.free_context = edu_free_context,
	.modify_qp = edu_modify_qp,
	.poll_cq = ibv_cmd_poll_cq,
	.post_send = ibv_cmd_post_send,
	.query_device_ex = edu_query_device,
	.query_port = edu_query_port,
	.query_qp = edu_query_qp,
	.reg_dmabuf_mr = edu_reg_dmabuf_mr,
	.reg_mr = edu_reg_mr,
	.req_notify_cq = ibv_cmd_req_notify_cq,
	.rereg_mr = edu_rereg_mr,
};

static struct verbs_context *edu_alloc_context(struct ibv_device *device, int fd, void *data)
{
	struct verbs_context *verbs =
		_verbs_init_and_alloc_context(device, fd, sizeof(*verbs), NULL, 0);
	struct ib_uverbs_get_context_resp resp;
	COMMAND(get_context) cmd;

	(void)data;
	if (!verbs)
		return NULL;
	if (ibv_cmd_get_context(verbs, &cmd, sizeof(cmd), &resp, sizeof(resp)) == 0) {
		verbs_set_ops(verbs, &edu_ops);
		return verbs;
	}
	verbs_uninit_context(verbs);
	free(verbs);
	return NULL;
}

static struct verbs_device *edu_alloc_device(struct verbs_sysfs_dev *found)
{
	(void)found;
	return calloc(1, sizeof(struct verbs_device));
}

static void edu_uninit_device(struct verbs_device *device)
{
	free(device);
}

static const struct verbs_match_ent edu_devices[] = {
	{.vendor = 0x1234, .device = 0x11e8, .kind = VERBS_MATCH_PCI},
	{.kind = 0},
};

static const struct verbs_device_ops edu_driver = {
	.name = "edu",
	.match_min_abi_version = 1,
	.match_max_abi_version = 1,
	.match_table = edu_devices,
	.alloc_device = edu_alloc_device,
	.uninit_device = edu_uninit_device,
	.alloc_context = edu_alloc_context,
};

__attribute__((constructor)) static void edu_register(void)
{
	verbs_register_driver_34(&edu_driver);
}
