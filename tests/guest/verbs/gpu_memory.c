// SPDX-License-Identifier: MIT
/* GPU memory for the tests of RDMA. */
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

CUdeviceptr gpu_mappings(uint64_t seed)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	};
	CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr = 0;
	char data[SIZE];

	check_equal(cuMemAddressReserve(&ptr, 2 * BLOCK, 0, 0, 0), CUDA_SUCCESS);
	/* The second one first: so their memory is not contiguous. */
	for (int i = 1; i >= 0; i--) {
		check_equal(cuMemCreate(&handle, BLOCK, &prop, 0), CUDA_SUCCESS);
		check_equal(cuMemMap(ptr + (unsigned)i * BLOCK, BLOCK, 0, handle, 0), CUDA_SUCCESS);
		check_equal(cuMemRelease(handle), CUDA_SUCCESS);
	}
	check_equal(cuMemSetAccess(ptr, 2 * BLOCK, &access, 1), CUDA_SUCCESS);
	fill(data, SIZE, seed);
	for (unsigned i = 0; i < 2; i++)
		check_equal(cuMemcpyHtoD_v2(ptr + BLOCK - SIZE / 2 + i * SIZE / 2,
					    data + i * SIZE / 2, SIZE / 2),
			    CUDA_SUCCESS);
	return ptr;
}

size_t gpu_differs(CUdeviceptr ptr, uint64_t seed)
{
	char data[SIZE];

	check_equal(cuMemcpyDtoH_v2(data, ptr, SIZE), CUDA_SUCCESS);
	return differs(data, SIZE, seed);
}
