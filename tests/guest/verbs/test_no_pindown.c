// SPDX-License-Identifier: MIT
/* Without pindown and without nvidia-peermem: GPU memory that a program registers. */
#include "gpu_memory.h"

TEST(registration_of_gpu_memory_fails)
{
	struct connection pair = connect_pair();
	CUdeviceptr ptr;

	start_cuda();
	ptr = gpu_buffer(SIZE, 1);
	check(!ibv_reg_mr(pair.pd, (void *)ptr, SIZE, ALL_ACCESS));
	check_equal(errno, EFAULT);
	check_equal(hca_count("live_mrs"), 0);
}

/*
 * A program that exports its memory itself and keeps the registration for later: the free returns
 * no memory, the address is reused, and the device writes into memory that belongs to nobody.
 */
TEST(a_registration_of_dead_memory)
{
	uint64_t pages = gpu_count(SIM_GPU_MEMORY_PAGES);
	struct connection pair = connect_pair();
	struct ibv_mr *host, *mr;
	CUdeviceptr ptr, again;
	char data[SIZE];
	int fd;

	start_cuda();
	ptr = gpu_buffer(BLOCK, 1);
	check_equal(cuMemGetHandleForAddressRange(&fd, ptr, BLOCK,
						  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
		    CUDA_SUCCESS);
	mr = ibv_reg_dmabuf_mr(pair.pd, 0, BLOCK, ptr, fd, ALL_ACCESS);
	host = ibv_reg_mr(pair.pd, data, SIZE, ALL_ACCESS);
	check(mr && host);
	works(close(fd));
	check_equal(cuMemFree_v2(ptr), CUDA_SUCCESS);
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES) - pages, BLOCK / PAGE);
	again = gpu_buffer(BLOCK, 2);
	check_equal(again, ptr);
	fill(data, SIZE, 3);
	check_equal(
		rdma(&pair, IBV_WR_RDMA_WRITE, local(host), (struct place){again, mr->rkey}, SIZE),
		IBV_WC_SUCCESS);
	check_equal(gpu_differs(again, 2), SIZE);
	check_equal(ibv_dereg_mr(mr), 0);
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES) - pages, BLOCK / PAGE);
	check_equal(ibv_dereg_mr(host), 0);
	check_equal(cuMemFree_v2(again), CUDA_SUCCESS);
	disconnect(&pair);
}
