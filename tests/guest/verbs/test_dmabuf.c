// SPDX-License-Identifier: MIT
/*
 * GPU memory over RDMA, by a program that gets the dma-buf from pindown and registers that itself.
 */
#include "gpu_memory.h"
#include "cache/pindown.h"

static struct ibv_mr *reg_dmabuf(struct ibv_pd *domain, CUdeviceptr ptr, pindown_region **region)
{
	struct ibv_mr *mr;
	uint64_t offset;
	int fd;

	check_equal(pindown_get(ptr, SIZE, 0, region), PINDOWN_OK);
	check_equal(pindown_region_dmabuf(*region, ptr, &fd, &offset), PINDOWN_OK);
	mr = ibv_reg_dmabuf_mr(domain, offset, SIZE, ptr, fd, ALL_ACCESS);
	if (!mr)
		fail("ibv_reg_dmabuf_mr: %s", strerror(errno));
	return mr;
}

TEST(bytes_move_between_gpu_buffers)
{
	struct connection pair = connect_pair();
	pindown_region *region[2];
	CUdeviceptr from, to;
	struct ibv_mr *mr[2];

	start_cuda();
	from = gpu_buffer(SIZE, 11);
	to = gpu_buffer(SIZE, 12);
	mr[0] = reg_dmabuf(pair.pd, from, &region[0]);
	mr[1] = reg_dmabuf(pair.pd, to, &region[1]);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, (struct place){from, mr[0]->lkey},
			 (struct place){to, mr[1]->rkey}, SIZE),
		    IBV_WC_SUCCESS);
	check_equal(gpu_differs(to, 11), SIZE);
	for (int i = 0; i < 2; i++) {
		check_equal(ibv_dereg_mr(mr[i]), 0);
		pindown_put(region[i]);
	}
	disconnect(&pair);
}

/*
 * A device that can be notified: the key is dead when the free returns, although the program holds
 * it. The kernel notices because the driver frees the block, which small allocations share.
 */
TEST(a_free_revokes_the_key)
{
	struct connection pair = connect_pair();
	unsigned long revoked = hca_count("revoked");
	pindown_region *region[2];
	CUdeviceptr from, to, again;
	struct ibv_mr *mr[2];

	start_cuda();
	from = gpu_buffer(SIZE, 21);
	to = gpu_buffer(BLOCK, 22);
	mr[0] = reg_dmabuf(pair.pd, from, &region[0]);
	mr[1] = reg_dmabuf(pair.pd, to, &region[1]);
	check_equal(cuMemFree_v2(to), CUDA_SUCCESS);
	check_equal(hca_count("revoked"), revoked + 1);
	again = gpu_buffer(BLOCK, 23);
	check_equal(again, to);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, (struct place){from, mr[0]->lkey},
			 (struct place){to, mr[1]->rkey}, SIZE),
		    IBV_WC_REM_ACCESS_ERR);
	check_equal(gpu_differs(again, 23), SIZE);
	for (int i = 0; i < 2; i++) {
		check_equal(ibv_dereg_mr(mr[i]), 0);
		pindown_put(region[i]);
	}
	disconnect(&pair);
}
