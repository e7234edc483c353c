/* SPDX-License-Identifier: MIT */
/*
 * The interface between rdma-core's libibverbs and its providers, as far as a small provider needs
 * it. rdma-core installs no header for it. The layout is that of rdma-core 40 and later
 * (IBVERBS_PRIVATE_34); the linker ensures that no other version's functions are called.
 */
#ifndef RDMA_CORE_H
#define RDMA_CORE_H

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct verbs_sysfs_dev;

enum { VERBS_MATCH_PCI = 1 };

struct verbs_match_ent {
	void *driver_data;
	uint64_t modalias_or_driver_id;
	uint16_t vendor, device;
	uint8_t kind; /* 0 ends a list */
};

struct verbs_device {
	struct ibv_device device;
	uint64_t private_[16]; /* 7 words in rdma-core 44 */
};

struct verbs_device_ops {
	const char *name;
	uint32_t match_min_abi_version, match_max_abi_version;
	const struct verbs_match_ent *match_table;
	const struct verbs_device_ops **static_providers;
	bool (*match_device)(struct verbs_sysfs_dev *found);
	struct verbs_context *(*alloc_context)(struct ibv_device *device, int fd, void *data);
	struct verbs_context *(*import_context)(struct ibv_device *device, int fd);
	struct verbs_device *(*alloc_device)(struct verbs_sysfs_dev *found);
	void (*uninit_device)(struct verbs_device *device);
};

/* It has a tail that only the library uses. */
struct verbs_mr {
	struct ibv_mr mr;
	uint64_t private_[8];
};

struct verbs_cq {
	struct ibv_cq_ex cq;
	uint64_t private_[8];
};

struct verbs_qp {
	struct ibv_qp_ex qp;
	uint64_t private_[8];
};

/* One pointer for each operation, in alphabetical order. Missing operations are NULL. */
struct verbs_context_ops {
	void *advise_mr, *alloc_dm, *alloc_mw, *alloc_null_mr, *alloc_parent_domain;
	struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
	void *alloc_td, *async_event, *attach_counters_point_flow, *attach_mcast, *bind_mw;
	void *close_xrcd, *cq_event, *create_ah, *create_counters;
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int cqe,
				    struct ibv_comp_channel *channel, int vector);
	void *create_cq_ex, *create_flow, *create_flow_action_esp;
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	void *create_qp_ex, *create_rwq_ind_table, *create_srq, *create_srq_ex, *create_wq;
	void *dealloc_mw;
	int (*dealloc_pd)(struct ibv_pd *pd);
	void *dealloc_td;
	int (*dereg_mr)(struct verbs_mr *mr);
	void *destroy_ah, *destroy_counters;
	int (*destroy_cq)(struct ibv_cq *cq);
	void *destroy_flow, *destroy_flow_action;
	int (*destroy_qp)(struct ibv_qp *qp);
	void *destroy_rwq_ind_table, *destroy_srq, *destroy_wq, *detach_mcast;
	void (*free_context)(struct ibv_context *context);
	void *free_dm, *get_srq_num, *import_dm, *import_mr, *import_pd, *modify_cq;
	void *modify_flow_action_esp;
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	void *modify_qp_rate_limit, *modify_srq, *modify_wq, *open_qp, *open_xrcd;
	int (*poll_cq)(struct ibv_cq *cq, int max, struct ibv_wc *wc);
	void *post_recv;
	int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
	void *post_srq_ops, *post_srq_recv;
	int (*query_device_ex)(struct ibv_context *context,
			       const struct ibv_query_device_ex_input *input,
			       struct ibv_device_attr_ex *attr, size_t size);
	void *query_ece;
	int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
	int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init);
	void *query_qp_data_in_order, *query_rt_values, *query_srq, *read_counters, *reg_dm_mr;
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t length,
					uint64_t iova, int fd, int access);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				 int access);
	int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
	int (*rereg_mr)(struct verbs_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			size_t length, int access);
	void *resize_cq, *set_ece, *unimport_dm, *unimport_mr, *unimport_pd;
	void *private_[16]; /* members of later versions */
};

void verbs_register_driver_34(const struct verbs_device_ops *ops);
/* `context`: the offset of the verbs_context in the allocation. */
void *_verbs_init_and_alloc_context(struct ibv_device *device, int fd, size_t size,
				    struct verbs_context *context, uint32_t driver_id);
void verbs_set_ops(struct verbs_context *context, const struct verbs_context_ops *ops);
void verbs_uninit_context(struct verbs_context *context);

/*
 * Commands of the kernel's verbs interface. A command is a header, which the library fills in, and
 * the structure of <rdma/ib_user_verbs.h>; COMMAND(name) has this form.
 */
#define COMMAND(name)                         \
	struct {                              \
		uint64_t header;              \
		struct ib_uverbs_##name core; \
	}

int ibv_cmd_get_context(struct verbs_context *context, void *cmd, size_t size,
			struct ib_uverbs_get_context_resp *resp, size_t resp_size);
int ibv_cmd_query_device_any(struct ibv_context *context,
			     const struct ibv_query_device_ex_input *input,
			     struct ibv_device_attr_ex *attr, size_t size, void *resp,
			     size_t *resp_size);
int ibv_cmd_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		       void *cmd, size_t size);
int ibv_cmd_alloc_pd(struct ibv_context *context, struct ibv_pd *pd, void *cmd, size_t size,
		     struct ib_uverbs_alloc_pd_resp *resp, size_t resp_size);
int ibv_cmd_dealloc_pd(struct ibv_pd *pd);
int ibv_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access,
		   struct verbs_mr *mr, void *cmd, size_t size, struct ib_uverbs_reg_mr_resp *resp,
		   size_t resp_size);
/* `driver` is a last argument that later versions read: 56 does and 44 does not. NULL: none. */
int ibv_cmd_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
			  int access, struct verbs_mr *mr, void *driver);
int ibv_cmd_rereg_mr(struct verbs_mr *mr, uint32_t flags, void *addr, size_t length, uint64_t iova,
		     int access, struct ibv_pd *pd, void *cmd, size_t size,
		     struct ib_uverbs_rereg_mr_resp *resp, size_t resp_size);
int ibv_cmd_dereg_mr(struct verbs_mr *mr);
int ibv_cmd_create_cq(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel,
		      int vector, struct ibv_cq *cq, void *cmd, size_t size,
		      struct ib_uverbs_create_cq_resp *resp, size_t resp_size);
int ibv_cmd_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc);
int ibv_cmd_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int ibv_cmd_destroy_cq(struct ibv_cq *cq);
int ibv_cmd_create_qp(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_qp_init_attr *attr,
		      void *cmd, size_t size, struct ib_uverbs_create_qp_resp *resp,
		      size_t resp_size);
int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, void *cmd,
		      size_t size);
int ibv_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		     struct ibv_qp_init_attr *init, void *cmd, size_t size);
int ibv_cmd_destroy_qp(struct ibv_qp *qp);
int ibv_cmd_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

#endif
