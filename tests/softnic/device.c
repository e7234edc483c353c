/* SPDX-License-Identifier: MIT */
/* The devices, and what a program may ask of them. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "softnic.h"

enum { MAX_DEVICES = 8 };

pthread_mutex_t softnic_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t softnic_idle = PTHREAD_COND_INITIALIZER;

static struct device devices[MAX_DEVICES];

static void describe(struct device *device, int index)
{
	struct ibv_device *ibv = &device->ibv;

	ibv->node_type = IBV_NODE_CA;
	ibv->transport_type = IBV_TRANSPORT_IB;
	snprintf(ibv->name, sizeof(ibv->name), "softnic_test%d", index);
	snprintf(ibv->dev_name, sizeof(ibv->dev_name), "softnic_uverbs%d", index);
	snprintf(ibv->dev_path, sizeof(ibv->dev_path), "/sys/class/infiniband_verbs/%s",
		 ibv->dev_name);
	snprintf(ibv->ibdev_path, sizeof(ibv->ibdev_path), "/sys/class/infiniband/%s", ibv->name);
	device->lid = index + 1;
	/* A locally administered number. */
	device->guid = 0x0250f7fffe000000ull + index;
}

EXPORT struct ibv_device **ibv_get_device_list(int *count)
{
	unsigned there = softnic_options()->devices;
	struct ibv_device **list = calloc(there + 1, sizeof(*list));

	lock();
	for (unsigned i = 0; list && i < there; i++) {
		if (!devices[i].lid)
			describe(&devices[i], i);
		list[i] = &devices[i].ibv;
	}
	unlock();
	if (count)
		*count = list ? there : 0;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return htobe64(((struct device *)device)->guid);
}

EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	return (struct device *)device - devices;
}

/* ---- questions ------------------------------------------------------------------------------ */

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	const struct options *options = softnic_options();
	struct device *device = device_of(context);

	*attr = (struct ibv_device_attr){
		.fw_ver = "softnic-test",
		.node_guid = htobe64(device->guid),
		.sys_image_guid = htobe64(device->guid),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = ~0xfffull,
		.vendor_id = 0x50f7,
		.vendor_part_id = 1,
		.max_qp = MAX_QPS - 1,
		.max_qp_wr = MAX_WR,
		.max_sge = MAX_SGE,
		.max_sge_rd = MAX_SGE,
		.max_cq = 1 << 16,
		.max_cqe = MAX_CQE,
		.max_mr = options->max_mr ? options->max_mr : 1 << 20,
		.max_pd = 1 << 16,
		.max_qp_rd_atom = 16,
		.max_res_rd_atom = 16 * MAX_QPS,
		.max_qp_init_rd_atom = 16,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_srq = 1 << 16,
		.max_srq_wr = MAX_WR,
		.max_srq_sge = MAX_SGE,
		.max_ah = 1 << 16,
		.max_pkeys = 1,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = PORTS,
	};
	return 0;
}

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	(void)input;
	if (size < sizeof(attr->orig_attr))
		return EINVAL;
	memset(attr, 0, size);
	ibv_query_device(context, &attr->orig_attr);
	if (size >= offsetof(struct ibv_device_attr_ex, phys_port_cnt_ex) + sizeof(uint32_t))
		attr->phys_port_cnt_ex = PORTS;
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		      size_t size)
{
	struct ibv_port_attr all = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = 1,
		.port_cap_flags = IBV_PORT_CM_SUP,
		.max_msg_sz = 1u << 30,
		.pkey_tbl_len = 1,
		.lid = device_of(context)->lid,
		.sm_lid = 1,
		.max_vl_num = 1,
		.active_width = 2,  /* 4X */
		.active_speed = 32, /* EDR */
		.phys_state = 5,    /* LinkUp */
		.link_layer = IBV_LINK_LAYER_INFINIBAND,
	};

	if (port < 1 || port > PORTS)
		return EINVAL;
	memset(attr, 0, size);
	memcpy(attr, &all, size < sizeof(all) ? size : sizeof(all));
	return 0;
}

/* Programs built with old headers have a structure that ends earlier. */
EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
			  struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	if (port < 1 || port > PORTS || index != 0) {
		errno = EINVAL;
		return -1;
	}
	gid->global.subnet_prefix = htobe64(0xfe80000000000000ull);
	gid->global.interface_id = htobe64(device_of(context)->guid);
	return 0;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
			     struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry all = {.gid_index = index, .port_num = port};

	if (flags || port > UINT8_MAX || index > INT32_MAX)
		return EINVAL;
	if (ibv_query_gid(context, port, index, &all.gid))
		return ENODATA;
	memcpy(entry, &all, size < sizeof(all) ? size : sizeof(all));
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				    size_t count, uint32_t flags, size_t size)
{
	if (count < 1)
		return -EINVAL;
	return _ibv_query_gid_ex(context, 1, 0, entries, flags, size) ? -EINVAL : 1;
}

/* libefa and libmlx5 ask for it, with an enum of their own: 0 is InfiniBand. */
EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index,
			      unsigned *type)
{
	(void)context, (void)port, (void)index;
	*type = 0;
	return 0;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	(void)context;
	if (port < 1 || port > PORTS || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htons(0xffff);
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	(void)context;
	return port == 1 && (ntohs(pkey) & 0x7fff) == 0x7fff ? 0 : -1;
}

/* ---- contexts ------------------------------------------------------------------------------- */

static void fill_operations(struct verbs_context *verbs)
{
	struct ibv_context_ops *ops = &verbs->context.ops;

	/* The inline functions of verbs.h fail with EOPNOTSUPP where one is missing. */
	verbs->sz = sizeof(*verbs);
	verbs->query_port = query_port;
	verbs->query_device_ex = query_device_ex;
	verbs->create_qp_ex = extended_create;
	ops->poll_cq = completion_poll;
	ops->req_notify_cq = completion_arm;
	ops->post_send = post_send;
	ops->post_recv = post_receive;
	ops->post_srq_recv = receive_post_shared;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct context *context;
	struct ibv_context *ibv;
	int error = transport_begin();

	if (error) {
		errno = error;
		return NULL;
	}
	context = calloc(1, sizeof(*context));
	if (!context)
		return NULL;
	context->device = (struct device *)device;
	fill_operations(&context->verbs);
	ibv = &context->verbs.context;
	ibv->device = device;
	/* Programs poll these and change their flags. No event ever comes. */
	ibv->cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	ibv->async_fd = eventfd(0, EFD_CLOEXEC);
	ibv->num_comp_vectors = 1;
	pthread_mutex_init(&ibv->mutex, NULL);
	ibv->abi_compat = __VERBS_ABI_IS_EXTENDED;
	if (ibv->cmd_fd >= 0 && ibv->async_fd >= 0)
		return ibv;
	error = errno;
	ibv_close_device(ibv);
	errno = error;
	return NULL;
}

EXPORT int ibv_close_device(struct ibv_context *ibv)
{
	char *verbs = (char *)ibv - offsetof(struct verbs_context, context);

	if (ibv->cmd_fd >= 0)
		close(ibv->cmd_fd);
	if (ibv->async_fd >= 0)
		close(ibv->async_fd);
	free(verbs - offsetof(struct context, verbs));
	return 0;
}

/* No event comes: this waits for ever, or fails with EAGAIN on a descriptor that doesn't block. */
EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	uint64_t count;

	(void)event;
	while (read(context->async_fd, &count, sizeof(count)) == sizeof(count))
		;
	return -1;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

/* ---- forks: host memory is reached by address, so that nothing is to be done ---------------- */

EXPORT int ibv_fork_init(void)
{
	return 0;
}

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

EXPORT int ibv_dontfork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

EXPORT int ibv_dofork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}
