// SPDX-License-Identifier: MIT
/*
 * Without pindown and without nvidia-peermem: what becomes of GPU memory that a program registers.
 */
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
