/* SPDX-License-Identifier: MIT */
/*
 * A program that knows nothing of pindown and registers host memory and GPU memory with
 * ibv_reg_mr_ex and with libmlx5's calls.
 *
 * app-mlx5-... ROAD
 *
 * ROAD is its way to the libraries, as in app.c.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hook/cuda/abi.h"
#include "recorder.h"

#define CALLS(X)                                        \
	X(ibv_get_device_list, ibverbs, "IBVERBS_1.1")  \
	X(ibv_free_device_list, ibverbs, "IBVERBS_1.1") \
	X(ibv_open_device, ibverbs, "IBVERBS_1.1")      \
	X(ibv_close_device, ibverbs, "IBVERBS_1.1")     \
	X(ibv_alloc_pd, ibverbs, "IBVERBS_1.1")         \
	X(ibv_dealloc_pd, ibverbs, "IBVERBS_1.1")       \
	X(ibv_reg_mr_ex, ibverbs, "IBVERBS_1.15")       \
	X(ibv_dereg_mr, ibverbs, "IBVERBS_1.1")         \
	X(recorder_calls, ibverbs, "RECORDER")          \
	X(recorder_open_mrs, ibverbs, "RECORDER")       \
	X(recorder_open_umems, ibverbs, "RECORDER")     \
	X(mlx5dv_reg_dmabuf_mr, mlx5, "MLX5_1.25")      \
	X(mlx5dv_devx_umem_reg, mlx5, "MLX5_1.7")       \
	X(mlx5dv_devx_umem_reg_ex, mlx5, "MLX5_1.19")   \
	X(mlx5dv_devx_umem_dereg, mlx5, "MLX5_1.7")

static struct {
#define X(name, library, version) typeof(name) *name;
	CALLS(X)
#undef X
} verbs;

#ifdef APP_LINKED
static void find(const char *road)
{
	(void)road;
#define X(name, library, version) verbs.name = name;
	CALLS(X)
#undef X
}
#else
static void *handle_for(const char *road, const char *library)
{
	if (strstr(road, "_default"))
		return RTLD_DEFAULT;
	if (strstr(road, "_next"))
		return RTLD_NEXT;
	return dlopen(library, RTLD_NOW | RTLD_LOCAL);
}

static void find(const char *road)
{
	void *ibverbs = handle_for(road, "libibverbs.so.1");
	void *mlx5 = handle_for(road, "libmlx5.so.1");
	bool versions = strncmp(road, "dlvsym", 6) == 0;

#define X(name, library, version) \
	verbs.name = versions ? dlvsym(library, #name, version) : dlsym(library, #name);
	CALLS(X)
#undef X
}
#endif

#define WRITE IBV_ACCESS_LOCAL_WRITE
#define BYTES ((size_t)1 << 21)

static struct ibv_context *context;
static struct ibv_pd *pd;

static void print_region(const char *what, struct ibv_mr *mr, uint64_t addr)
{
	if (!mr) {
		printf("%s: %s\n", what, strerror(errno));
		return;
	}
	printf("%s: its own address: %d", what, (uintptr_t)mr->addr == addr);
	printf(", dereg %d\n", verbs.ibv_dereg_mr(mr));
}

static void print_umem(const char *what, struct mlx5dv_devx_umem *umem)
{
	if (!umem) {
		printf("%s: %s\n", what, strerror(errno));
		return;
	}
	printf("%s: id: %d", what, umem->umem_id != 0);
	printf(", dereg %d\n", verbs.mlx5dv_devx_umem_dereg(umem));
}

/* Each by its address, and as UCX and NCCL do by a dma-buf that is closed right after. */
static void by_address(const char *what, void *addr)
{
	struct ibv_mr_init_attr attr = {
		.length = 8192, .access = WRITE, .comp_mask = IBV_REG_MR_MASK_ADDR, .addr = addr};

	printf("%s\n", what);
	print_region("reg_mr_ex", verbs.ibv_reg_mr_ex(pd, &attr), (uintptr_t)addr);
	print_umem("umem", verbs.mlx5dv_devx_umem_reg(context, addr, 8192, WRITE));
}

static void by_dmabuf(CUdeviceptr p)
{
	struct ibv_mr_init_attr attr = {
		.length = 8192,
		.access = WRITE,
		.comp_mask = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA,
		.iova = p,
		.fd_offset = 4096};
	struct mlx5dv_devx_umem_in in = {.size = 8192,
					 .access = WRITE,
					 .pgsz_bitmap = 4096,
					 .comp_mask = MLX5DV_UMEM_MASK_DMABUF};
	int fd;

	if (cuMemGetHandleForAddressRange(&fd, p, BYTES, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0))
		return;
	attr.fd = in.dmabuf_fd = fd;
	printf("dma-buf\n");
	print_region("reg_mr_ex", verbs.ibv_reg_mr_ex(pd, &attr), 4096);
	print_region("reg_dmabuf_mr",
		     verbs.mlx5dv_reg_dmabuf_mr(pd, 8192, 4096, p, fd, WRITE,
						MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT),
		     8192);
	print_umem("umem", verbs.mlx5dv_devx_umem_reg_ex(context, &in));
	close(fd);
}

static void print_calls(const char *what)
{
	printf("%s: %u dma-buf, %u ex, %u mlx5, %u umem, %u umem_ex\n", what,
	       verbs.recorder_calls(RECORDER_REG_DMABUF_MR),
	       verbs.recorder_calls(RECORDER_REG_MR_EX),
	       verbs.recorder_calls(RECORDER_MLX5_REG_DMABUF_MR),
	       verbs.recorder_calls(RECORDER_UMEM_REG), verbs.recorder_calls(RECORDER_UMEM_REG_EX));
}

int main(int argc, char **argv)
{
	struct ibv_device **list;
	char *host = malloc(8192);
	CUcontext cuda;
	CUdeviceptr p;

	find(argc > 1 ? argv[1] : "");
	if (!verbs.recorder_calls || !verbs.mlx5dv_devx_umem_reg) {
		printf("no libmlx5%s\n", verbs.mlx5dv_reg_dmabuf_mr ? ", but somebody's" : "");
		return 1;
	}
	cuInit(0);
	cuCtxCreate_v2(&cuda, 0, 0);
	cuMemAlloc_v2(&p, BYTES);
	list = verbs.ibv_get_device_list(NULL);
	context = verbs.ibv_open_device(list[0]);
	verbs.ibv_free_device_list(list);
	pd = verbs.ibv_alloc_pd(context);
	by_address("host", host);
	print_calls("host");
	for (unsigned i = 0; i < 2; i++) {
		by_address("gpu", (void *)(p + 4096));
		by_dmabuf(p);
	}
	print_calls("all");
	printf("open %u %u\n", verbs.recorder_open_mrs(), verbs.recorder_open_umems());
	cuMemFree_v2(p);
	printf("freed: open %u %u\n", verbs.recorder_open_mrs(), verbs.recorder_open_umems());
	printf("dealloc_pd %d, close_device %d\n", verbs.ibv_dealloc_pd(pd),
	       verbs.ibv_close_device(context));
	free(host);
	return 0;
}
