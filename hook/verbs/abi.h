/* SPDX-License-Identifier: MIT */
/*
 * The parts of libibverbs' and libmlx5's binary interfaces that pindown uses: the structures that
 * a registration consists of, and the flags of the calls that make and change it. libpindown.so is
 * built without rdma-core's headers; where those are installed, tests/verbs/check-abi compares.
 */
#ifndef PDN_VERBS_ABI_H
#define PDN_VERBS_ABI_H

#include <stddef.h>
#include <stdint.h>

struct ibv_device {
	void *ops[2]; /* for libibverbs only */
	int node_type, transport_type;
	char name[64], dev_name[64], dev_path[256], ibdev_path[256];
};

struct ibv_context {
	struct ibv_device *device;
	/* and more, which only libibverbs uses */
};

struct ibv_pd {
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_mr {
	struct ibv_context *context;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

/*
 * The structure that contains an ibv_mr, as libibverbs and its providers read it (driver.h, which
 * isn't installed). Providers read the type first, and no member of their own when it is DMABUF.
 */
struct pdn_verbs_mr {
	struct ibv_mr mr;
	uint32_t type;
	int32_t access;
};
enum { PDN_MR_TYPE_MR, PDN_MR_TYPE_NULL, PDN_MR_TYPE_IMPORTED, PDN_MR_TYPE_DMABUF };

enum {
	IBV_ACCESS_LOCAL_WRITE = 1,
	IBV_ACCESS_REMOTE_WRITE = 1 << 1,
	IBV_ACCESS_REMOTE_READ = 1 << 2,
	IBV_ACCESS_REMOTE_ATOMIC = 1 << 3,
	IBV_ACCESS_MW_BIND = 1 << 4,
	IBV_ACCESS_ZERO_BASED = 1 << 5,
	IBV_ACCESS_ON_DEMAND = 1 << 6,
	IBV_ACCESS_HUGETLB = 1 << 7,
	IBV_ACCESS_RELAXED_ORDERING = 1 << 20,
	IBV_ACCESS_OPTIONAL_RANGE = 0x3ff00000, /* flags that may be ignored if unknown */
};

/* Since rdma-core 59. The mask says which members are set; later ones may follow. */
struct ibv_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
};
enum {
	IBV_REG_MR_MASK_IOVA = 1 << 0,
	IBV_REG_MR_MASK_ADDR = 1 << 1,
	IBV_REG_MR_MASK_FD = 1 << 2,
	IBV_REG_MR_MASK_FD_OFFSET = 1 << 3,
	IBV_REG_MR_MASK_DMAH = 1 << 4,
	IBV_REG_MR_MASK_BUF = 1 << 5,
};

enum {
	IBV_REREG_MR_CHANGE_TRANSLATION = 1 << 0,
	IBV_REREG_MR_CHANGE_PD = 1 << 1,
	IBV_REREG_MR_CHANGE_ACCESS = 1 << 2,
};

enum {
	IBV_REREG_MR_ERR_INPUT = -1,
	IBV_REREG_MR_ERR_CMD = -4,
};

/* ---- libmlx5 --------------------------------------------------------------------------------- */

struct mlx5dv_devx_umem {
	uint32_t umem_id;
};

struct mlx5dv_devx_umem_in {
	void *addr; /* by a dma-buf: the offset in it */
	size_t size;
	uint32_t access;
	uint64_t pgsz_bitmap;
	uint64_t comp_mask;
	int dmabuf_fd;
};
enum { MLX5DV_UMEM_MASK_DMABUF = 1 << 0 };

/*
 * The structure that contains a umem, as libmlx5 reads it in mlx5dv_devx_umem_export(). It is not
 * in a header that is installed.
 */
struct pdn_mlx5_umem {
	struct mlx5dv_devx_umem umem;
	struct ibv_context *context;
	uint32_t handle;
	void *addr;
	size_t size;
};

#endif
