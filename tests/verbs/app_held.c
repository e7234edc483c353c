/* SPDX-License-Identifier: MIT */
/*
 * Frees GPU memory that it has registered: one buffer is deregistered afterwards, one never. With
 * the argument "ordered" it frees in stream order: one buffer is deregistered before its memory is
 * handed out again, one after that. With the argument "dmabuf", "mlx5" or "ex" it registers by
 * dma-bufs that it exports itself, with the call of that name, and with "umem" it registers umems.
 * With "rereg" it registers other memory, and changes the registrations with ibv_rereg_mr.
 * It is linked with the simulated driver and the recording libraries.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hook/cuda/abi.h"
#include "recorder.h"

#define BYTES (4u << 20)

static const char *how = "";

static bool is(const char *what)
{
	return strcmp(how, what) == 0;
}

static void *reg_dmabuf(struct ibv_pd *pd, CUdeviceptr p, int fd)
{
	struct ibv_mr_init_attr attr = {
		.length = 4096,
		.access = IBV_ACCESS_LOCAL_WRITE,
		.comp_mask = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA,
		.iova = p,
		.fd = fd};

	if (is("ex"))
		return ibv_reg_mr_ex(pd, &attr);
	return is("mlx5") ? mlx5dv_reg_dmabuf_mr(pd, 0, 4096, p, fd, IBV_ACCESS_LOCAL_WRITE, 1)
			  : ibv_reg_dmabuf_mr(pd, 0, 4096, p, fd, IBV_ACCESS_LOCAL_WRITE);
}

static __attribute__((noinline)) struct ibv_mr *move(struct ibv_mr *mr, CUdeviceptr to)
{
	int failed = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)to, 4096, 0);

	return failed ? NULL : mr;
}

static struct ibv_mr *reg_elsewhere_and_move(struct ibv_pd *pd, CUdeviceptr to)
{
	CUdeviceptr first = 0;

	cuMemAlloc_v2(&first, BYTES);
	return move(ibv_reg_mr(pd, (void *)first, 4096, IBV_ACCESS_LOCAL_WRITE), to);
}

static void *reg(struct ibv_pd *pd, CUdeviceptr p)
{
	void *made;
	int fd;

	if (is("rereg"))
		return reg_elsewhere_and_move(pd, p);
	if (is("umem"))
		return mlx5dv_devx_umem_reg(pd->context, (void *)p, 4096, IBV_ACCESS_LOCAL_WRITE);
	if (is(""))
		return ibv_reg_mr(pd, (void *)p, 4096, IBV_ACCESS_LOCAL_WRITE);
	if (cuMemGetHandleForAddressRange(&fd, p, BYTES, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0))
		return NULL;
	made = reg_dmabuf(pd, p, fd);
	close(fd);
	return made;
}

/* Exported, so that a line can name it. */
__attribute__((noinline, visibility("default"))) void *register_and_free(struct ibv_pd *pd);
void *register_and_free(struct ibv_pd *pd)
{
	CUdeviceptr p = 0;
	void *made;

	cuMemAlloc_v2(&p, BYTES);
	made = reg(pd, p);
	cuMemFree_v2(p);
	return made;
}

static struct ibv_mr *register_and_free_in_order(struct ibv_pd *pd)
{
	struct ibv_mr *mr;
	CUdeviceptr p = 0;

	cuMemAllocAsync(&p, BYTES, NULL);
	mr = ibv_reg_mr(pd, (void *)p, 4096, IBV_ACCESS_LOCAL_WRITE);
	cuMemFreeAsync(p, NULL);
	return mr;
}

static int in_order(struct ibv_pd *pd)
{
	struct ibv_mr *first = register_and_free_in_order(pd), *second;

	printf("regions: %u\n", recorder_open_mrs());
	printf("dereg %d\n", ibv_dereg_mr(first));
	first = register_and_free_in_order(pd);
	second = register_and_free_in_order(pd); /* at the address of the first one */
	printf("regions: %u\n", recorder_open_mrs());
	printf("dereg %d %d\n", ibv_dereg_mr(first), ibv_dereg_mr(second));
	printf("regions: %u\n", recorder_open_mrs());
	return 0;
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *device = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(device);
	void *late, *never;
	CUcontext cuda;

	ibv_free_device_list(list);
	if (cuInit(0) || cuCtxCreate_v2(&cuda, 0, 0))
		return 1;
	if (argc > 1)
		how = argv[1];
	if (is("ordered"))
		return in_order(pd);
	late = register_and_free(pd);
	never = register_and_free(pd);
	printf("registered: %d\n", late && never);
	printf("regions: %u\n", recorder_open_mrs() + recorder_open_umems());
	printf("dereg %d\n", is("umem") ? mlx5dv_devx_umem_dereg(late) : ibv_dereg_mr(late));
	printf("regions: %u\n", recorder_open_mrs() + recorder_open_umems());
	return 0;
}
