// SPDX-License-Identifier: MIT
#include "gpu_memory.h"

void start_cuda(void)
{
	CUcontext context;

	check_equal(cuInit(0), CUDA_SUCCESS);
	check_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	check_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

CUdeviceptr gpu_buffer(size_t size, uint64_t seed)
{
	CUdeviceptr ptr = 0;
	char data[SIZE];

	check_equal(cuMemAlloc_v2(&ptr, size), CUDA_SUCCESS);
	fill(data, SIZE, seed);
	check_equal(cuMemcpyHtoD_v2(ptr, data, SIZE), CUDA_SUCCESS);
	return ptr;
}

size_t gpu_differs(CUdeviceptr ptr, uint64_t seed)
{
	char data[SIZE];

	check_equal(cuMemcpyDtoH_v2(data, ptr, SIZE), CUDA_SUCCESS);
	return differs(data, SIZE, seed);
}
