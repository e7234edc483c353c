/* SPDX-License-Identifier: MIT */
/*
 * Frees GPU memory that it has registered: one buffer is deregistered afterwards, one never. With
 * the argument "ordered" it frees in stream order: one buffer is deregistered before its memory is
 * handed out again, one after that. With the argument "dmabuf" it registers by dma-bufs that it
 * exports itself. It is linked with the simulated driver and the recording libibverbs.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hook/cuda/abi.h"
#include "recorder.h"

#define BYTES (4u << 20)

static bool by_dmabuf;

static struct ibv_mr *reg(struct ibv_pd *pd, CUdeviceptr p)
{
	struct ibv_mr *mr;
	int fd;

	if (!by_dmabuf)
		return ibv_reg_mr(pd, (void *)p, 4096, IBV_ACCESS_LOCAL_WRITE);
	if (cuMemGetHandleForAddressRange(&fd, p, BYTES, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0))
		return NULL;
	mr = ibv_reg_dmabuf_mr(pd, 0, 4096, p, fd, IBV_ACCESS_LOCAL_WRITE);
	close(fd);
	return mr;
}

static struct ibv_mr *register_and_free(struct ibv_pd *pd)
{
	struct ibv_mr *mr;
	CUdeviceptr p = 0;

	cuMemAlloc_v2(&p, BYTES);
	mr = reg(pd, p);
	cuMemFree_v2(p);
	return mr;
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
	struct ibv_mr *late, *never;
	CUcontext cuda;

	ibv_free_device_list(list);
	if (cuInit(0) || cuCtxCreate_v2(&cuda, 0, 0))
		return 1;
	if (argc > 1 && !strcmp(argv[1], "ordered"))
		return in_order(pd);
	by_dmabuf = argc > 1 && !strcmp(argv[1], "dmabuf");
	if (argc > 1 && !by_dmabuf)
		return 2;
	late = register_and_free(pd);
	never = register_and_free(pd);
	printf("registered: %d\n", late && never);
	printf("regions: %u\n", recorder_open_mrs());
	printf("dereg %d\n", ibv_dereg_mr(late));
	printf("regions: %u\n", recorder_open_mrs());
	return 0;
}
