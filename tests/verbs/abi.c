/* SPDX-License-Identifier: MIT */
/*
 * Prints the layout of structures, and of those that are newer than many headers if an argument
 * names them; built with pindown's declarations and with rdma-core's, it must print the same. Built
 * with rdma-core's, it also declares the watched calls again, which must agree.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* A struct verbs_context grows at its beginning: its members have their places from the end. */
#define END(type) sizeof(type)

#ifdef REAL
#include <infiniband/verbs.h>
#ifdef MLX5
#include <infiniband/mlx5dv.h>
#endif
#define X(symbol, version, result, params, ...) result(symbol) params;
#include "hook/verbs/verbs.def"
#undef X
#define OP(name, index)	   offsetof(struct ibv_context, ops.name)
#define EX(name, index)	   (END(struct verbs_context) - offsetof(struct verbs_context, name))
#define SIZE_PLACE	   (END(struct verbs_context) - offsetof(struct verbs_context, sz))
#define IN_CONTEXT(member) offsetof(struct ibv_context, member)
#define DEVICE(member)	   offsetof(struct ibv_device, member)
#define SIZE_AFTER	   sizeof(struct ibv_context)
#else
#include "recorder_parts.h"
#define OP(name, index) \
	offsetof(struct recorder_context, ops[index]) - offsetof(struct recorder_context, device)
#define EX(name, index) \
	(END(struct recorder_context) - offsetof(struct recorder_context, ex[index]))
#define SIZE_PLACE (END(struct recorder_context) - offsetof(struct recorder_context, sz))
#define IN_CONTEXT(member) \
	offsetof(struct recorder_context, member) - offsetof(struct recorder_context, device)
#define DEVICE(member) offsetof(struct ibv_device, member)
#define SIZE_AFTER     (sizeof(struct recorder_context) - offsetof(struct recorder_context, device))
#endif

#define NUMBER(x)      printf("%s %lld\n", #x, (long long)(x))
#define PLACE(name, x) printf("%s %zu\n", name, (size_t)(x))

#if !defined(REAL) || defined(INIT_ATTR)
static void print_init_attr(void)
{
	NUMBER(offsetof(struct ibv_mr_init_attr, length));
	NUMBER(offsetof(struct ibv_mr_init_attr, access));
	NUMBER(offsetof(struct ibv_mr_init_attr, comp_mask));
	NUMBER(offsetof(struct ibv_mr_init_attr, iova));
	NUMBER(offsetof(struct ibv_mr_init_attr, addr));
	NUMBER(offsetof(struct ibv_mr_init_attr, fd));
	NUMBER(offsetof(struct ibv_mr_init_attr, fd_offset));
	NUMBER(IBV_REG_MR_MASK_IOVA);
	NUMBER(IBV_REG_MR_MASK_ADDR);
	NUMBER(IBV_REG_MR_MASK_FD);
	NUMBER(IBV_REG_MR_MASK_FD_OFFSET);
	NUMBER(IBV_REG_MR_MASK_DMAH);
}
#else
static void print_init_attr(void)
{
}
#endif

#if !defined(REAL) || defined(MLX5)
static void print_mlx5(void)
{
	NUMBER(sizeof(struct mlx5dv_devx_umem));
	NUMBER(offsetof(struct mlx5dv_devx_umem, umem_id));
	NUMBER(sizeof(struct mlx5dv_devx_umem_in));
	NUMBER(offsetof(struct mlx5dv_devx_umem_in, addr));
	NUMBER(offsetof(struct mlx5dv_devx_umem_in, size));
	NUMBER(offsetof(struct mlx5dv_devx_umem_in, access));
	NUMBER(offsetof(struct mlx5dv_devx_umem_in, pgsz_bitmap));
	NUMBER(offsetof(struct mlx5dv_devx_umem_in, comp_mask));
	NUMBER(offsetof(struct mlx5dv_devx_umem_in, dmabuf_fd));
	NUMBER(MLX5DV_UMEM_MASK_DMABUF);
}
#else
static void print_mlx5(void)
{
}
#endif

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "MLX5") == 0)
			print_mlx5();
		else
			print_init_attr();
	}
	NUMBER(sizeof(struct ibv_pd));
	NUMBER(offsetof(struct ibv_pd, context));
	NUMBER(offsetof(struct ibv_pd, handle));
	NUMBER(sizeof(struct ibv_mr));
	NUMBER(offsetof(struct ibv_mr, context));
	NUMBER(offsetof(struct ibv_mr, pd));
	NUMBER(offsetof(struct ibv_mr, addr));
	NUMBER(offsetof(struct ibv_mr, length));
	NUMBER(offsetof(struct ibv_mr, handle));
	NUMBER(offsetof(struct ibv_mr, lkey));
	NUMBER(offsetof(struct ibv_mr, rkey));
	NUMBER(offsetof(struct ibv_context, device));
	NUMBER(IBV_ACCESS_LOCAL_WRITE);
	NUMBER(IBV_ACCESS_REMOTE_WRITE);
	NUMBER(IBV_ACCESS_REMOTE_READ);
	NUMBER(IBV_ACCESS_REMOTE_ATOMIC);
	NUMBER(IBV_ACCESS_MW_BIND);
	NUMBER(IBV_ACCESS_ZERO_BASED);
	NUMBER(IBV_ACCESS_ON_DEMAND);
	NUMBER(IBV_ACCESS_HUGETLB);
	NUMBER(IBV_ACCESS_RELAXED_ORDERING);
	NUMBER(IBV_ACCESS_OPTIONAL_RANGE);
	NUMBER(IBV_REREG_MR_CHANGE_TRANSLATION);
	NUMBER(IBV_REREG_MR_CHANGE_PD);
	NUMBER(IBV_REREG_MR_CHANGE_ACCESS);
	NUMBER(IBV_REREG_MR_ERR_INPUT);
	NUMBER(IBV_REREG_MR_ERR_CMD);
	PLACE("alloc_mw", OP(alloc_mw, RECORDER_OP_ALLOC_MW));
	PLACE("bind_mw", OP(bind_mw, RECORDER_OP_BIND_MW));
	PLACE("dealloc_mw", OP(dealloc_mw, RECORDER_OP_DEALLOC_MW));
	PLACE("cmd_fd", IN_CONTEXT(cmd_fd));
	PLACE("abi_compat", IN_CONTEXT(abi_compat));
	PLACE("advise_mr", EX(advise_mr, RECORDER_EX_ADVISE_MR));
	PLACE("alloc_null_mr", EX(alloc_null_mr, RECORDER_EX_ALLOC_NULL_MR));
	PLACE("sz", SIZE_PLACE);
	PLACE("context", SIZE_AFTER);
	PLACE("device's name", DEVICE(name));
	return 0;
}
