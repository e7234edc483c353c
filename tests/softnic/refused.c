/* SPDX-License-Identifier: MIT */
/*
 * Symbols of libibverbs that this one has no code for. Functions of verbs.h fail with EOPNOTSUPP.
 * The private ones are there because libmlx5, libefa and librdmacm, which perftest is linked with,
 * are bound to all of them when they are loaded; none is called for our devices.
 *
 * This file does not include verbs.h: one function stands for many prototypes.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

static int refuse(void)
{
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

static void *refuse_object(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

static int fail(void)
{
	return -1;
}

static int do_nothing(void)
{
	return 0;
}

#define ALIAS(name, of)	    EXPORT extern __typeof__(of) name __attribute__((alias(#of)))
#define REFUSE(name)	    ALIAS(name, refuse)
#define REFUSE_OBJECT(name) ALIAS(name, refuse_object)
#define FAIL(name)	    ALIAS(name, fail)
#define DO_NOTHING(name)    ALIAS(name, do_nothing)

/* ---- verbs ---------------------------------------------------------------------------------- */

REFUSE_OBJECT(ibv_create_ah_from_wc);
REFUSE(ibv_init_ah_from_wc);
REFUSE(ibv_attach_mcast);
REFUSE(ibv_detach_mcast);
REFUSE(ibv_resolve_eth_l2_from_gid);
REFUSE(ibv_query_ece);
REFUSE(ibv_set_ece);
REFUSE_OBJECT(ibv_import_device);
REFUSE_OBJECT(ibv_import_pd);
REFUSE_OBJECT(ibv_import_mr);
REFUSE_OBJECT(ibv_import_dm);
DO_NOTHING(ibv_unimport_pd);
DO_NOTHING(ibv_unimport_mr);
DO_NOTHING(ibv_unimport_dm);
DO_NOTHING(ibv_query_qp_data_in_order); /* 0: in no order that a program may rely on */

/* ---- for librdmacm and providers ------------------------------------------------------------ */

DO_NOTHING(ibv_register_driver);
DO_NOTHING(verbs_register_driver_34);
DO_NOTHING(__verbs_log);
DO_NOTHING(ibv_copy_ah_attr_from_kern);
DO_NOTHING(ibv_copy_qp_attr_from_kern);
DO_NOTHING(ibv_copy_path_rec_from_kern);
DO_NOTHING(ibv_copy_path_rec_to_kern);
FAIL(ibv_read_sysfs_file);
FAIL(ibv_read_ibdev_sysfs_file);
REFUSE_OBJECT(verbs_open_device);
REFUSE_OBJECT(_verbs_init_and_alloc_context);

EXPORT extern bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy;

EXPORT const char *ibv_get_sysfs_path(void);
const char *ibv_get_sysfs_path(void)
{
	return "/sys";
}

REFUSE(__ioctl_final_num_attrs);
REFUSE(execute_ioctl);
REFUSE(ibv_cmd_advise_mr);
REFUSE(ibv_cmd_alloc_dm);
REFUSE(ibv_cmd_alloc_mw);
REFUSE(ibv_cmd_alloc_pd);
REFUSE(ibv_cmd_attach_mcast);
REFUSE(ibv_cmd_close_xrcd);
REFUSE(ibv_cmd_create_ah);
REFUSE(ibv_cmd_create_counters);
REFUSE(ibv_cmd_create_cq);
REFUSE(ibv_cmd_create_cq_ex);
REFUSE(ibv_cmd_create_cq_ex2);
REFUSE(ibv_cmd_create_flow);
REFUSE(ibv_cmd_create_flow_action_esp);
REFUSE(ibv_cmd_create_qp);
REFUSE(ibv_cmd_create_qp_ex);
REFUSE(ibv_cmd_create_qp_ex2);
REFUSE(ibv_cmd_create_rwq_ind_table);
REFUSE(ibv_cmd_create_srq);
REFUSE(ibv_cmd_create_srq_ex);
REFUSE(ibv_cmd_create_wq);
REFUSE(ibv_cmd_dealloc_mw);
REFUSE(ibv_cmd_dealloc_pd);
REFUSE(ibv_cmd_dereg_mr);
REFUSE(ibv_cmd_destroy_ah);
REFUSE(ibv_cmd_destroy_counters);
REFUSE(ibv_cmd_destroy_cq);
REFUSE(ibv_cmd_destroy_flow);
REFUSE(ibv_cmd_destroy_flow_action);
REFUSE(ibv_cmd_destroy_qp);
REFUSE(ibv_cmd_destroy_rwq_ind_table);
REFUSE(ibv_cmd_destroy_srq);
REFUSE(ibv_cmd_destroy_wq);
REFUSE(ibv_cmd_detach_mcast);
REFUSE(ibv_cmd_free_dm);
REFUSE(ibv_cmd_get_context);
REFUSE(ibv_cmd_modify_cq);
REFUSE(ibv_cmd_modify_flow_action_esp);
REFUSE(ibv_cmd_modify_qp);
REFUSE(ibv_cmd_modify_qp_ex);
REFUSE(ibv_cmd_modify_srq);
REFUSE(ibv_cmd_modify_wq);
REFUSE(ibv_cmd_open_qp);
REFUSE(ibv_cmd_open_xrcd);
REFUSE(ibv_cmd_poll_cq);
REFUSE(ibv_cmd_post_recv);
REFUSE(ibv_cmd_post_send);
REFUSE(ibv_cmd_post_srq_recv);
REFUSE(ibv_cmd_query_context);
REFUSE(ibv_cmd_query_device_any);
REFUSE(ibv_cmd_query_mr);
REFUSE(ibv_cmd_query_port);
REFUSE(ibv_cmd_query_qp);
REFUSE(ibv_cmd_query_srq);
REFUSE(ibv_cmd_read_counters);
REFUSE(ibv_cmd_reg_dm_mr);
REFUSE(ibv_cmd_reg_dmabuf_mr);
REFUSE(ibv_cmd_reg_mr);
REFUSE(ibv_cmd_req_notify_cq);
REFUSE(ibv_cmd_rereg_mr);
REFUSE(ibv_cmd_resize_cq);
REFUSE(verbs_init_cq);
REFUSE(verbs_set_ops);
REFUSE(verbs_uninit_context);
