// SPDX-License-Identifier: MIT OR GPL-2.0
/* main.c - the device: its PCI driver, and its registration with ib_core. */
#include <linux/module.h>

#include "hca.h"

static int hca_query_device(struct ib_device *ib, struct ib_device_attr *attr,
			    struct ib_udata *udata)
{
	memset(attr, 0, sizeof(*attr));
	attr->vendor_id = EDU_VENDOR;
	attr->vendor_part_id = EDU_DEVICE;
	attr->sys_image_guid = ib->node_guid;
	attr->max_mr_size = HCA_MAX_BYTES;
	attr->page_size_cap = PAGE_SIZE;
	attr->max_qp = HCA_MAX_WORK;
	attr->max_qp_wr = HCA_MAX_WORK;
	attr->max_send_sge = HCA_MAX_SGE;
	attr->max_recv_sge = HCA_MAX_SGE;
	attr->max_sge_rd = HCA_MAX_SGE;
	attr->max_cq = HCA_MAX_WORK;
	attr->max_cqe = HCA_MAX_WORK;
	attr->max_mr = 1 << 20;
	attr->max_pd = HCA_MAX_WORK;
	attr->max_qp_rd_atom = 1;
	attr->max_qp_init_rd_atom = 1;
	attr->atomic_cap = IB_ATOMIC_HCA;
	attr->max_pkeys = 1;
	return 0;
}

static int hca_query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr)
{
	attr->state = IB_PORT_ACTIVE;
	attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = IB_MTU_4096;
	attr->active_speed = IB_SPEED_SDR;
	attr->active_width = IB_WIDTH_1X;
	attr->lid = 1;
	attr->max_msg_sz = 1u << 31;
	attr->gid_tbl_len = 1;
	attr->pkey_tbl_len = 1;
	return 0;
}

static int hca_port_immutable(struct ib_device *ib, u32 port, struct ib_port_immutable *immutable)
{
	immutable->gid_tbl_len = 1;
	immutable->pkey_tbl_len = 1;
	return 0;
}

static int hca_query_gid(struct ib_device *ib, u32 port, int index, union ib_gid *gid)
{
	gid->global.subnet_prefix = cpu_to_be64(0xfe80ull << 48);
	gid->global.interface_id = ib->node_guid;
	return 0;
}

static int hca_query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey)
{
	*pkey = 0xffff;
	return 0;
}

/* ib_core keeps all data of these two objects. */
static int hca_alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int hca_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int hca_alloc_ucontext(struct ib_ucontext *context, struct ib_udata *udata)
{
	return 0;
}

static void hca_dealloc_ucontext(struct ib_ucontext *context)
{
}

static const struct ib_device_ops hca_ops = {
	.owner = THIS_MODULE,
	.uverbs_abi_ver = 1,

	.query_device = hca_query_device,
	.query_port = hca_query_port,
	.get_port_immutable = hca_port_immutable,
	.query_gid = hca_query_gid,
	.query_pkey = hca_query_pkey,
	.alloc_ucontext = hca_alloc_ucontext,
	.dealloc_ucontext = hca_dealloc_ucontext,
	.alloc_pd = hca_alloc_pd,
	.dealloc_pd = hca_dealloc_pd,
	.reg_user_mr = hca_reg_user_mr,
	.reg_user_mr_dmabuf = hca_reg_user_mr_dmabuf,
	.rereg_user_mr = hca_rereg_user_mr,
	.dereg_mr = hca_dereg_mr,
	.create_cq = hca_create_cq,
	.destroy_cq = hca_destroy_cq,
	.poll_cq = hca_poll_cq,
	.req_notify_cq = hca_req_notify_cq,
	.create_qp = hca_create_qp,
	.modify_qp = hca_modify_qp,
	.query_qp = hca_query_qp,
	.destroy_qp = hca_destroy_qp,
	.post_send = hca_post_send,

	INIT_RDMA_OBJ_SIZE(ib_pd, hca_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, hca_context, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, hca_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, hca_qp, ib),
};

static void hca_show(struct hca *hca)
{
	static const char *const names[HCA_COUNTERS] = {
		[HCA_HOST_MRS] = "host_mrs",
		[HCA_DMABUF_MRS] = "dmabuf_mrs",
		[HCA_LIVE_MRS] = "live_mrs",
		[HCA_REVOKED] = "revoked",
		[HCA_BYTES] = "bytes",
	};
	int i;

	hca->debugfs = debugfs_create_dir("edu_hca", NULL);
	for (i = 0; i < HCA_COUNTERS; i++)
		debugfs_create_atomic_t(names[i], 0444, hca->debugfs, &hca->counters[i]);
}

static int hca_probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	struct hca *hca = ib_alloc_device(hca, ib);
	int error;

	if (!hca)
		return -ENOMEM;
	hca->pci = pci;
	error = edu_start(&hca->engine, pci, "edu_hca");
	if (error)
		goto dealloc;
	xa_init_flags(&hca->mrs, XA_FLAGS_ALLOC1);
	xa_init_flags(&hca->qps, XA_FLAGS_ALLOC1);
	error = -ENOMEM;
	hca->word = dmam_alloc_coherent(&pci->dev, sizeof(*hca->word), &hca->word_address,
					GFP_KERNEL);
	if (!hca->word)
		goto dealloc;
	hca->work = alloc_ordered_workqueue("edu_hca", 0);
	if (!hca->work)
		goto dealloc;
	hca->ib.node_type = RDMA_NODE_IB_CA;
	hca->ib.node_guid = cpu_to_be64(0x1234 << 16 | 0x11e8);
	hca->ib.phys_port_cnt = 1;
	hca->ib.num_comp_vectors = 1;
	hca->ib.dev.parent = &pci->dev;
	ib_set_device_ops(&hca->ib, &hca_ops);
	/* Operations that other drivers implement in user space. */
	hca->ib.uverbs_cmd_mask |= BIT_ULL(IB_USER_VERBS_CMD_POST_SEND) |
				   BIT_ULL(IB_USER_VERBS_CMD_POLL_CQ) |
				   BIT_ULL(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ);
	pci_set_drvdata(pci, hca);
	error = ib_register_device(&hca->ib, "edu%d", &pci->dev);
	if (error)
		goto destroy;
	hca_show(hca);
	return 0;

destroy:
	destroy_workqueue(hca->work);
dealloc:
	ib_dealloc_device(&hca->ib);
	return error;
}

static void hca_remove(struct pci_dev *pci)
{
	struct hca *hca = pci_get_drvdata(pci);

	debugfs_remove_recursive(hca->debugfs);
	ib_unregister_device(&hca->ib);
	destroy_workqueue(hca->work);
	WARN_ON(!xa_empty(&hca->mrs) || !xa_empty(&hca->qps));
	ib_dealloc_device(&hca->ib);
}

static const struct pci_device_id hca_ids[] = {{PCI_DEVICE(EDU_VENDOR, EDU_DEVICE)}, {}};

static struct pci_driver hca_driver = {
	.name = "edu_hca",
	.id_table = hca_ids,
	.probe = hca_probe,
	.remove = hca_remove,
	.driver.suppress_bind_attrs = true,
};

module_pci_driver(hca_driver);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("RDMA device on QEMU's edu device, for pindown's test guest");
