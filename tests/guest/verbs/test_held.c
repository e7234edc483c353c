// SPDX-License-Identifier: MIT
/*
 * A program that frees GPU memory that it has still registered. Whatever PINDOWN_HELD is, the
 * device never reaches other memory at the same address. The boot chooses the configuration of each
 * test.
 */
#include "gpu_memory.h"

static struct {
	struct connection pair;
	struct ibv_mr *source, *held;
	struct place old;
	CUdeviceptr again;
} state;

/* Frees the memory of a registration, and allocates as much. Returns the address freed. */
static CUdeviceptr free_what_is_held(void)
{
	CUdeviceptr ptr;

	state.pair = connect_pair();
	start_cuda();
	state.source = ibv_reg_mr(state.pair.pd, (void *)gpu_buffer(BLOCK, 1), SIZE, ALL_ACCESS);
	ptr = gpu_buffer(BLOCK, 2);
	state.held = ibv_reg_mr(state.pair.pd, (void *)ptr, SIZE, ALL_ACCESS);
	if (!state.source || !state.held)
		fail("ibv_reg_mr: %s", strerror(errno));
	state.old = remote(state.held);
	check_equal(hca_count("live_mrs"), 2);
	check_equal(cuMemFree_v2(ptr), CUDA_SUCCESS);
	state.again = gpu_buffer(BLOCK, 3);
	return ptr;
}

static void get_its_address_again(void)
{
	check_equal(free_what_is_held(), state.again);
}

static enum ibv_wc_status write_by_the_old_key(void)
{
	return rdma(&state.pair, IBV_WR_RDMA_WRITE, local(state.source), state.old, SIZE);
}

static void give_back(void)
{
	check_equal(gpu_differs(state.again, 3), SIZE);
	check_equal(ibv_dereg_mr(state.held), 0);
	check_equal(ibv_dereg_mr(state.source), 0);
	check_equal(cuMemFree_v2((uintptr_t)state.source->addr), CUDA_SUCCESS);
	check_equal(cuMemFree_v2(state.again), CUDA_SUCCESS);
	check_equal(hca_count("live_mrs"), 0);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	disconnect(&state.pair);
}

/* keep, and a device that the kernel can't notify: it continues with the old memory. */
TEST(kept)
{
	uint64_t pages = gpu_count(SIM_GPU_MEMORY_PAGES);

	get_its_address_again();
	check_equal(hca_count("live_mrs"), 2);
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES) - pages, 3 * BLOCK / PAGE);
	check_equal(write_by_the_old_key(), IBV_WC_SUCCESS);
	give_back();
}

/* keep, but the kernel has revoked the device's access. */
TEST(kept_but_revoked_by_the_kernel)
{
	unsigned long revoked = hca_count("revoked");

	get_its_address_again();
	check_equal(hca_count("live_mrs"), 2);
	check_equal(hca_count("revoked"), revoked + 1);
	check_equal(write_by_the_old_key(), IBV_WC_REM_ACCESS_ERR);
	give_back();
}

TEST(revoked)
{
	uint64_t pages = gpu_count(SIM_GPU_MEMORY_PAGES);

	get_its_address_again();
	check_equal(hca_count("live_mrs"), 1);
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES) - pages, 2 * BLOCK / PAGE);
	check_equal(write_by_the_old_key(), IBV_WC_REM_ACCESS_ERR);
	give_back();
}

/* The default: the address is handed out to nobody while the registration is held. */
TEST(retired)
{
	uint64_t pages = gpu_count(SIM_GPU_MEMORY_PAGES);
	CUdeviceptr freed = free_what_is_held();

	if (state.again == freed)
		fail("the address of a registration is in use again");
	check_equal(hca_count("live_mrs"), 1);
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES) - pages, 2 * BLOCK / PAGE);
	check_equal(write_by_the_old_key(), IBV_WC_REM_ACCESS_ERR);
	give_back();
}
