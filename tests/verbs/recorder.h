/* SPDX-License-Identifier: MIT */
/*
 * The recording libibverbs and libmlx5, for tests: their functions and options beyond verbs.
 *
 * It has the calls of libibverbs that begin and end memory regions, with rdma-core's symbol
 * versions and structures, on two devices that exist only in the process. It records each call,
 * fails on demand, and acts as a kernel and a network card would: a region holds its memory (of a
 * dma-buf, without a descriptor), a protection domain with regions can't be deallocated, keys are
 * used once. recorder_copy() moves bytes between regions by key and address, as RDMA does.
 *
 * Environment, read when the library is loaded:
 *
 *   RECORDER_DMABUF=no, or an errno's number    ibv_reg_dmabuf_mr fails with EOPNOTSUPP, or with it
 *   RECORDER_PEERMEM=1      ibv_reg_mr takes addresses that the host can't touch, as with
 *                           nvidia-peermem; else it fails with EFAULT for them
 *   RECORDER_CARD=PATH      the first device's place, as /sys/class/infiniband/mlx5_0
 *   RECORDER_LOG=FILE       one line for each call; "-": standard error
 *
 * It is also built as an older rdma-core without ibv_reg_dmabuf_mr, ibv_reg_mr_ex and libmlx5
 * (verbs/old).
 */
#ifndef RECORDER_H
#define RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "hook/verbs/abi.h"

/* ---- what programs use of libibverbs -------------------------------------------------------- */

struct ibv_mw;

struct ibv_device **ibv_get_device_list(int *count);
void ibv_free_device_list(struct ibv_device **list);
const char *ibv_get_device_name(struct ibv_device *device);
struct ibv_context *ibv_open_device(struct ibv_device *device);
int ibv_close_device(struct ibv_context *context);
struct ibv_pd *ibv_alloc_pd(struct ibv_context *context);
int ibv_dealloc_pd(struct ibv_pd *pd);
struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle);
void ibv_unimport_pd(struct ibv_pd *pd);
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       int access);
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access);
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		 int access);
int ibv_dereg_mr(struct ibv_mr *mr);
struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle);
void ibv_unimport_mr(struct ibv_mr *mr);

/* ---- what programs use of libmlx5 ----------------------------------------------------------- */

enum { MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT = 1 << 0 };

struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
				    uint64_t iova, int fd, int access, int mlx5_access);
struct mlx5dv_devx_umem *mlx5dv_devx_umem_reg(struct ibv_context *context, void *addr, size_t size,
					      uint32_t access);
struct mlx5dv_devx_umem *mlx5dv_devx_umem_reg_ex(struct ibv_context *context,
						 struct mlx5dv_devx_umem_in *in);
int mlx5dv_devx_umem_dereg(struct mlx5dv_devx_umem *umem);
/* Writes the umem's handle, then its id. */
int mlx5dv_devx_umem_export(struct mlx5dv_devx_umem *umem, void *data);

/* The structures of IBVERBS_1.0. */
struct recorder_pd_1_0 {
	void *context;
	uint32_t handle;
	struct ibv_pd *real_pd;
};
struct recorder_mr_1_0 {
	void *context;
	struct recorder_pd_1_0 *pd;
	uint32_t handle, lkey, rkey;
	struct ibv_mr *real_mr;
};

/* ---- the layout of a context: the inline functions of verbs.h call through it --------------- */

enum {
	RECORDER_OP_ALLOC_MW = 7,
	RECORDER_OP_BIND_MW = 8,
	RECORDER_OP_DEALLOC_MW = 9,
	RECORDER_OPS = 32
};
enum { RECORDER_EX_ADVISE_MR = 1, RECORDER_EX_ALLOC_NULL_MR = 2, RECORDER_EX_OPS = 39 };

struct recorder_context {
	void (*ex[RECORDER_EX_OPS])(void);
	size_t sz;
	/* struct ibv_context begins here. */
	struct ibv_device *device;
	void (*ops[RECORDER_OPS])(void);
	int cmd_fd, async_fd, num_comp_vectors;
	uint64_t mutex[5];
	void *abi_compat;
};

/* ---- what was called ------------------------------------------------------------------------ */

enum recorder_verb {
	RECORDER_OPEN_DEVICE,
	RECORDER_CLOSE_DEVICE,
	RECORDER_ALLOC_PD,
	RECORDER_DEALLOC_PD,
	RECORDER_REG_MR,
	RECORDER_REG_MR_IOVA,
	RECORDER_REG_MR_IOVA2,
	RECORDER_REG_DMABUF_MR,
	RECORDER_REREG_MR,
	RECORDER_DEREG_MR,
	RECORDER_IMPORT_MR,
	RECORDER_UNIMPORT_MR,
	RECORDER_IMPORT_PD,
	RECORDER_UNIMPORT_PD,
	RECORDER_BIND_MW,
	RECORDER_REG_MR_EX,
	RECORDER_MLX5_REG_DMABUF_MR,
	RECORDER_UMEM_REG,
	RECORDER_UMEM_REG_EX,
	RECORDER_UMEM_DEREG,
	RECORDER_VERBS
};

struct recorder_call {
	enum recorder_verb verb;
	const struct ibv_pd *pd;
	uint64_t addr; /* of a dma-buf: the offset in it */
	uint64_t length, iova;
	uint32_t lkey;
	int access;
	int fd;
	int error;	/* 0, or its errno */
	uint64_t flags; /* of libmlx5's calls: mlx5_access, or the page sizes of a umem */
};

/* The number of calls of one verb so far; and of those that failed. */
unsigned recorder_calls(enum recorder_verb verb);
unsigned recorder_failed(enum recorder_verb verb);

/* The last call of a verb; false: there was none. */
bool recorder_last(enum recorder_verb verb, struct recorder_call *call);

/* The number of open regions, all together and of dma-bufs; and of open umems. */
unsigned recorder_open_mrs(void);
unsigned recorder_open_dmabuf_mrs(void);
unsigned recorder_open_umems(void);

/*
 * Calls with an ibv_mr or a umem that the library did not return, or in which libibverbs' own
 * members were changed: a real libibverbs would have crashed, or ended another region.
 */
unsigned recorder_strangers(void);

/* ---- what shall happen ---------------------------------------------------------------------- */

/* The next `count` calls of a verb fail with this errno; 0 ends that. */
void recorder_fail(enum recorder_verb verb, unsigned count, int error);

/*
 * Regions longer than this are refused with ENOMEM; 0: no limit. And the same for the number of
 * regions.
 */
void recorder_limit(uint64_t bytes, unsigned regions);

/* dma-bufs with (1) or without (0) PCIe mapping are refused as NVIDIA's driver does; -1: none. */
void recorder_refuse_mapping(int pcie);

void recorder_peermem(bool there);

/* Called in the midst of each call of the verb, without a lock; NULL takes it back. */
void recorder_meanwhile(enum recorder_verb verb, void (*callback)(void *arg), void *arg);

/*
 * A protection domain whose regions belong to another one in the kernel, as
 * ibv_alloc_parent_domain() makes it: ibv_dealloc_pd() of it succeeds while regions are open.
 */
struct ibv_pd *recorder_parent_domain(struct ibv_pd *of);

/* ---- umems ---------------------------------------------------------------------------------- */

/* An object of the card begins or ends to use a umem, which can't be deregistered meanwhile. */
bool recorder_umem_use(uint32_t umem_id, bool begins);

/* The bytes that the card finds in the umem; NULL: there is no such umem, or it has none. */
char *recorder_umem_bytes(uint32_t umem_id);

/* ---- RDMA ----------------------------------------------------------------------------------- */

enum recorder_status { RECORDER_OK, RECORDER_LOCAL_ERROR, RECORDER_REMOTE_ERROR };

/*
 * Copies from [from, from + length) of the region with this lkey to the one with this rkey, with
 * the errors of a work completion. Bytes of dma-bufs can be copied if they are the simulated
 * driver's.
 */
enum recorder_status recorder_copy(uint32_t lkey, uint64_t from, uint32_t rkey, uint64_t to,
				   size_t length);

#endif
